#pragma once

#include <cstdint>
#include <string>

#include "replica/base/error.h"

/// ONNX files whose tensors are stored in other files, as exporters write large models.
namespace poprun::launcher {

/// Returns the ONNX model `bytes`, read from `path`, with the data that its tensors store in other files. Bytes without
/// such tensors, or that are not an ONNX model, are returned unchanged. The other files must be in the folder of `path`
/// or below. Memory: up to twice the size of the result.
///
/// Errors: kData, with the tensor's name, if a file is outside the folder, missing, unreadable or too short; kData if
/// the result would have more than `most` bytes.
Result<std::string> with_external_data(std::string bytes, const std::string& path, std::uint64_t most);

}  // namespace poprun::launcher
