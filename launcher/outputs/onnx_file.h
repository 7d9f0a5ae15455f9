#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "launcher/outputs/safetensors.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// The largest ONNX file: protobuf messages can have 2 GiB.
inline constexpr std::uint64_t kOnnxBytesMax = std::numeric_limits<std::int32_t>::max();

/// An ONNX model. The launcher only finds the data that its tensors store in other files: replica 0 interprets the
/// model.
struct OnnxFile {
  std::string name;   ///< As given in the configuration; empty if the job has no ONNX model.
  std::string bytes;  ///< The model with the data of all its tensors, except those of `weights`.

  /// Tensors whose data stay in their files, because the model is too large for one message. In `bytes`, the text
  /// "#weights" takes the place of their data, which are longer.
  std::vector<StoredTensor> weights;
};

/// Reads the file that `[model] onnx` names, with the data that its tensors store in other files, as exporters write
/// large models. These files must be in the folder of `path` or below. Bytes that are not an ONNX model are returned
/// unchanged.
///
/// If the whole has more than `most` bytes, its initialisers of real numbers become `weights`, the largest first, until
/// the rest has at most an eighth of `most`. Memory: up to twice the size of `bytes`; no data of `weights` are read.
///
/// Errors: kData if a file is missing, unreadable or empty; kData, with the tensor's name, if its data are outside the
/// folder or fewer than its shape needs; kData if the bytes without `weights` would exceed `most`.
Result<OnnxFile> read_onnx_file(const std::string& path, std::uint64_t most = kOnnxBytesMax);

}  // namespace poprun::launcher
