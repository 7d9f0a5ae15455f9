#include "hostio/formats/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

namespace poprun::hostio {

Status read_at(const OpenFile& file, std::uint64_t offset, std::span<std::byte> out,
               std::string_view name) {
  std::uint64_t had = 0;
  while (had < out.size()) {
    const ssize_t got = ::pread(file.descriptor(), out.data() + had, out.size() - had,
                                static_cast<off_t>(offset + had));
    if (got > 0) {
      had += static_cast<std::uint64_t>(got);
    } else if (got == 0 || errno != EINTR) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: needed {} bytes from byte {} on, could read "
                              "{}{}",
                              name, out.size(), offset, had,
                              got == 0 ? "" : fmt::format(": {}", std::strerror(errno))));
    }
  }
  return {};
}

Result<std::vector<std::byte>> read_bytes(const std::filesystem::path& file, const FileScope& scope,
                                          std::uint64_t most, std::uint64_t offset) {
  constexpr std::uint64_t kPieceBytes = 16 << 20;
  POPRUN_ASSIGN(const OpenFile opened, OpenFile::open(file, scope));
  const std::uint64_t begin = std::min(opened.size(), offset);
  const std::uint64_t count = std::min(most, opened.size() - begin);
  std::vector<std::byte> bytes;
  POPRUN_TRY(scope.resize(bytes, count, file.string()));
  for (std::uint64_t at = 0; at < count; at += kPieceBytes) {
    const std::span piece = std::span(bytes).subspan(at, std::min(kPieceBytes, count - at));
    POPRUN_TRY(read_at(opened, begin + at, piece, file.string()));
    scope.advance(piece.size());
  }
  return bytes;
}

}  // namespace poprun::hostio
