#include "launcher/job/inquiry.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include <asio/signal_set.hpp>
#include <fmt/format.h>
#include <sys/wait.h>

#include "launcher/outputs/weights_files.h"
#include "launcher/process/process_handle.h"
#include "launcher/process/supervisor.h"

namespace poprun::launcher {

Result<ModelInputs> read_inputs(const proto::ModelConfig& model) {
  ModelInputs inputs;
  if (!model.initial_weights().empty()) {
    POPRUN_ASSIGN(inputs.initial_weights, read_weights(model.initial_weights()));
  }
  if (!model.onnx().empty()) {
    POPRUN_ASSIGN(inputs.onnx, read_onnx_file(model.onnx()));
  }
  return inputs;
}

std::string activity_of(std::string_view option) {
  return option == "--compile"    ? "compiling"
         : option == "--profile"  ? "compiling and profiling"
         : option == "--estimate" ? "estimating"
                                  : "";
}

int ask(const std::vector<std::string>& command, const std::string& input, Console& console, const TakeOutput& take,
        const Waiting& waiting) {
  asio::io_context loop;
  std::optional<WaitingLine> line;
  if (!waiting.doing.empty()) {
    line.emplace(loop, console, waiting);
  }
  Supervisor supervisor(loop);
  int exit_code = 0;
  asio::signal_set signals(loop);
  for (const int number : ending_signals()) {
    signals.add(number);
  }
  signals.async_wait([&](const asio::error_code& error, int number) {
    if (!error) {
      supervisor.kill_all();
      exit_code = 128 + number;
      loop.stop();
    }
  });
  std::string output;
  std::vector<std::string> errors;  // Printed after what `take` prints.
  bool complained = false;
  // Prints the first line as an error, and all further lines unchanged: they form a table that belongs to the error.
  const auto complain = [&](std::string_view text) {
    std::exchange(complained, true) ? console.err(text) : console.complain(text);
  };
  const Child::Program program{.path = path_beside_us(command[0]),
                               .arguments = command,
                               .environment = {},
                               .death_signal = SIGKILL,
                               .input = input,
                               .writes_lines = !take};
  const Status started = supervisor.start_inquiry(
      program, [&](std::string_view text) { take ? void(output += text) : console.out(text); },
      [&](std::string_view text) { take ? void(errors.emplace_back(text)) : complain(text); },
      [&](int status) {
        line.reset();
        if (take) {
          take(output);
        }
        std::ranges::for_each(errors, complain);
        if (!WIFEXITED(status)) {
          complain(fmt::format("{} {}", command[0], exit_text(status)));
        }
        exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : exit_code_of(ErrorCode::kInfrastructure);
        loop.stop();
      });
  if (!started) {
    return console.say(started.error());
  }
  loop.run();
  return exit_code;
}

}  // namespace poprun::launcher
