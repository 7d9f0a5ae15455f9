#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/outputs/npy.h"
#include "launcher/outputs/result_files.h"
#include "proto/coordinator.pb.h"
#include "proto/profile.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// What the instances of one job report, on its way into the files of result_files.h.
///
/// Errors, from any call: those of the files; kBug where the report contradicts itself.
class JobResults {
 public:
  /// `config` must outlive this. `folder` need not be there before the first item comes.
  JobResults(std::string folder, const proto::RunConfig& config);

  [[nodiscard]] std::string path(std::string_view name) const;

  /// The first result clears those of an earlier run away: a job that never comes so far costs
  /// nobody anything.
  Status take(const proto::ReportItem& item);

  /// The metrics taken so far are where others can read them.
  Status flush();

  /// The report is over: writes weights or outputs, and the profile. Nothing where no profile came:
  /// the report was another instance's, or broke off.
  Status finish();

  /// `finish` ran, and all files are complete on disk.
  [[nodiscard]] bool complete() const { return complete_; }
  /// Of the whole job. Requires: complete.
  [[nodiscard]] const proto::Profile& profile() const { return *profile_; }
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
  [[nodiscard]] Status check_room_for(const proto::JobShape& shape) const;
  Status append_metrics(const std::string& row);
  Status take_output(const proto::OutputPiece& piece);
  Status write_dump(std::uint64_t step);
  Status write_complete_files();

  std::string folder_;
  const proto::RunConfig& config_;
  bool begun_ = false;                  ///< A first result came.
  std::optional<GrowingFile> metrics_;  ///< From the first row on.
  bool metrics_unflushed_ = false;
  WeightsCollector weights_;
  std::map<std::uint64_t, WeightsCollector> dumps_;  ///< By step, until it is complete.
  std::set<std::uint64_t> dumps_due_;                ///< Steps whose dump is not written yet.
  std::optional<NpyFile> outputs_;                   ///< From the first piece on.
  std::optional<proto::Profile> profile_;
  bool report_over_ = false;
  bool complete_ = false;
};

}  // namespace poprun::launcher
