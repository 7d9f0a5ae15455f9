#include "launcher/outputs/read_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "replica/base/text.h"

namespace poprun::launcher {

Result<std::string> read_file(const std::string& path, std::uint64_t most) {
  std::string bytes;
  std::array<char, 1 << 16> piece{};
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  int reason = descriptor < 0 ? errno : 0;
  while (reason == 0 && bytes.size() < most) {
    const auto count = std::min<std::uint64_t>(piece.size(), most - bytes.size());
    const ssize_t got = read(descriptor, piece.data(), count);
    if (got == 0) {
      break;
    }
    if (got > 0) {
      bytes.append(piece.data(), static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      reason = errno;
    }
  }
  if (descriptor >= 0) {
    close(descriptor);
  }
  if (reason != 0) {
    return fail(ErrorCode::kData, fmt::format("{}: cannot be read: {}", path, std::strerror(reason)));
  }
  return bytes;
}

std::optional<std::uint64_t> size_of_file(const std::string& path) {
  std::error_code none;
  const bool regular = std::filesystem::is_regular_file(path, none);
  const std::uintmax_t size = regular ? std::filesystem::file_size(path, none) : 0;
  return regular && !none ? std::optional<std::uint64_t>(size) : std::nullopt;
}

}  // namespace poprun::launcher
