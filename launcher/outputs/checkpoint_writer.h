#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/outputs/checkpoint_files.h"
#include "launcher/outputs/folder_lock.h"
#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Assembles checkpoints on the disk from the replicas' parts, one checkpoint at a time, and removes old ones. Bytes
/// are not buffered, but written to their final place as they arrive. The object belongs to one thread, which may block
/// on the disk.
class CheckpointWriter {
 public:
  struct Setup {
    std::string folder;   ///< Created with the first checkpoint.
    std::string metrics;  ///< The job's metrics.csv, which grows while checkpoints are taken.
    std::uint32_t keep = 1;
    bool may_replace = false;  ///< Whether to replace checkpoints of other jobs (--overwrite).
  };
  /// The outcome of a part, which is also the outcome of its whole checkpoint.
  enum class Outcome : std::uint8_t {
    kStored,
    kFailed,      ///< The disk did not accept the part; it may be sent again.
    kRefused,     ///< The folder belongs to another job, so retries would also fail.
    kSuperseded,  ///< Replaced by a later checkpoint, or by the same part sent again.
  };
  using Done = std::function<void(Outcome)>;

  struct Stored {
    std::uint64_t step = 0;
    std::uint64_t bytes = 0;
    double seconds = 0;  ///< Wall time from the arrival of the first part.
  };
  /// Called with a complete checkpoint, or with the reason why it could not be stored.
  using News = std::function<void(std::uint64_t step, const Result<Stored>&)>;

  CheckpointWriter(Setup setup, News news);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();

  /// Locks the folder against other jobs, and removes interrupted checkpoints. Errors: kUsage if the folder cannot be
  /// created or written to, is locked, or has checkpoints of another job that this job may not replace.
  Status take_folder();

  /// Declares that the existing checkpoints are this job's own and, unless `whole` is 0, that the checkpoint after step
  /// `whole` has been read and is intact. Call this before the first part.
  void go_on(std::uint64_t whole) {
    goes_on_ = true;
    if (whole > 0) {
      whole_.insert(whole);
    }
  }

  /// Sets the number of steps of the job. No checkpoint of a later step is stored. Threads: any.
  void limit_to(std::uint64_t total_steps) { total_steps_ = total_steps; }

  /// Sets what every manifest contains besides its step. Call before the first part.
  void identify(const proto::CheckpointManifest& identity) { identity_ = identity; }

  /// Begins a part. `done` is called once.
  void begin(const proto::StatePart& part, Done done);
  void write(std::uint32_t replica, std::string_view bytes);
  void end(std::uint32_t replica);
  /// Drops a part whose stream was cut off, together with its checkpoint.
  void cancel(std::uint32_t replica);

  /// Returns whether this job has stored a checkpoint. Threads: any.
  [[nodiscard]] bool has_stored() const { return has_stored_; }

  /// Returns the step of the latest checkpoint whose parts have all begun to arrive. Returns 0 before the first such
  /// checkpoint, and after a checkpoint that was not stored. Threads: any.
  [[nodiscard]] std::uint64_t begun() const { return begun_; }

  /// Sets whether metrics.csv cannot be written now, for example because the disk is full. While `held` is true, no
  /// checkpoint waits for rows. Threads: any.
  void hold_metrics(bool held) { metrics_held_ = held; }

  /// Declares metrics.csv complete. A checkpoint that waits for more rows is then dropped without `News`. Threads: any.
  void no_more_metrics() { metrics_ended_ = true; }

 private:
  struct Part {
    std::uint32_t replica = 0;
    std::vector<proto::StateSlice> slices;
    std::size_t slice = 0;      ///< Index of the slice being written.
    std::uint64_t written = 0;  ///< Bytes of this slice written so far.
    bool ended = false;
    Done done;
  };
  struct Open {
    std::uint64_t step = 0;
    std::uint32_t parts_expected = 0;
    proto::HostState host;
    std::vector<proto::StateVariable> variables;
    std::vector<std::uint64_t> begins;  ///< Offset of each variable in the file.
    std::vector<std::uint64_t> bytes;   ///< Size of each variable.
    std::vector<Part> parts;
    int file = -1;
    double began = 0;
    Status status;  ///< The first error.
  };

  [[nodiscard]] std::string part_folder(std::uint64_t step) const;
  Part* find(std::uint32_t replica);
  [[nodiscard]] Status check_part(const proto::StatePart& part) const;
  void open_checkpoint(const proto::StatePart& part);
  [[nodiscard]] Status check_coverage() const;
  Status create_state_file(const proto::StatePart& part);
  Status close_state_file();
  Status complete();
  Status write_manifest(const std::string& folder);
  Status await_metrics(const std::string& to) const;
  Status take_name(const std::string& folder) const;
  void settle(Outcome outcome);
  void drop();
  void prune();
  bool make_room();

  Setup setup_;
  News news_;
  proto::CheckpointManifest identity_;
  bool goes_on_ = false;           ///< Existing checkpoints are this job's own.
  std::set<std::uint64_t> whole_;  ///< Steps of the checkpoints that this job has stored or read.
  std::optional<FolderLock> lock_;
  std::atomic<std::uint64_t> total_steps_ = 0;  ///< 0 until known.
  std::optional<Open> open_;
  std::atomic<std::uint64_t> begun_ = 0;
  std::atomic<bool> metrics_held_ = false;
  std::atomic<bool> metrics_ended_ = false;
  std::atomic<bool> has_stored_ = false;
  std::uint64_t stored_bytes_ = 0;  ///< Size on disk of the checkpoint in progress.
};

}  // namespace poprun::launcher
