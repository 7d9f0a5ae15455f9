#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"

/// The weights format of Hugging Face, https://github.com/huggingface/safetensors#format:
///
///     8 bytes   N, little-endian
///     N bytes   JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...},
///               padded with spaces so that the data begins at a multiple of 8; "__metadata__" may hold strings
///     the data  of all tensors, row-major little-endian, without gaps
namespace poprun::launcher {

struct Tensor {
  std::string name;
  std::string dtype;                ///< "F64" "F32" "F16" "BF16" "I64" "I32" "I16" "I8" "U64" ... "U8" "BOOL".
  std::vector<std::int64_t> shape;  ///< Empty for a scalar.
  std::string data;

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// A tensor in a file of any format.
struct StoredTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string path;
  std::uint64_t offset = 0;  ///< Position of the first byte in the file.
  std::uint64_t bytes = 0;   ///< Size of the data, which are row-major and little-endian.
};

struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< Offset of the tensor's first byte in the data.
  std::uint64_t end = 0;    ///< Offset just after the tensor's last byte.
};

/// Returns the size in bytes for a dtype and shape, or nothing if the dtype is unknown or the size overflows.
std::optional<std::uint64_t> tensor_bytes(std::string_view dtype, std::span<const std::int64_t> shape);

/// Converts a dtype to the spelling used everywhere else, such as "F32" to "f32"; `dtype_of` converts back.
std::string element_type(std::string_view dtype);
std::string dtype_of(std::string_view element_type);

/// Returns everything that precedes the data in a file, with the metadata {"format": "pt"} that Hugging Face's
/// libraries expect, and Mixtral's experts as single tensors. Tensors are stored in the given order, so the same
/// tensors in the same order give identical bytes. Requires: every tensor's data has the size of its shape.
std::string safetensors_header(std::span<const Tensor> tensors);

/// Returns the header, without metadata, for tensors at the offsets of `entries`, which must fill the data without gaps
/// in this order.
std::string safetensors_header(std::span<const TensorEntry> entries);

/// Parses the bytes of a file and returns its tensors in the order of their data. Accepts untrusted input and never
/// crashes (tests/fuzz). The header may list tensors in any order, but the data must have no gaps or overlaps. Errors:
/// kData; the message names `file`, what is wrong in it, and where.
Result<std::vector<Tensor>> parse_safetensors(std::string_view file, std::string_view bytes);

/// Reads the file at `path` and parses it as `parse_safetensors` does. For a regular file, checks the header, and its
/// tensors against the file's size, before reading any data. Errors: kData if the file is missing, unreadable, or
/// damaged; kHostResources if it does not fit in this host's memory.
Result<std::vector<Tensor>> read_safetensors(const std::string& path);

/// The tensors of a file, in the order of their data.
struct TensorList {
  std::vector<TensorEntry> entries;
  std::uint64_t data_begin = 0;  ///< Offset from the start of the file.
};

/// Lists the tensors in the file at `path`. Errors: kData if the file is missing, unreadable, or damaged.
Result<TensorList> list_safetensors(const std::string& path);

}  // namespace poprun::launcher
