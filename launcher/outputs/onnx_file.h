#pragma once

#include <string>

#include "replica/base/error.h"

namespace poprun::launcher {

/// An ONNX model. The launcher knows no model: replica 0 takes the bytes apart.
struct OnnxFile {
  std::string name;   ///< As the configuration has it; empty where the job has no such model.
  std::string bytes;  ///< All of the file, at most protobuf's 2 GiB.
};

/// The file of `[model] onnx`.
/// Errors: kData, it is missing, unreadable, empty, or larger than protobuf's 2 GiB.
Result<OnnxFile> read_onnx_file(const std::string& path);

}  // namespace poprun::launcher
