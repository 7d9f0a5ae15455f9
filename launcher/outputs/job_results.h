#pragma once

#include <atomic>
#include <cstdint>
#include <map>
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

/// What the instances of one job report, on its way into the files of result_files.h. A disk that
/// takes nothing stops nobody: what is due waits in memory and is tried again.
///
/// What waits there is bounded: weights by 8 B for each parameter that the job's shape announced
/// and 64 MiB for all else that they hold, dumps by the steps that were asked for, runs of a check
/// by its plan. More is a bug of whoever sends it.
///
/// Errors, from any call: kBug where the report contradicts itself; of inference, kInfrastructure
/// where outputs cannot be written.
class JobResults {
 public:
  /// `config` must outlive this. `folder` need not be there before the first item comes.
  JobResults(std::string folder, const proto::RunConfig& config);

  [[nodiscard]] std::string path(std::string_view name) const;

  /// The job goes on from a checkpoint: its metrics are in the folder once a first result comes,
  /// and what was dumped up to its step stays. Before the first item.
  void go_on_from(const std::string& checkpoint, std::uint64_t step);

  /// The first result clears those of an earlier run away: a job that never comes so far costs
  /// nobody anything. Errors: also kInfrastructure, there is no room for the weights to come, or an
  /// earlier result cannot be removed.
  Status take(const proto::ReportItem& item);

  /// To be called often, `now` in seconds of a clock that never jumps: brings what was taken so far
  /// to where others can read it. Errors: kInfrastructure, the disk does not take it.
  Status refresh(double now);

  /// After `refresh`: rows of metrics.csv wait in memory, since the disk does not take them.
  [[nodiscard]] bool metrics_wait() const { return metrics_wait_ && !saving_; }

  /// The report is over: begins to write weights or outputs, then the metrics that wait, then the
  /// profile. Nothing where no profile came: the report was another instance's, or broke off.
  Status finish();

  /// Everything of the job came: nothing is missing but the disk's word.
  [[nodiscard]] bool reported() const { return saving_.has_value(); }
  /// All files are complete on disk.
  [[nodiscard]] bool complete() const { return saving_ && saving_->done(); }
  /// Why they are not yet, where they were tried.
  [[nodiscard]] std::optional<Error> save_failure() const {
    return saving_ ? saving_->failure() : std::nullopt;
  }
  /// The whole job's profile. Requires: reported, and the job is no check.
  [[nodiscard]] const proto::Profile& profile() const { return *profile_; }
  /// What a check found so far.
  [[nodiscard]] const proto::CheckReport& check() const { return check_; }
  /// In inference: how many items' outputs are written.
  [[nodiscard]] std::uint64_t items_written() const;

  /// Whether a dump of a step up to `step` is yet to come or to be completed.
  [[nodiscard]] bool awaits_dumps(std::uint64_t step) const {
    return !report_over_ && !dumps_due_.empty() && *dumps_due_.begin() <= step;
  }

  /// Nothing more will come: writes what came of a step that did not end. A line for each such
  /// file and, where the job ended after step `ended_after`, one for the steps that it never began.
  std::vector<std::string> settle_dumps(std::optional<std::uint64_t> ended_after);

 private:
  [[nodiscard]] Status check_room_for_weights() const;
  Status begin();
  void append_metrics(const std::string& row);
  Status take_output(const proto::OutputPiece& piece);
  Status take_weights(const proto::TensorChunk& chunk);
  Status take_dump(const proto::DumpedChunk& dumped);
  Status take_run(const proto::CheckedRun& run);
  Status begin_check(const proto::CheckPlan& plan);
  void finish_check();
  Status write_dumps(std::uint64_t up_to_step);
  Status write_complete_files(const std::atomic<bool>& given_up);

  std::string folder_;
  const proto::RunConfig& config_;
  std::string resumed_;                 ///< The folder of a checkpoint, if it goes on from one.
  bool begun_ = false;                  ///< A first result came.
  std::optional<GrowingFile> metrics_;  ///< From the first row on.
  bool metrics_wait_ = false;
  WeightsCollector weights_;
  std::uint64_t parameters_ = 0;                     ///< Announced, 0 before that.
  std::uint64_t weight_bytes_ = 0;                   ///< That came.
  std::map<std::uint64_t, WeightsCollector> dumps_;  ///< By step, until it is on the disk.
  std::uint64_t last_step_ = 0;                      ///< That is over.
  double dumps_failed_at_ = 0;
  std::set<std::uint64_t> dumps_due_;  ///< Steps whose dump is not written yet.
  std::optional<NpyFile> outputs_;     ///< From the first piece on.
  std::optional<proto::Profile> profile_;
  proto::CheckReport check_;
  bool report_over_ = false;
  bool main_file_written_ = false;
  std::optional<Saving> saving_;  ///< The last member: its thread reads those above.
};

}  // namespace poprun::launcher
