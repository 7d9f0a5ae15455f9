#pragma once

#include <cstdint>
#include <string>

#include "replica/base/error.h"

/// ONNX files whose tensors are stored in other files, as exporters write large models.
namespace poprun {

/// Returns the ONNX model `bytes`, read from `path`, with the data of those tensors that lie in other files; bytes that
/// are not an ONNX model are returned as they are. The other files must be in the folder of `path` or below. Each of
/// their bytes that belongs to a tensor is read once, to its place in the result.
///
/// Errors: kData, with the tensor's name, for a file outside the folder, or that is missing, unreadable or too short,
/// and if the result would have more than `most` bytes.
Result<std::string> with_external_data(std::string bytes, const std::string& path, std::uint64_t most);

}  // namespace poprun
