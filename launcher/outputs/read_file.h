#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "replica/base/error.h"

namespace poprun::launcher {

/// Returns the first `most` bytes of the file at `path`, or all bytes if the file is shorter. The file may be a pipe.
/// Errors: kData, with `path` and the reason why it cannot be read.
Result<std::string> read_file(const std::string& path, std::uint64_t most);

/// Returns the size of a regular file without reading it, or nothing for a pipe or a missing file.
std::optional<std::uint64_t> size_of_file(const std::string& path);

/// An ONNX model. The launcher only adds the data that its tensors store in other files: replica 0 interprets the
/// model.
struct OnnxFile {
  std::string name;   ///< As given in the configuration; empty if the job has no ONNX model.
  std::string bytes;  ///< The whole model; at most protobuf's 2 GiB.
};

/// Reads the file that `[model] onnx` names. Errors: kData if it is missing, unreadable, empty, or over 2 GiB, and
/// those of with_external_data.
Result<OnnxFile> read_onnx_file(const std::string& path);

}  // namespace poprun::launcher
