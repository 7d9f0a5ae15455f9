#include "hostio/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <fmt/format.h>

namespace poprun::hostio {

Result<std::vector<std::byte>> read_bytes(const std::filesystem::path& file, std::size_t most) {
  std::ifstream stream(file, std::ios::binary);
  std::error_code not_regular;
  const std::uintmax_t size = std::filesystem::file_size(file, not_regular);
  if (!stream || not_regular) {
    const std::string why = stream ? not_regular.message() : std::strerror(errno);
    return fail(ErrorCode::kData, fmt::format("{}: cannot be read: {}", file.string(), why));
  }
  std::vector<std::byte> bytes(std::min<std::uintmax_t>(size, most));
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (static_cast<std::size_t>(stream.gcount()) != bytes.size()) {
    return fail(ErrorCode::kData, fmt::format("{}: needed {} bytes, could read {}", file.string(),
                                              bytes.size(), stream.gcount()));
  }
  return bytes;
}

}  // namespace poprun::hostio
