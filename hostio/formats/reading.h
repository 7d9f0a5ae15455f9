#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <sys/stat.h>

#include "replica/base/error.h"

namespace poprun::hostio {

/// One pass over the files of a dataset: records which files it opened, rejects files that change during the pass, and
/// counts its progress. Threads: one thread reads; any thread may ask for the progress.
class Reading {
 public:
  /// State shared by all readings of a data server.
  struct Shared {
    std::atomic<std::uint64_t> work = 0;  ///< Sum of the readings' work().
    std::mutex mutex;
    std::uint64_t promised = 0;  ///< Memory about to be allocated; guarded by the mutex.
  };

  explicit Reading(std::shared_ptr<Shared> shared = std::make_shared<Shared>()) : shared_(std::move(shared)) {}

  /// Records an open file. Errors: kData if it is not the one that this reading opened earlier under the same name.
  Status opened(const std::filesystem::path& file, const struct stat& facts);

  /// Checks that no opened file has changed. Errors: kData if one was replaced, written to or removed; the message
  /// names it.
  [[nodiscard]] Status check_unchanged() const;

  /// The files opened so far, in the order of their paths.
  [[nodiscard]] std::vector<std::filesystem::path> files() const;

  void begin() { has_begun_ = true; }
  [[nodiscard]] bool has_begun() const { return has_begun_; }

  /// Adds this many bytes to the expected work, which already includes the files.
  void expect(std::uint64_t bytes) { expected_ += bytes; }
  /// Records work done. Liveness depends on these calls: make one at least every 16 MiB.
  void advance(std::uint64_t bytes) {
    work_ += bytes;
    shared_->work += bytes;
  }

  /// Bytes read and produced so far. The number rises as long as the reading makes progress.
  [[nodiscard]] std::uint64_t work() const { return work_; }
  /// Estimate of the percentage done, 0 to 99, which never falls.
  [[nodiscard]] unsigned percent() const;

  /// Memory that a reading is about to allocate, recorded so that other readings do not claim it.
  class Promise {
   public:
    Promise(Reading& reading, std::uint64_t bytes) : reading_(reading), rest_(bytes) {}
    Promise(const Promise&) = delete;
    Promise& operator=(const Promise&) = delete;
    ~Promise() { reading_.release(rest_); }

    /// Records that this many of the bytes have been allocated.
    void taken(std::uint64_t bytes) {
      rest_ -= bytes;
      reading_.release(bytes);
      reading_.expect(bytes);
      reading_.advance(bytes);
    }

   private:
    Reading& reading_;
    std::uint64_t rest_;
  };

  /// Promises `bytes` more if `check` accepts the sum promised so far. The caller then creates a Promise of that size.
  template <typename Check>
  Status promise(std::uint64_t bytes, const Check& check) {
    const std::lock_guard lock(shared_->mutex);
    POPRUN_TRY(check(shared_->promised));
    shared_->promised += bytes;
    return {};
  }

 private:
  /// Identity and age of a file's contents.
  struct Stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    std::int64_t modified_ns;
    std::int64_t changed_ns;

    bool operator==(const Stamp&) const = default;
  };

  void release(std::uint64_t bytes) {
    const std::lock_guard lock(shared_->mutex);
    shared_->promised -= bytes;
  }

  static Stamp stamp_of(const struct stat& facts);

  std::shared_ptr<Shared> shared_;  ///< Shared by the readings of a server, which may outlive it.
  std::map<std::filesystem::path, Stamp> files_;
  std::atomic<bool> has_begun_ = false;
  std::atomic<std::uint64_t> expected_ = 0;
  std::atomic<std::uint64_t> work_ = 0;
  mutable std::atomic<unsigned> percent_ = 0;  ///< The highest percentage so far.
};

}  // namespace poprun::hostio
