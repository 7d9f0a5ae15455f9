#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

namespace poprun::hostio {

/// A regular file in an archive.
struct TarEntry {
  std::string name;
  std::uint64_t offset = 0;  ///< Position of its contents in the archive.
  std::uint64_t size = 0;
};

/// Lists the files of an uncompressed tar archive (POSIX ustar and pax, and GNU's long names), reading only headers.
/// Any input yields entries inside the archive or a one-line error.
class TarReader {
 public:
  /// Errors: those of OpenFile::open.
  static Result<TarReader> open(const std::filesystem::path& archive, const FileScope& scope);

  /// Finds the next regular file; folders and links are skipped. Returns false at the end. Errors: kData, with the
  /// offset of the header, if the archive is damaged, ends within a file, is compressed or has sparse files.
  Result<bool> next(TarEntry& entry);

  [[nodiscard]] const OpenFile& file() const { return file_; }

 private:
  TarReader(OpenFile file, std::string name, FileScope scope)
      : file_(std::move(file)), name_(std::move(name)), scope_(std::move(scope)) {}

  [[nodiscard]] tl::unexpected<Error> damaged(std::uint64_t offset, std::string_view why) const;
  Result<std::string> short_contents(std::uint64_t offset, std::uint64_t size) const;

  OpenFile file_;
  std::string name_;
  FileScope scope_;
  std::uint64_t at_ = 0;
};

}  // namespace poprun::hostio
