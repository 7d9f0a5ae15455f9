#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "replica/base/error.h"

/// Files of datasets, opened so that neither a link nor a pipe in their place does harm.
namespace poprun::hostio {

/// Which files may be read. A value.
class FileScope {
 public:
  FileScope() = default;  ///< Any file.

  /// Files below `root`, wherever links lead.
  ///
  /// Errors
  ///   kUsage  `root` is no folder.
  static Result<FileScope> below(const std::filesystem::path& root);

  static FileScope nothing();

  /// The same scope, which adds to `files` what is opened in it.
  [[nodiscard]] FileScope noting(std::shared_ptr<std::set<std::filesystem::path>> files) const;
  void note(const std::filesystem::path& file) const;

  /// Whether the file or folder may be read. It need not exist, and nothing is told of whether it
  /// does.
  ///
  /// Errors
  ///   kUsage  it may not; names it and the remedy.
  [[nodiscard]] Status admits(const std::filesystem::path& file) const;

 private:
  std::optional<std::filesystem::path> root_;               ///< Canonical; empty: no file at all.
  std::shared_ptr<std::set<std::filesystem::path>> noted_;  ///< Null: nobody asks.
};

/// A regular file, open for reading.
class OpenFile {
 public:
  /// Never waits: a pipe or a device is refused, not opened. What was opened is what `scope` was
  /// asked about, also where somebody moves links meanwhile.
  ///
  /// Errors
  ///   kData   it is missing, no regular file, or cannot be read; names it and the reason.
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

/// Whether this host has memory for `bytes` more. A few are always taken for granted.
///
/// Errors
///   kData  it has not, with the shortage; `what` needs them.
Status check_room(std::string_view what, std::uint64_t bytes);

}  // namespace poprun::hostio
