#pragma once

#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "launcher/outputs/read_file.h"
#include "launcher/outputs/safetensors.h"
#include "launcher/screen/console.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"

/// Questions about models. The launcher itself knows no models: poprun-emu-replica (see replica/answers/inquiry.h) or a
/// tool answers, as a plain child process without mpirun.
namespace poprun::launcher {

/// The files, if any, that a model starts from. Replicas read no files: the launcher sends them what they need.
struct ModelInputs {
  std::vector<Tensor> initial_weights;
  OnnxFile onnx;
};

/// Reads the files. Errors: those of read_safetensors and read_onnx_file.
Result<ModelInputs> read_inputs(const proto::ModelConfig& model);

using TakeOutput = std::function<void(const std::string& output)>;

/// Runs a program from our own folder, by its name and arguments, with `input` on its stdin. Its stdout is printed as
/// it arrives or, with `take`, passed to it at the end; then its stderr is printed as an error of the launcher. Returns
/// the exit code for the shell; a signal ends the program with 128 + the signal's number.
int ask(const std::vector<std::string>& command, const std::string& input, Console& console,
        const TakeOutput& take = nullptr);

/// Asks poprun-emu-replica, whose answer is an `Answer` of proto/answers.proto. Prints show(answer), then the replica's
/// error, if any: the answer then holds what was found before it. Returns the exit code.
template <typename Answer, typename Show>
int ask_replica(const char* option, const std::string& input, Console& console, Show show) {
  bool is_whole = true;
  const int exit_code = ask({"poprun-emu-replica", option}, input, console, [&](const std::string& output) {
    Answer answer;
    is_whole = answer.ParseFromString(output);
    if (const std::string text = is_whole ? show(answer) : ""; !text.empty()) {
      console.out(text);
    }
  });
  if (exit_code == 0 && !is_whole) {
    return console.say(Error{ErrorCode::kBug, fmt::format("the answer of poprun-emu-replica {} is not a serialised {}",
                                                          option, Answer::descriptor()->name())});
  }
  return exit_code;
}

}  // namespace poprun::launcher
