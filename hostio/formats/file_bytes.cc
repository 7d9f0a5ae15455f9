#include "hostio/formats/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

namespace poprun::hostio {

Result<std::vector<std::byte>> read_bytes(const std::filesystem::path& file, const FileScope& scope,
                                          std::uint64_t most, std::uint64_t offset) {
  POPRUN_ASSIGN(const OpenFile opened, OpenFile::open(file, scope));
  const std::uint64_t begin = std::min(opened.size(), offset);
  const std::uint64_t count = std::min(most, opened.size() - begin);
  POPRUN_TRY(check_room(file.string(), count));
  std::vector<std::byte> bytes(count);
  std::uint64_t had = 0;
  while (had < count) {
    const ssize_t got = ::pread(opened.descriptor(), bytes.data() + had, count - had,
                                static_cast<off_t>(begin + had));
    if (got > 0) {
      had += static_cast<std::uint64_t>(got);
    } else if (got == 0 || errno != EINTR) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: needed {} bytes, could read {}{}", file.string(), count, had,
                              got == 0 ? "" : fmt::format(": {}", std::strerror(errno))));
    }
  }
  return bytes;
}

}  // namespace poprun::hostio
