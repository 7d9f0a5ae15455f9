#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

namespace poprun::hostio {

/// Returns a SHA-256 digest of the files' sizes and contents, in the given order, independent of their paths. Cost: 0.7
/// s for 1 GiB in the page cache, on a processor with SHA instructions.
///
/// Errors: those of OpenFile::open, and
///   kData  a file cannot be read to its end.
Result<std::string> fingerprint_of(const std::vector<std::filesystem::path>& files, const FileScope& scope = {});

/// Reads the bytes of a file, or of its beginning, in order. Gzip data, with any number of members, is inflated; other
/// data is unchanged. Any input yields bytes or an error; memory use depends on the actual bytes, not on claimed sizes.
///
/// Errors, of all members
///   kData  the gzip data is damaged or truncated, or the inflated bytes do not fit this
///          host's memory; the message calls them `name`.
class Content {
 public:
  /// `bytes` must outlive the content. `scope` records the progress and limits the memory.
  Content(std::span<const std::byte> bytes, std::string_view name, FileScope scope = {});
  Content(const Content&) = delete;
  Content& operator=(const Content&) = delete;
  ~Content();

  /// Fills `out` with as many bytes as remain; returns their number.
  Result<std::size_t> read(std::span<std::byte> out);

  /// Returns the next `count` bytes; fewer at the end. Byte: std::byte or std::uint8_t.
  template <typename Byte>
  Result<std::vector<Byte>> take(std::uint64_t count) {
    std::vector<Byte> bytes;
    std::size_t filled = 0;
    while (filled < count) {
      const std::uint64_t growth = std::max<std::uint64_t>(kFirstGrowth, 2 * filled);
      POPRUN_TRY(scope_.resize(bytes, std::min(count, growth), name_));
      POPRUN_ASSIGN(const std::size_t had, read(std::as_writable_bytes(std::span(bytes)).subspan(filled)));
      filled += had;
      if (filled < bytes.size()) {
        bytes.resize(filled);
        break;
      }
    }
    return bytes;
  }

 private:
  static constexpr std::uint64_t kFirstGrowth = std::uint64_t{1} << 20;

  Result<std::size_t> inflate_into(std::span<std::byte> out);

  std::span<const std::byte> rest_;
  std::string name_;
  FileScope scope_;
  z_stream zlib_{};
  std::uint64_t total_ = 0;
  bool inflating_ = false;
  bool ended_ = false;
};

}  // namespace poprun::hostio
