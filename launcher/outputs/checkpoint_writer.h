#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/outputs/checkpoint_files.h"
#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Puts checkpoints together on the disk from the parts of replicas, one checkpoint at a time, and
/// removes old ones. Holds no state: what comes is written where it belongs. Belongs to one thread,
/// which waits for the disk.
class CheckpointWriter {
 public:
  struct Setup {
    std::string folder;   ///< Made with the first checkpoint.
    std::string metrics;  ///< The job's metrics.csv, which grows while checkpoints are taken.
    std::uint32_t keep = 1;
    bool may_replace = false;  ///< Checkpoints of other jobs (--overwrite).
  };
  /// What came of a part, with its checkpoint.
  enum class Outcome : std::uint8_t {
    kStored,
    kFailed,      ///< The disk did not take it; it may be sent again.
    kRefused,     ///< The folder is not this job's, and will not be.
    kSuperseded,  ///< A later one, or the same once more, took its place.
  };
  using Done = std::function<void(Outcome)>;

  struct Stored {
    std::uint64_t step = 0;
    std::uint64_t bytes = 0;
    double seconds = 0;  ///< Wall, from its first part on.
  };
  /// Called when a checkpoint is whole, or why the disk did not take it.
  using News = std::function<void(std::uint64_t step, const Result<Stored>&)>;

  CheckpointWriter(Setup setup, News news);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();

  /// Takes the folder for this job, which another of this machine may have, and removes what broke
  /// off there. Errors: kUsage, it cannot be made, written to, is taken, or holds checkpoints of
  /// another job that this one may not replace.
  Status take_folder();

  /// Checkpoints that are there are this job's own. Before the first part.
  void go_on() { goes_on_ = true; }

  /// What every manifest says besides its step. Before the first part.
  void identify(const proto::CheckpointManifest& identity) { identity_ = identity; }

  /// A part begins. `done` is called once.
  void begin(const proto::StatePart& part, Done done);
  /// The next bytes of a replica's part.
  void write(std::uint32_t replica, std::string_view bytes);
  /// The part is over.
  void end(std::uint32_t replica);
  /// It broke off, and with it the checkpoint.
  void cancel(std::uint32_t replica);

  /// Whether this job has stored one. From any thread.
  [[nodiscard]] bool has_stored() const { return has_stored_; }

  /// The step of the checkpoint under way, once all of its parts have begun to come; 0: none. From
  /// any thread.
  [[nodiscard]] std::uint64_t begun() const { return begun_; }

  /// Whether metrics.csv takes no rows now, as on a full disk: then a checkpoint does not wait for
  /// any. From any thread.
  void hold_metrics(bool held) { metrics_held_ = held; }

  /// metrics.csv has all rows that it will get: a checkpoint that waits for more is none, and of
  /// that there are no news. From any thread.
  void no_more_metrics() { metrics_ended_ = true; }

 private:
  struct Part {
    std::uint32_t replica = 0;
    std::vector<proto::StateSlice> slices;
    std::size_t slice = 0;      ///< That is being written,
    std::uint64_t written = 0;  ///< and how much of it.
    bool ended = false;
    Done done;
  };
  struct Open {
    std::uint64_t step = 0;
    std::uint32_t parts_expected = 0;
    proto::HostState host;
    std::vector<std::uint64_t> begins;  ///< In the file, by variable.
    std::vector<std::uint64_t> bytes;   ///< By variable.
    std::vector<Part> parts;
    int file = -1;
    double began = 0;
    Status status;  ///< The first thing that went wrong.
  };

  [[nodiscard]] std::string part_folder(std::uint64_t step) const;
  Part* find(std::uint32_t replica);
  void open_checkpoint(const proto::StatePart& part);
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
  bool goes_on_ = false;  ///< Checkpoints that are there are this job's own.
  int lock_ = -1;         ///< The open and locked folder.
  std::optional<Open> open_;
  std::atomic<std::uint64_t> begun_ = 0;
  std::atomic<bool> metrics_held_ = false;
  std::atomic<bool> metrics_ended_ = false;
  std::atomic<bool> has_stored_ = false;
  std::uint64_t stored_bytes_ = 0;  ///< What the one under way takes on the disk.
};

}  // namespace poprun::launcher
