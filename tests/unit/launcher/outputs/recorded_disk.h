#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

/// What this process does to the files below one folder, and what a disk may contain if the machine crashes meanwhile.
/// The definitions of open, pwrite, fsync, rename ... in recorded_disk.cc take the place of the C library's in this
/// program, for its own code and for the C++ library's; they call those of the C library and take notes.
namespace poprun::testing {

class RecordedDisk {
 public:
  /// Begins to record. Only one object may exist at a time.
  explicit RecordedDisk(std::string root);
  RecordedDisk(const RecordedDisk&) = delete;
  RecordedDisk& operator=(const RecordedDisk&) = delete;
  ~RecordedDisk();

  /// Returns the number of calls so far. A crash after n calls is one whose last completed call is the n-th.
  [[nodiscard]] std::size_t calls() const { return calls_.size(); }

  /// Writes to `to`, which must not exist, what a crash after `count` calls may leave. Of a file, everything up to its
  /// last fsync is there, and of the later writes a prefix, the last one perhaps in part. Of a folder, everything up to
  /// its last fsync is there, and of the later new, renamed and removed names a prefix. Files and folders lose
  /// independently of each other, as POSIX allows. `random` chooses the prefixes.
  void crash(std::size_t count, std::mt19937_64& random, const std::string& to) const;

  /// Writes to `to`, which must not exist, what the calls did.
  void copy(const std::string& to) const;

  // For the replaced functions.
  struct Call {
    enum class Kind : std::uint8_t { kCreate, kRemove, kRename, kExchange, kWrite, kResize, kSync } kind;
    std::uint64_t node = 0;  ///< The file or folder that is written, synced or, for names, contains the name.
    std::string name = {};
    std::string to = {};      ///< kRename, kExchange: the other name in the same folder.
    std::uint64_t child = 0;  ///< kCreate: the new file or folder.
    bool is_folder = false;
    std::uint64_t offset = 0;  ///< kResize: the size.
    std::string bytes = {};
  };
  void add(Call call) { calls_.push_back(std::move(call)); }
  [[nodiscard]] bool covers(const std::string& path) const;
  /// Returns the number of the file or folder at `path`; `is_new` gives it a new one.
  std::uint64_t node_at(const std::string& path, bool is_new = false);
  std::uint64_t node_of(int file);

 private:
  struct Image;
  void write(const Image& image, std::uint64_t node, const std::string& to) const;

  std::string root_;
  std::vector<Call> calls_;
  std::map<std::uint64_t, std::uint64_t> nodes_;  ///< Keyed by inode number, which file systems use again.
  std::uint64_t next_ = 1;
};

}  // namespace poprun::testing
