#pragma once

#include <string>
#include <vector>

#include "launcher/outputs/read_file.h"
#include "launcher/outputs/safetensors.h"
#include "launcher/screen/console.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"

/// Questions about models. The launcher itself knows no models: poprun-emu-replica (see replica/answers/inquiry.h) or a
/// tool answers, as a plain child process without mpirun.
namespace poprun::launcher {

/// The files that a model starts from, as far as its configuration names any. Replicas read no files: the launcher
/// sends them what they need.
struct ModelInputs {
  std::vector<Tensor> initial_weights;
  OnnxFile onnx;
};

/// Reads the files. Errors: those of read_safetensors and read_onnx_file.
Result<ModelInputs> read_inputs(const proto::ModelConfig& model);

/// Runs a program from our own folder, by its name and arguments, with `input` on its stdin. Its stdout is printed as
/// it arrives, and its stderr as an error of the launcher. Returns the exit code for the shell; a signal ends the
/// program with 128 + the signal's number.
int ask(const std::vector<std::string>& command, const std::string& input, Console& console);

}  // namespace poprun::launcher
