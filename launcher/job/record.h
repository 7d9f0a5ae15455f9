#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/options/options.h"
#include "launcher/outputs/checkpoint_files.h"
#include "launcher/outputs/job_results.h"
#include "launcher/outputs/result_files.h"
#include "launcher/placement/placement.h"
#include "launcher/screen/console.h"
#include "launcher/screen/display.h"
#include "launcher/screen/output_router.h"
#include "launcher/verdict/job_state.h"
#include "launcher/verdict/post_mortem.h"
#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// All that a job shows and leaves behind: its lines on the screen, the logs of its replicas, its
/// results, and why it failed. Belongs to the loop's thread.
class JobRecord {
 public:
  /// `folder`: what an earlier attempt has taken, and this one takes. All references must outlive
  /// this.
  JobRecord(const Options& options, const Placement& placement, Console& console,
            OutputFolder& folder);

  /// Takes the folder of the outputs for this job, which goes on from `resumed` or begins anew.
  /// `goes_on`: what is there is its own, from before a break. In that case and after a restart,
  /// the traces of the earlier attempt are set aside. Errors: those of OutputFolder::take.
  Status take_folder(const std::optional<Checkpoint>& resumed, bool goes_on, bool is_restart);

  /// Every replica has a log, and its first line says where it ran.
  void begin_logs(std::uint32_t instance, const InstanceView& view);

  /// An item of a report goes into its file, and to the screen while `shows` is true.
  Status take(const proto::ReportItem& item, bool shows, double now);
  /// No item will come any more. Errors: those of JobResults::finish.
  Status finish_report() { return results_.finish(); }
  [[nodiscard]] const JobResults& results() const { return results_; }

  /// Takes mpirun's lines, and holds some back until it is clear whether something failed.
  OutputRouter& mpirun_output() { return router_; }
  [[nodiscard]] std::string logs_folder() const {
    return results_.path(traces_of(options_.config).logs);
  }

  /// The job was asked to stop, and is doing this now. Shown every now and then.
  void tell_stopping(const std::string& doing, double now) { display_.stopping(doing, now); }

  /// Brings screen and files up to `now`. A disk that takes nothing is told of, and tried again.
  void refresh(double now);

  [[nodiscard]] const Progress& progress() const { return display_.progress(); }
  [[nodiscard]] std::uint64_t steps() const { return display_.progress().steps(); }
  [[nodiscard]] std::uint64_t total_steps() const { return display_.progress().total_steps(); }

  /// Says why the job failed, on the screen and, where it ever began, in failure.txt. Nothing is
  /// written for a wrong request.
  void tell(const Verdict& verdict, const JobState& state, double now);

  /// Nothing will come any more: settles all files, and sums up a job that is complete, or a check
  /// as far as it came. `ended_early`: it was asked to end.
  /// `checkpoints`: what the summary says of those.
  void close(bool ended_early, const std::string& checkpoints);

 private:
  void write_failure(const Verdict& verdict, const JobState& state, double now);
  void tell_of_disk(const Status& written, double now);

  const Options& options_;
  const Placement& placement_;
  Console& console_;
  OutputFolder& folder_;
  Display display_;
  JobResults results_;
  ReplicaLogs logs_;
  OutputRouter router_;
  std::optional<double> disk_told_at_;  ///< When a full disk was last told of.
  bool disk_full_ = false;
};

}  // namespace poprun::launcher
