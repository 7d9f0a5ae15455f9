#include "hostio/formats/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

namespace poprun::hostio {
namespace {

Result<std::vector<std::byte>> read_piece(const std::filesystem::path& file, std::uint64_t offset,
                                          std::uint64_t count) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    return fail(ErrorCode::kData,
                fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  }
  std::vector<std::byte> bytes(count);
  stream.seekg(static_cast<std::streamoff>(offset));
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (static_cast<std::size_t>(stream.gcount()) != bytes.size()) {
    return fail(ErrorCode::kData, fmt::format("{}: needed {} bytes, could read {}", file.string(),
                                              bytes.size(), stream.gcount()));
  }
  return bytes;
}

}  // namespace

Result<ByteSource> file_source(const std::filesystem::path& file) {
  const std::ifstream stream(file, std::ios::binary);
  const int reason = errno;
  std::error_code not_regular;
  const std::uintmax_t size = std::filesystem::file_size(file, not_regular);
  if (!stream || not_regular) {
    return fail(ErrorCode::kData,
                fmt::format("{}: cannot be read: {}", file.string(),
                            stream ? not_regular.message() : std::strerror(reason)));
  }
  return ByteSource{.name = file.string(),
                    .size = size,
                    .read = [file](std::uint64_t offset, std::uint64_t count) {
                      return read_piece(file, offset, count);
                    }};
}

ByteSource memory_source(std::string name, std::span<const std::byte> bytes) {
  return {
      .name = std::move(name),
      .size = bytes.size(),
      .read = [bytes](std::uint64_t offset, std::uint64_t count) -> Result<std::vector<std::byte>> {
        const auto piece = bytes.subspan(offset, count);
        return std::vector<std::byte>(piece.begin(), piece.end());
      }};
}

Result<std::vector<std::byte>> read_bytes(const std::filesystem::path& file, std::size_t most) {
  POPRUN_ASSIGN(const ByteSource source, file_source(file));
  return source.read(0, std::min<std::uint64_t>(source.size, most));
}

}  // namespace poprun::hostio
