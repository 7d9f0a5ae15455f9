#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "replica/base/error.h"

namespace poprun::hostio {

/// Bytes that are read piece by piece, so that a header costs no more than a header.
struct ByteSource {
  std::string name;  ///< In messages.
  std::uint64_t size = 0;

  /// Requires: offset + count <= size. Errors: kData, they cannot be read; names the reason.
  std::function<Result<std::vector<std::byte>>(std::uint64_t offset, std::uint64_t count)> read;
};

/// Errors
///   kData  it is no regular file or cannot be read; names it and the reason.
Result<ByteSource> file_source(const std::filesystem::path& file);

/// `bytes` outlives the source.
ByteSource memory_source(std::string name, std::span<const std::byte> bytes);

/// The first `most` bytes of the file, all where it has fewer.
///
/// Errors: those of file_source.
Result<std::vector<std::byte>> read_bytes(
    const std::filesystem::path& file, std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace poprun::hostio
