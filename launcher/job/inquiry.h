#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "launcher/job/waiting_line.h"
#include "launcher/outputs/onnx_file.h"
#include "launcher/outputs/safetensors.h"
#include "launcher/screen/console.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"

/// Questions about models. The launcher itself contains no models, so poprun-emu-replica (see
/// replica/answers/inquiry.h) or a tool answers the questions, as a plain child process that is started without mpirun.
namespace poprun::launcher {

/// Contents of the files, if any, that a model starts from. The launcher sends them to replicas, which read no files.
struct ModelInputs {
  std::vector<Tensor> initial_weights;
  OnnxFile onnx;
};

/// Reads the files. Errors: those of read_safetensors and read_onnx_file.
Result<ModelInputs> read_inputs(const proto::ModelConfig& model);

using TakeOutput = std::function<void(const std::string& output)>;

/// Runs a program from the launcher's folder. `command` is its name and arguments, and `input` its stdin. Its stdout is
/// printed as it arrives or, if `take` is given, passed to `take` at the end. Its stderr is printed as an error of the
/// launcher, after any call of `take`. On a terminal, shows a WaitingLine. Returns the program's exit code, or 128
/// + N if signal N asks the launcher to end.
int ask(const std::vector<std::string>& command, const std::string& input, Console& console,
        const TakeOutput& take = nullptr, const Waiting& waiting = {});

/// Returns what poprun-emu-replica does when it is asked with `option`, for Waiting.
std::string activity_of(std::string_view option);

/// Asks poprun-emu-replica, whose answer is an `Answer` of proto/answers.proto. Prints show(answer), then the replica's
/// error, if any. If there is an error, the answer contains what was found before the error. Returns the exit code.
template <typename Answer, typename Show>
int ask_replica(const char* option, const std::string& input, Console& console, Show show, Waiting waiting = {}) {
  bool is_whole = true;
  const auto take = [&](const std::string& output) {
    Answer answer;
    is_whole = answer.ParseFromString(output);
    if (const std::string text = is_whole ? show(answer) : ""; !text.empty()) {
      console.page(text);
    }
  };
  if (waiting.doing.empty()) {
    waiting.doing = activity_of(option);
  }
  const int exit_code = ask({"poprun-emu-replica", option}, input, console, take, waiting);
  if (exit_code == 0 && !is_whole) {
    return console.say(Error{ErrorCode::kBug, fmt::format("poprun-emu-replica {} did not print a serialised {}", option,
                                                          Answer::descriptor()->name())});
  }
  return exit_code;
}

}  // namespace poprun::launcher
