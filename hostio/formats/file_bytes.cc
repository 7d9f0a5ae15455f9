#include "hostio/formats/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

namespace poprun::hostio {

Result<std::vector<std::byte>> read_bytes(const std::filesystem::path& file, std::uint64_t most,
                                          std::uint64_t offset) {
  std::ifstream stream(file, std::ios::binary);
  const int reason = errno;
  std::error_code not_regular;
  const std::uintmax_t size = std::filesystem::file_size(file, not_regular);
  if (!stream || not_regular) {
    return fail(ErrorCode::kData,
                fmt::format("{}: cannot be read: {}", file.string(),
                            stream ? not_regular.message() : std::strerror(reason)));
  }
  std::vector<std::byte> bytes(std::min(most, size - std::min(size, offset)));
  stream.seekg(static_cast<std::streamoff>(std::min(size, offset)));
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (static_cast<std::size_t>(stream.gcount()) != bytes.size()) {
    return fail(ErrorCode::kData, fmt::format("{}: needed {} bytes, could read {}", file.string(),
                                              bytes.size(), stream.gcount()));
  }
  return bytes;
}

}  // namespace poprun::hostio
