#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "replica/base/error.h"

namespace poprun::launcher {

/// The first `most` bytes of the file at `path`, also of a pipe; fewer where it ends before.
///
/// Errors
///   kData  `path`: why it cannot be read.
Result<std::string> read_file(const std::string& path, std::uint64_t most);

/// The size of a regular file, before it is read; nothing for a pipe and what does not exist.
std::optional<std::uint64_t> size_of_file(const std::string& path);

/// An ONNX model. The launcher knows no model: replica 0 takes the bytes apart.
struct OnnxFile {
  std::string name;   ///< As the configuration has it; empty where the job has no such model.
  std::string bytes;  ///< All of the file, at most protobuf's 2 GiB.
};

/// The file of `[model] onnx`.
/// Errors: kData, it is missing, unreadable, empty, or larger than protobuf's 2 GiB.
Result<OnnxFile> read_onnx_file(const std::string& path);

}  // namespace poprun::launcher
