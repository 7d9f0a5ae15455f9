#include "launcher/job/dry_run.h"

#include <string>

#include <fmt/format.h>

#include "launcher/job/compile_question.h"
#include "launcher/job/inquiry.h"
#include "launcher/mpi/mpirun.h"
#include "launcher/options/parse.h"
#include "launcher/process/supervisor.h"
#include "proto/inquiry.pb.h"

namespace poprun::launcher {
namespace {

void print_plan(Console& console, const Options& options, const Placement& placement) {
  const MpirunCommand command = mpirun_here(options, placement, path_beside_us("poprun-emu-replica"));
  console.out(topology_table(placement));
  console.out(fmt::format("# {}, resolved\n{}", options.config_file, resolved_config(options)));
  console.out(fmt::format("# mpirun\n{}\n", shell_line(command)));
  for (std::size_t i = 0; i < command.instances.size(); ++i) {
    console.out(fmt::format("# instance {} on {}", i, placement.host_of(static_cast<std::uint32_t>(i))));
    for (const auto& [name, value] : command.instances[i]) {
      console.out(fmt::format("{}={}", name, value));
    }
    console.out(
        "POPRUN_EMU_COORDINATOR=<this launcher's address, chosen at "
        "start>\nPOPRUN_EMU_TOKEN=<secret>\n");
  }
}

/// Returns the question for the compiler. Errors: those of compile_question.
Result<proto::CompileQuestion> dry_run_question(const Options& options, Console& console) {
  POPRUN_ASSIGN(proto::CompileQuestion job, compile_question(options, console));
  job.set_show_graphs(options.verbosity > 1);
  job.set_show_schedule(options.verbosity > 0);
  job.set_show_all_ipus(options.verbosity > 1);
  job.set_screen_width(static_cast<std::uint32_t>(console.page_width()));
  return job;
}

}  // namespace

int dry_run(const Options& options, const Placement& placement, Console& console) {
  print_plan(console, options, placement);
  const Result<proto::CompileQuestion> question = dry_run_question(options, console);
  if (!question) {
    console.say(question.error().message);
    return exit_code_of(question.error().code);
  }
  return ask({"poprun-emu-replica", "--compile"}, question->SerializeAsString(), console);
}

}  // namespace poprun::launcher
