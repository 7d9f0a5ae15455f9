#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hostio/formats/reading.h"
#include "replica/base/error.h"

/// Files of datasets, opened so that neither a link nor a pipe in their place does harm.
namespace poprun::hostio {

/// Checks that this host has memory for `bytes` more, beside those that are `promised` to others. A
/// few are always taken for granted.
///
/// Errors
///   kData  it does not, with the shortage; `what` needs them.
Status check_room(std::string_view what, std::uint64_t bytes, std::uint64_t promised = 0);

inline constexpr std::uint64_t kWholeFile = std::numeric_limits<std::uint64_t>::max();

/// Which files may be read, and the reading that is under way. A value.
class FileScope {
 public:
  FileScope() = default;  ///< Any file.

  /// Files below `root`, wherever links lead.
  ///
  /// Errors
  ///   kUsage  `root` is no folder.
  static Result<FileScope> below(const std::filesystem::path& root);

  static FileScope nothing();

  /// The same scope, for one pass over the files of a dataset.
  [[nodiscard]] FileScope during(std::shared_ptr<Reading> reading) const;
  /// Any file, in the same reading.
  [[nodiscard]] FileScope unrestricted() const { return FileScope().during(reading_); }
  /// Null outside of a reading.
  [[nodiscard]] Reading* reading() const { return reading_.get(); }

  /// Records work done (Reading::advance).
  void advance(std::uint64_t bytes) const;

  /// Resizes a vector of bytes that `what` needs. Readings at the same time do not count on the
  /// same free memory.
  ///
  /// Errors: those of check_room.
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
  /// Whether the file or folder may be read. It need not exist, and nothing is told of whether it
  /// does.
  ///
  /// Errors
  ///   kUsage  it may not; names it and the remedy.
  [[nodiscard]] Status admits(const std::filesystem::path& file) const;

 private:
  [[nodiscard]] Status check_promise(std::uint64_t bytes, std::string_view what) const;

  std::optional<std::filesystem::path> root_;  ///< Canonical; empty: no file at all.
  std::shared_ptr<Reading> reading_;           ///< Shared with whoever asks for its progress.
};

/// A regular file, open for reading.
class OpenFile {
 public:
  /// Never waits: a pipe or a device is refused, not opened. What was opened is what `scope` was
  /// asked about, also where somebody moves links meanwhile.
  ///
  /// Errors
  ///   kData   it is missing, no regular file, cannot be read, or changed during the reading of
  ///           `scope`; names it and the reason.
  ///   kUsage  `scope` does not admit it.
  static Result<OpenFile> open(const std::filesystem::path& file, const FileScope& scope = {});

  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&&) = delete;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }

  /// The descriptor, which is then the caller's to close.
  int release();

 private:
  OpenFile(int descriptor, std::uint64_t size) : descriptor_(descriptor), size_(size) {}

  int descriptor_;
  std::uint64_t size_;
};

/// `most` bytes of the file from `offset` on, fewer where it ends before.
///
/// Errors: those of OpenFile::open and check_room.
Result<std::vector<std::byte>> read_bytes(const std::filesystem::path& file,
                                          const FileScope& scope = {},
                                          std::uint64_t most = kWholeFile,
                                          std::uint64_t offset = 0);

/// Fills `out` from byte `offset` of the file on. `name` is the file's in messages.
///
/// Errors
///   kData  the file ends before, or cannot be read.
Status read_at(const OpenFile& file, std::uint64_t offset, std::span<std::byte> out,
               std::string_view name);

}  // namespace poprun::hostio
