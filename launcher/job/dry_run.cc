#include "launcher/job/dry_run.h"

#include <functional>
#include <string>

#include <asio/io_context.hpp>
#include <fmt/format.h>

#include "launcher/job/data_service.h"
#include "launcher/job/inputs.h"
#include "launcher/job/inquiry.h"
#include "launcher/mpi/mpirun.h"
#include "launcher/process/programs.h"
#include "launcher/process/supervisor.h"
#include "launcher/wire/job_token.h"
#include "proto/inquiry.pb.h"

namespace poprun::launcher {
namespace {

void print_plan(Console& console, const Options& options, const Placement& placement) {
  const MpirunCommand command =
      mpirun_here(options, placement, path_beside_us("poprun-emu-replica"));
  console.out(topology_table(placement));
  console.out(fmt::format("# {}, resolved\n{}", options.config_file, resolved_config(options)));
  console.out(fmt::format("# mpirun\n{}\n", shell_line(command)));
  for (std::size_t i = 0; i < command.instances.size(); ++i) {
    console.out(
        fmt::format("# instance {} on {}", i, placement.host_of(static_cast<std::uint32_t>(i))));
    for (const auto& [name, value] : command.instances[i]) {
      console.out(fmt::format("{}={}", name, value));
    }
    console.out(
        "POPRUN_EMU_COORDINATOR=<this launcher's address, chosen at "
        "start>\nPOPRUN_EMU_TOKEN=<secret>\n");
  }
}

/// From the dataset's description to the compiled Program's figures.
class Compilation {
 public:
  Compilation(const Options& options, Console& console)
      : options_(options),
        console_(console),
        supervisor_(loop_),
        data_(loop_, supervisor_, console, options,
              {.program = path_beside_us("poprun-emu-hostio"),
               .local_only = true,
               .own_address = "127.0.0.1",
               .token = job_token()},
              {.on_dataset = [this](const auto& dataset) { compile(dataset); },
               .on_end = [](int /*status*/) {}}),
        inquiry_(supervisor_, console) {}

  int run() {
    if (const Status started = data_.start(); !started) {
      end_with(started.error());
    }
    while (!over_) {
      loop_.run_one();
    }
    data_.forget();
    supervisor_.kill_all();
    return exit_code_;
  }

 private:
  void compile(const Result<ServedDataset>& served) {
    if (!served) {
      end_with(served.error());
      return;
    }
    proto::CompileQuestion job;
    *job.mutable_config() = options_.config;
    *job.mutable_dataset() = served->dataset;
    job.set_show_graphs(options_.verbosity > 1);
    job.set_show_schedule(options_.verbosity > 0);
    job.set_show_all_ipus(options_.verbosity > 1);
    job.set_screen_width(static_cast<std::uint32_t>(console_.page_width()));
    auto inputs = read_inputs(options_.config.model());
    if (!inputs) {
      end_with(inputs.error());
      return;
    }
    job.set_onnx_model(std::move(inputs->onnx.bytes));
    for (const Tensor& tensor : inputs->initial_weights) {
      proto::TensorDescription& description = *job.add_initial_weights();
      description.set_name(tensor.name);
      description.set_type(element_type(tensor.dtype));
      description.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
      description.set_digest(std::hash<std::string>{}(tensor.data));
    }
    const Status started = inquiry_.start({"poprun-emu-replica", "--compile"},
                                          job.SerializeAsString(), [this](int code) {
                                            exit_code_ = code;
                                            over_ = true;
                                          });
    if (!started) {
      end_with(started.error());
    }
  }

  void end_with(const Error& error) {
    console_.say(error.message);
    exit_code_ = exit_code_of(error.code);
    over_ = true;
  }

  const Options& options_;
  Console& console_;
  asio::io_context loop_;
  Supervisor supervisor_;
  DataService data_;
  Inquiry inquiry_;
  bool over_ = false;
  int exit_code_ = 0;
};

}  // namespace

int dry_run(const Options& options, const Placement& placement, Console& console) {
  print_plan(console, options, placement);
  return Compilation(options, console).run();
}

}  // namespace poprun::launcher
