#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

/// NumPy's array files, versions 1 to 3, as described in numpy/lib/format.py. Any input yields a value or a one-line
/// error that names the file, what was expected and what was found.
namespace poprun::hostio {

/// Number of leading bytes of a file that are certain to include its header.
inline constexpr std::size_t kNpyPrefix = (std::size_t{1} << 16) + 12;

struct NpyHeader {
  char kind = 'f';     ///< 'b' bool, 'i' and 'u' integers, 'f' floats.
  unsigned width = 4;  ///< Bytes per element: 1, 2, 4 or 8.
  bool big_endian = false;
  bool fortran_order = false;  ///< The first dimension varies fastest.
  std::vector<std::uint64_t> shape;
  std::uint64_t elements = 1;    ///< Product of `shape`.
  std::uint64_t data_begin = 0;  ///< Offset in the file at which the elements begin.
  std::uint64_t first_item = 0;  ///< If the elements are only some items of an array, the first one, for messages.

  [[nodiscard]] std::uint64_t bytes() const { return elements * width; }
};

/// Parses the header in a file's first bytes: kNpyPrefix of them, or all if there are fewer. `name` is the file's name
/// in messages. Errors: kData if it is not an array file or is damaged, or if its elements are not numbers.
Result<NpyHeader> parse_npy_header(std::span<const std::byte> bytes, std::string_view name);

/// Returns NumPy's name for the type: "float32".
std::string dtype_of(const NpyHeader& header);

/// The format to which an array's elements are converted.
struct NpyTarget {
  enum class Element : std::uint8_t { kU8, kI32, kF32, kF64 };

  Element element = Element::kF32;
  bool channels_last = false;  ///< The array is [N,H,W,C], and the result is [N,C,H,W].
};

/// Checks that an array's file or archive member is as large as its header says. Call before reading or inflating it.
/// `bytes` is the size after the header. Errors: kData if the size differs.
Status check_npy_size(const NpyHeader& header, std::uint64_t bytes, std::string_view name);

/// Converts the elements in `data`, all bytes after the header, to row-major little-endian order. Errors: kData if the
/// number of elements is wrong, or the target cannot represent an element. Requires: if the target type is u8, the
/// array's type is u8, too. Cost: none if the array already has the target format, and otherwise about 10 ns per
/// element.
Result<std::vector<std::byte>> npy_elements(const NpyHeader& header, std::vector<std::byte> data,
                                            const NpyTarget& target, std::string_view name,
                                            const FileScope& scope = {});

}  // namespace poprun::hostio
