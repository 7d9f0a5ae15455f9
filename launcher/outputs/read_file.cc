#include "launcher/outputs/read_file.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace poprun::launcher {

Result<std::string> read_file(const std::string& path) {
  std::string bytes;
  std::array<char, 1 << 16> piece{};
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  int reason = descriptor < 0 ? errno : 0;
  while (reason == 0) {
    const ssize_t got = read(descriptor, piece.data(), piece.size());
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
    return fail(ErrorCode::kData,
                fmt::format("{}: cannot be read: {}", path, std::strerror(reason)));
  }
  return bytes;
}

}  // namespace poprun::launcher
