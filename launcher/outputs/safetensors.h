#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"

/// The open weights format of Hugging Face, https://github.com/huggingface/safetensors#format
///
///   8 bytes   N, little-endian
///   N bytes   JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...},
///             padded with spaces so that the data begins at a multiple of 8
///   the data  of all tensors, row-major little-endian, without holes
namespace poprun::launcher {

struct Tensor {
  std::string name;
  std::string dtype;  ///< "F64" "F32" "F16" "BF16" "I64" "I32" "I16" "I8" "U64" ... "U8" "BOOL".
  std::vector<std::int64_t> shape;  ///< Empty for a scalar.
  std::string data;

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// A tensor of a file, without its bytes.
struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< Where its bytes begin, from the start of the data,
  std::uint64_t end = 0;    ///< and their end.
};

/// Bytes of a dtype and shape; nothing where the dtype is unknown, or no memory could hold them.
std::optional<std::uint64_t> tensor_bytes(std::string_view dtype,
                                          std::span<const std::int64_t> shape);

/// A dtype as it is spelled everywhere else, "f32" for "F32", and back.
std::string element_type(std::string_view dtype);
std::string dtype_of(std::string_view element_type);

/// Everything in front of the data. Tensors lie in the order given, so equal tensors in equal order
/// give equal bytes.
///
/// Requires: every tensor's data has the size of its shape.
std::string safetensors_header(std::span<const Tensor> tensors);

/// The same for tensors that lie where the entries say. Requires: they fill the data from end to
/// end, in this order.
std::string safetensors_header(std::span<const TensorEntry> entries);

/// The tensors of a file's bytes, in the order of their data. Trusts nothing; never crashes
/// (tests/fuzz). Tensors may have any order in the header, but no hole and no overlap.
///
/// Errors
///   kData  `file`: what is wrong, and where.
Result<std::vector<Tensor>> parse_safetensors(std::string_view file, std::string_view bytes);

/// `parse_safetensors` of the file at `path`. The header of a regular file, and whether its tensors
/// are what the file's size says, is looked at before any data is read.
///
/// Errors
///   kData           it is missing, unreadable, or damaged.
///   kHostResources  it does not fit this host's memory.
Result<std::vector<Tensor>> read_safetensors(const std::string& path);

/// What the file at `path` holds, in the order of its data, and where its data begins.
///
/// Errors
///   kData  it is missing, unreadable, or damaged.
struct TensorList {
  std::vector<TensorEntry> entries;
  std::uint64_t data_begin = 0;  ///< From the start of the file.
};
Result<TensorList> list_safetensors(const std::string& path);

}  // namespace poprun::launcher
