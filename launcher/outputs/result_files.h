#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/outputs/folder_lock.h"
#include "launcher/outputs/growing_file.h"
#include "launcher/outputs/safetensors.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"

/// The files of a job:
///
///     DIR/weights.safetensors   final weights, complete or absent
///     DIR/outputs.npy           outputs of inference, complete or absent
///     DIR/dump-step-N.safetensors  tensors of a training step, or of the part that ran
///     DIR/metrics.csv           one row per step and evaluation, growing
///     DIR/profile.json          the Profile message, complete or absent
///     DIR/replicas.csv          the speed of each replica (replica_samples.h); not an "earlier result"
///     DIR/profile.pb            the same as profile.json, serialised; only by `poprun-emu profile`
///     DIR/trace.pftrace         by `poprun-emu profile`, and by runs with report.trace-steps (launcher/report)
///     DIR/memory.pickle, memory-tiles.pickle  by `poprun-emu profile` (launcher/report)
///     DIR/report.html           a page for a browser about all of this; not an "earlier result"
///     DIR/failure.txt           what each replica of a failed job did; not an "earlier result"
///     DIR/logs/replica-NN.log   what each replica wrote; not an "earlier result"
///
/// A check leaves the files above alone and writes its own:
///
///     DIR/check.json            findings of the last check that ended
///     DIR/check-failure.txt     like failure.txt
///     DIR/check-logs/           like logs/
///
/// A file that must be complete is first written as NAME.XXXXXXXX.part, where XXXXXXXX is random: two launchers on a
/// network file system without locks never write to the same file.
///
/// A write that fails, as on a full disk, returns kInfrastructure with the file's name and, if space is short, the
/// needed and the available space. A file that must be complete is then absent, and one that grows ends with a complete
/// line.
namespace poprun::launcher {

inline constexpr const char* kTraceFile = "trace.pftrace";

/// Names of the file and the folder that a run leaves in its output folder besides its results.
struct Traces {
  const char* logs;
  const char* failure;
};
Traces traces_of(const proto::RunConfig& config);

/// Creates the output folder and, in it, the folder `logs`, if they do not exist, and locks the output folder for this
/// job. Leaves the files of an earlier run in place, except results that were incomplete when that run was killed. With
/// `sets_aside`, moves failure.txt and the logs of an earlier attempt to the next free attempts/N, as far as possible.
/// `held` is the lock of an earlier attempt; if it is on this folder, the results there are this job's own. Errors:
/// kUsage if the folder cannot be created or written to, if another job has locked it, or if it contains results of an
/// earlier run and `overwrite` is false.
Result<FolderLock> take_output_folder(const std::string& folder, bool overwrite, std::string_view logs = "logs",
                                      bool sets_aside = false, FolderLock held = {});

/// Checks that `bytes` of weights fit into the space that this user can use on the disk of `folder`. The space of
/// earlier results counts as free, since they are removed first. Errors: kInfrastructure.
Status check_room(const std::string& folder, std::uint64_t bytes);

/// Removes the results of an earlier run, its failure.txt and, if `of_steps` is true, its dumps and trace. Keeps the
/// file `kept`, from which this job starts, and the logs, which the first new log removes. Errors: kInfrastructure if a
/// file cannot be removed; this is better discovered now than when the new result is complete.
Status clear_results(const std::string& folder, const std::string& kept, bool of_steps = true);

/// Writes `parts` one after the other to `path`. The file appears either complete or not at all and, once it has
/// appeared, survives a crash of the machine. If another thread sets `given_up` before that, the file does not appear.
Status write_whole_file(const std::string& path, const std::vector<std::string_view>& parts,
                        const std::atomic<bool>* given_up = nullptr);

std::string metrics_header();
/// Formats a row. Floats have 9 digits, so each float32 can be read back exactly. An evaluation's `split` is "test".
std::string metrics_row(const proto::StepMetrics& metrics);
std::string metrics_row(const proto::EvaluationMetrics& metrics);

/// Assembles weights, or a dump's tensors, from the chunks of a report.
class WeightsCollector {
 public:
  /// Adds a chunk. Errors: kBug if chunks of different tensors interleave, a type is unknown, or a size does not match
  /// the shape.
  Status take(const proto::TensorChunk& chunk);

  /// Drops the last tensor if it is incomplete. Returns the number of tensors.
  std::size_t keep_complete();

  void sort_by_name();

  /// Writes the tensors to a file. Errors: kBug if the last tensor is incomplete; also those of write_whole_file.
  [[nodiscard]] Status write(const std::string& path, const std::atomic<bool>* given_up = nullptr) const;

  [[nodiscard]] bool complete() const { return !open_; }

 private:
  std::vector<Tensor> tensors_;
  bool open_ = false;  ///< The last tensor is incomplete.
};

/// One log per replica, opened at the replica's first line. The first line of any replica removes the logs of an
/// earlier run. While the disk is full, a few lines of each log wait in memory, and further lines are only counted.
class ReplicaLogs {
 public:
  /// `disk` must outlive this.
  ReplicaLogs(DiskThread& disk, std::string folder, std::uint32_t replicas)
      : disk_(disk), folder_(std::move(folder)), replicas_(replicas) {}

  /// Returns a path such as `FOLDER/replica-05.log`, with enough digits for the names to sort by number.
  [[nodiscard]] std::string path(std::uint32_t replica) const;

  /// Adds a line, which the disk's thread writes soon.
  void write(std::uint32_t replica, std::string_view line);

  /// Writes the waiting lines; call this often. Errors: kInfrastructure, for the first log that cannot be written.
  Status flush();

  /// Begins to write all lines; call this at the end. Never waits.
  void hand_over();

 private:
  DiskThread& disk_;
  std::string folder_;
  std::uint32_t replicas_;
  std::map<std::uint32_t, GrowingFile> files_;  ///< Keyed by replica.
  bool waiting_ = false;                        ///< At least one log has a waiting line.
};

}  // namespace poprun::launcher
