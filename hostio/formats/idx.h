#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

/// IDX, the file format of MNIST and similar datasets, plain or inside gzip.
///
///   byte 0, 1   zero
///   byte 2      element type; only 0x08, unsigned byte, is read
///   byte 3      rank R, 1 to kIdxRankMax
///   byte 4      R dimensions, 32-bit big-endian
///   then        the elements, row-major, and nothing after them
///
/// Any input yields a value or a one-line error that names the file, what was expected and what was found. Memory use
/// depends on the actual bytes, never on sizes claimed in a header.
namespace poprun::hostio {

inline constexpr std::size_t kIdxRankMax = 8;
inline constexpr std::uint64_t kIdxElementsMax = std::uint64_t{1} << 34;

struct IdxShape {
  std::vector<std::uint32_t> dims;
  std::uint64_t elements = 0;  ///< Product of `dims`, <= kIdxElementsMax.
};

struct IdxArray {
  IdxShape shape;
  std::vector<std::uint8_t> elements;  ///< Has shape.elements entries.
};

/// Parses the shape in the header of `bytes`, which may be only the beginning of a file. `name` is the file's name in
/// messages. Errors: kData if it is not an IDX file of unsigned bytes, is too short or too large, or its gzip is
/// damaged.
Result<IdxShape> parse_idx_shape(std::span<const std::byte> bytes, std::string_view name);

/// Parses the array in `bytes`, a complete file. Errors: those of `parse_idx_shape`, and kData if the number of
/// elements is wrong.
Result<IdxArray> parse_idx(std::span<const std::byte> bytes, std::string_view name, const FileScope& scope = {});

/// Applies `parse_idx_shape` to the file's first bytes. Cost: one read of at most 64 KiB.
Result<IdxShape> read_idx_shape(const std::filesystem::path& file, const FileScope& scope = {});

/// Applies `parse_idx` to the file. Cost: inflates about 400 MB/s.
Result<IdxArray> read_idx(const std::filesystem::path& file, const FileScope& scope = {});

}  // namespace poprun::hostio
