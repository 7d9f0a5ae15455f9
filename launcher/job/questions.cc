#include "launcher/job/questions.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <asio/io_context.hpp>

#include "launcher/job/data_service.h"
#include "launcher/job/waiting_line.h"
#include "launcher/mpi/mpirun.h"
#include "launcher/process/supervisor.h"
#include "launcher/wire/security.h"

namespace poprun::launcher {

Result<proto::Dataset> dataset_of(const Options& options, Console& console) {
  POPRUN_ASSIGN(const Security security, job_security(options.hostio.tls_files, /*leaves_loopback=*/false));
  std::optional<Result<proto::Dataset>> answer;
  asio::io_context loop;
  const WaitingLine line(loop, console, {.doing = "asking the data server about the data"});
  Supervisor supervisor(loop);
  DataService data(loop, supervisor, console, options,
                   {.program = path_beside_us("poprun-emu-hostio"),
                    .own_address = "127.0.0.1",
                    .security = security,
                    .only_describe = true},
                   {.on_dataset =
                        [&answer](const Result<ServedDataset>& served) {
                          answer = served.map([](const ServedDataset& s) { return s.dataset; });
                        },
                    .on_end = [](int /*status*/) {}});
  POPRUN_TRY(data.start());
  while (!answer) {
    loop.run_one();
  }
  data.forget();
  supervisor.kill_all();
  return *std::move(answer);
}

Result<proto::CompileQuestion> compile_question(const Options& options, Console& console) {
  proto::CompileQuestion job;
  *job.mutable_config() = options.config;
  POPRUN_ASSIGN(*job.mutable_dataset(), dataset_of(options, console));
  POPRUN_ASSIGN(ModelInputs inputs, read_inputs(options.config.model()));
  job.set_onnx_model(std::move(inputs.onnx.bytes));
  job.mutable_command()->Assign(options.command.begin(), options.command.end());
  for (const Tensor& tensor : inputs.initial_weights) {
    proto::TensorDescription& description = *job.add_initial_weights();
    description.set_name(tensor.name);
    description.set_type(element_type(tensor.dtype));
    description.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    description.set_digest(std::hash<std::string>{}(tensor.data));
  }
  return job;
}

double teraflops_per_second(const proto::MicroAnswer& answer) {
  return static_cast<double>(answer.cost().flops()) / answer.seconds() / 1e12;
}

double gigabytes_per_second(const proto::MicroAnswer& answer) {
  return static_cast<double>(answer.bytes()) / answer.seconds() / 1e9;
}

}  // namespace poprun::launcher
