#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/outputs/growing_file.h"
#include "launcher/outputs/npy.h"
#include "launcher/outputs/result_files.h"
#include "proto/coordinator.pb.h"
#include "proto/profile.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Writes the reports of one job's instances to the files of result_files.h. A disk that accepts no data, or hangs,
/// does not stop the job: pending data waits in memory, and the write is retried. The memory is bounded. Weights may
/// take 8 B for each parameter in the job's announced shape, plus 64 MiB for names, shapes and running statistics. The
/// requested steps limit the dumps, and the plan of a check limits its runs. Exceeding these bounds is a bug.
///
/// Errors of all functions: kBug if the report contradicts itself; kInfrastructure if inference cannot write outputs.
class JobResults {
 public:
  /// `disk` and `config` must outlive this. `folder` must exist when the first item arrives.
  JobResults(DiskThread& disk, std::string folder, const proto::RunConfig& config);

  [[nodiscard]] std::string path(std::string_view name) const;

  /// Resumes from a checkpoint. When the first result arrives, the folder receives the checkpoint's metrics and keeps
  /// the dumps of steps up to `step`. Call this before the first item.
  void go_on_from(const std::string& checkpoint, std::uint64_t step);

  /// Sets a check (FolderLock::check), which runs on the disk's thread, and must succeed before weights or outputs get
  /// their final names.
  void fence(std::function<Status()> check) { fence_ = std::move(check); }

  /// Makes a check also write a certificate to `path`. `command` is the command that ran the check.
  void certify(std::string path, std::string command) { certificate_ = {std::move(path), std::move(command)}; }

  /// Takes an item. The first item after the shape removes the results of an earlier run, so a job that fails before
  /// that destroys nothing. A check removes no results. Errors: also kInfrastructure, if the disk has no room for the
  /// weights, or an earlier result cannot be removed.
  Status take(const proto::ReportItem& item);

  /// Flushes the metrics and complete dumps taken so far to their files, where other programs can read them. Retries
  /// failed writes. Call this often. `now` is in seconds of a monotonic clock. Errors: kInfrastructure if the disk does
  /// not accept the data.
  Status refresh(double now);

  /// Begins to write all metrics; call this at the end of any job. Never waits.
  void hand_over();

  /// Returns whether, after `refresh`, rows of metrics.csv still wait in memory because the disk does not accept them.
  [[nodiscard]] bool metrics_wait() const { return metrics_refused_ && !saving_; }

  /// Ends the report, and begins to write weights or outputs, then pending metrics, then the profile, to which it adds
  /// `goodput`. Writes nothing if no profile has arrived, because the report came from a different instance or was cut
  /// off.
  Status finish(const std::optional<proto::Goodput>& goodput = std::nullopt);

  /// Returns whether the whole report has arrived; its files may not be complete on disk yet.
  [[nodiscard]] bool reported() const { return saving_.has_value(); }
  [[nodiscard]] bool complete() const { return saving_ && saving_->done(); }
  /// Returns why the last attempt to write the files failed, or nothing if they are complete or no attempt has failed.
  [[nodiscard]] std::optional<Error> save_failure() const { return saving_ ? saving_->failure() : std::nullopt; }
  /// Returns the whole job's profile. Requires: `reported`, and the job is not a check.
  [[nodiscard]] const proto::Profile& profile() const { return *profile_; }
  [[nodiscard]] const proto::CheckReport& check() const { return check_; }
  /// In inference, returns the number of items whose outputs have been written.
  [[nodiscard]] std::uint64_t items_written() const { return outputs_ ? outputs_->rows.load() : 0; }

  /// Returns whether any dump of a step up to `step` has yet to arrive or to be completed.
  [[nodiscard]] bool awaits_dumps(std::uint64_t step) const {
    return !report_over_ && !dumps_due_.empty() && *dumps_due_.begin() <= step;
  }

  /// Writes the remaining dumps, even incomplete ones. Call this when nothing more will arrive. Returns one line per
  /// file and, if the job ended after step `ended_after`, one line for requested steps that were not dumped.
  std::vector<std::string> settle_dumps(std::optional<std::uint64_t> ended_after);

 private:
  /// Outputs of inference, which the disk's thread writes.
  struct Outputs {
    std::optional<NpyFile> file;
    std::atomic<std::uint64_t> rows = 0;
    std::atomic<std::uint64_t> waiting_bytes = 0;
  };
  struct Dump {
    std::shared_ptr<WeightsCollector> tensors = std::make_shared<WeightsCollector>();
    std::shared_future<Status> writing = {};
  };

  /// Runs a task on the disk. If the disk is slow, returns early; `broken_` then gets any error of the task.
  Status on_disk(DiskThread::Task task);
  void look_at_disk();
  Status check_room_for_weights();
  Status begin();
  void append_metrics(const std::string& row);
  Status take_output(const proto::OutputPiece& piece);
  Status take_weights(const proto::TensorChunk& chunk);
  Status take_dump(const proto::DumpedChunk& dumped);
  Status take_run(const proto::CheckedRun& run);
  Status begin_check(const proto::CheckPlan& plan);
  void finish_check();
  Status write_dump(std::uint64_t step, Dump& dump);
  Status write_dumps(std::uint64_t up_to_step);
  Status write_complete_files(const std::atomic<bool>& given_up);

  DiskThread& disk_;
  std::string folder_;
  const proto::RunConfig& config_;
  std::deque<std::shared_future<Status>> late_;  ///< Tasks that were not done in time.
  std::optional<Error> broken_;                  ///< The first error of such a task.
  std::string resumed_;                          ///< Folder of the checkpoint that the job resumes from, or empty.
  std::function<Status()> fence_ = [] { return Status{}; };
  bool begun_ = false;                  ///< The first result has arrived.
  std::optional<GrowingFile> metrics_;  ///< Set when the first row arrives.
  bool metrics_wait_ = false;           ///< Rows may wait in memory.
  bool metrics_refused_ = false;        ///< The disk did not accept the rows.
  WeightsCollector weights_;
  std::uint64_t parameters_ = 0;         ///< Parameters in the announced shape; 0 before it arrives.
  std::uint64_t weight_bytes_ = 0;       ///< Bytes of weights received.
  std::map<std::uint64_t, Dump> dumps_;  ///< Keyed by step, until written to the disk.
  std::uint64_t last_step_ = 0;          ///< The last completed step.
  double dumps_failed_at_ = 0;
  std::set<std::uint64_t> dumps_due_;  ///< Steps whose dumps are not written yet.
  std::shared_ptr<Outputs> outputs_;   ///< Set when the first piece arrives.
  std::optional<proto::Profile> profile_;
  proto::CheckReport check_;
  struct {
    std::string path;  ///< Empty: no certificate.
    std::string command;
  } certificate_;
  bool report_over_ = false;
  bool main_file_written_ = false;
  std::optional<Saving> saving_;  ///< Must be the last member: its thread reads the members above.
};

}  // namespace poprun::launcher
