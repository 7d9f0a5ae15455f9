#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hostio/formats/reading.h"
#include "replica/base/error.h"

/// Opens the files of datasets, safely even if they were replaced by links or pipes.
namespace poprun::hostio {

/// Checks that this host has free memory for `bytes`, in addition to the bytes `promised` to other readings. A small
/// number of bytes is always accepted. Errors: kData if too little is free; the message names `what` and the shortage.
Status check_room(std::string_view what, std::uint64_t bytes, std::uint64_t promised = 0);

inline constexpr std::uint64_t kWholeFile = std::numeric_limits<std::uint64_t>::max();

/// A value that states which files may be read, and holds the reading in progress.
class FileScope {
 public:
  FileScope() = default;  ///< A scope that admits any file.

  /// Returns a scope that admits files below `root`, after links are resolved. Errors: kUsage if `root` is not a
  /// folder.
  static Result<FileScope> below(const std::filesystem::path& root);

  static FileScope nothing();

  /// Returns this scope with `reading` as its reading in progress.
  [[nodiscard]] FileScope during(std::shared_ptr<Reading> reading) const;
  /// Returns a scope that admits any file, with the same reading.
  [[nodiscard]] FileScope unrestricted() const { return FileScope().during(reading_); }
  /// The reading in progress; null if there is none.
  [[nodiscard]] Reading* reading() const { return reading_.get(); }

  /// Records work done (Reading::advance).
  void advance(std::uint64_t bytes) const;

  /// Resizes a vector of bytes for `what`. Concurrent readings cannot claim the same free memory. Errors: those of
  /// check_room.
  template <typename Byte>
  Status resize(std::vector<Byte>& bytes, std::uint64_t size, std::string_view what) const {
    static_assert(sizeof(Byte) == 1);
    constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;
    if (reading_ == nullptr || size < bytes.size() + kPieceBytes) {
      POPRUN_TRY(check_room(what, size - std::min<std::uint64_t>(size, bytes.size())));
      bytes.resize(size);
      return {};
    }
    POPRUN_TRY(check_promise(size - bytes.size(), what));
    Reading::Promise promise(*reading_, size - bytes.size());
    bytes.reserve(size);
    for (std::uint64_t at = bytes.size(); at < size; at = bytes.size()) {
      bytes.resize(std::min(size, at + kPieceBytes));
      promise.taken(bytes.size() - at);
    }
    return {};
  }
  /// Checks that the file or folder may be read. It does not have to exist, and the result does not reveal whether it
  /// does. Errors: kUsage if it may not be read; the message names it and the remedy.
  [[nodiscard]] Status admits(const std::filesystem::path& file) const;

 private:
  [[nodiscard]] Status check_promise(std::uint64_t bytes, std::string_view what) const;

  std::optional<std::filesystem::path> root_;  ///< Canonical path. If unset, any file is admitted; if empty, none.
  std::shared_ptr<Reading> reading_;           ///< Shared with the code that reports its progress.
};

/// A regular file, open for reading.
class OpenFile {
 public:
  /// Opens a file. It never blocks, and refuses pipes and devices. The opened file is the one that `scope` checked,
  /// even if links change meanwhile. Errors: kUsage if `scope` does not admit it; kData if it is missing, is not a
  /// regular file, cannot be read, or changed during the scope's reading; the message names it and the reason.
  static Result<OpenFile> open(const std::filesystem::path& file, const FileScope& scope = {});

  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&&) = delete;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }

  /// Returns the descriptor, which the caller must then close.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  OpenFile(int descriptor, std::uint64_t size) : descriptor_(descriptor), size_(size) {}

  int descriptor_;
  std::uint64_t size_;
};

/// Returns `most` bytes of the file from `offset`, or fewer if it ends first. Errors: those of OpenFile::open and
/// check_room.
Result<std::vector<std::byte>> read_bytes(const std::filesystem::path& file, const FileScope& scope = {},
                                          std::uint64_t most = kWholeFile, std::uint64_t offset = 0);

/// Fills `out` from byte `offset` of the file. Messages call it `name`. Errors: kData if it ends first or cannot be
/// read.
Status read_at(const OpenFile& file, std::uint64_t offset, std::span<std::byte> out, std::string_view name);

/// Returns a SHA-256 digest of the files' sizes and contents, in the given order, independent of their paths. Cost: 0.7
/// s for 1 GiB in the page cache, on a processor with SHA instructions. Errors: those of OpenFile::open, and kData if a
/// file cannot be read to its end.
Result<std::string> fingerprint_of(const std::vector<std::filesystem::path>& files, const FileScope& scope = {});

}  // namespace poprun::hostio
