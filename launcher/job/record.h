#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/job/world.h"
#include "launcher/options/options.h"
#include "launcher/outputs/checkpoint_files.h"
#include "launcher/outputs/job_results.h"
#include "launcher/outputs/replica_samples.h"
#include "launcher/outputs/result_files.h"
#include "launcher/outputs/tensorboard.h"
#include "launcher/placement/placement.h"
#include "launcher/report/run_trace.h"
#include "launcher/screen/console.h"
#include "launcher/screen/display.h"
#include "launcher/screen/output_router.h"
#include "launcher/verdict/job_state.h"
#include "launcher/verdict/post_mortem.h"
#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// Everything that a job displays and stores: its lines on the screen, the logs of its replicas, its results, and
/// the reason for its failure. This class belongs to the loop's thread.
class JobRecord {
 public:
  /// `folder` holds the lock on the output folder from one attempt to the next. All references must outlive this.
  JobRecord(World& world, const Options& options, const Placement& placement, Console& console, FolderLock& folder);

  /// Locks the output folder for this job, which resumes from `resumed` or starts from the beginning. `goes_on` says
  /// whether this same job wrote the folder's contents before an interruption. If it did, or if `is_restart` is true,
  /// the earlier logs and failure.txt are set aside. Errors: those of take_output_folder.
  Status take_folder(const std::optional<Checkpoint>& resumed, bool goes_on, bool is_restart);

  /// Returns the number of this attempt, counted over all jobs that used the output folder.
  [[nodiscard]] std::uint64_t epoch() const { return folder_.epoch(); }

  /// Prepares the trace, if one was requested, of a job that resumes from `resumed`. `is_traced` says that an earlier
  /// attempt wrote it.
  void prepare_trace(const std::optional<Checkpoint>& resumed, bool is_traced);
  /// Returns whether all steps to be traced have been.
  [[nodiscard]] bool has_trace() const { return trace_ && trace_->complete(); }

  /// Prepares the event file for TensorBoard, if one was requested, for a job that resumes from `resumed`. Requires:
  /// take_folder has succeeded. Errors: kUsage if its folder cannot be created.
  Status prepare_tensorboard(const std::optional<Checkpoint>& resumed);

  /// Begins a log for every replica of the instance. The first line of each log states where the replica runs.
  void begin_logs(std::uint32_t instance, const InstanceView& view);

  /// Writes an item of a report to its file, and to the screen if `shows` is true.
  Status take(const proto::ReportItem& item, bool shows, double now);
  /// Ends the report. The profile contains `goodput`, if it is given.
  Status finish_report(const std::optional<proto::Goodput>& goodput) { return results_.finish(goodput); }
  [[nodiscard]] const JobResults& results() const { return results_; }
  /// Returns whether more dumps may come. A replica is at most a step ahead of replica 0, whose metrics may be delayed.
  [[nodiscard]] bool dumps_may_come() const { return results_.awaits_dumps(steps() + 2); }

  /// Takes the replicas' counters in a heartbeat.
  void take(const proto::Beat& beat, double now) { samples_.take(beat, epoch(), now); }

  /// Returns the router of mpirun's output. The router holds some lines back until it is clear whether something has
  /// failed.
  OutputRouter& mpirun_output() { return router_; }
  [[nodiscard]] std::string logs_folder() const { return results_.path(traces_of(options_.config).logs); }

  /// Returns what a job that was asked to stop is waiting for.
  [[nodiscard]] std::string awaited(const JobState& state, double now) const;
  /// Shows, at intervals, what such a job is waiting for.
  void tell_stopping(const JobState& state, double now) { display_.stopping(awaited(state, now), now); }
  /// Returns the progress of the job so far, as a clause whose subject is "it".
  [[nodiscard]] std::string how_far(const JobState& state) const;

  /// Updates the screen and the files. If the disk does not accept the data, informs the user; the next call retries.
  void refresh(double now);

  [[nodiscard]] const Progress& progress() const { return display_.progress(); }
  [[nodiscard]] std::uint64_t steps() const { return display_.progress().steps(); }
  [[nodiscard]] std::uint64_t total_steps() const { return display_.progress().total_steps(); }

  /// Prints why the job failed. If any instance had joined, also writes failure.txt, except after a usage error.
  void tell(const Verdict& verdict, const JobState& state, double now);

  /// Calls `done` on the disk's thread once everything posted before this call has been written.
  void when_written(std::function<void()> done);
  /// Returns whether the disk has a write in progress.
  [[nodiscard]] bool is_writing() const { return disk_->busy_seconds() > 0; }

  /// Completes all files at the very end. Prints the summary of a complete job or, for a check, the results so far.
  /// `ended_early` says whether the job was asked to end. `checkpoints` is the summary's line about checkpoints.
  void close(bool ended_early, const std::string& checkpoints);

 private:
  void write_failure(const Verdict& verdict, const JobState& state, double now);
  [[nodiscard]] std::string check_files_text() const;
  void write_trace();
  void close_trace();
  void tell_of_disk(const Status& written, double now);

  const Options& options_;
  const Placement& placement_;
  Console& console_;
  FolderLock& folder_;
  Display display_;
  std::unique_ptr<DiskThread> disk_;
  JobResults results_;
  std::optional<TensorboardFile> tensorboard_;
  std::optional<RunTrace> trace_;          ///< Set if this attempt traces steps.
  std::optional<GrowingFile> trace_file_;  ///< Set once the trace is being written.
  ReplicaLogs logs_;
  ReplicaSamples samples_;
  OutputRouter router_;
  std::optional<double> disk_told_at_;  ///< Time of the last note on a failed write.
  bool disk_full_ = false;
};

}  // namespace poprun::launcher
