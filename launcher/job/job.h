#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>

#include "launcher/job/checkpoints.h"
#include "launcher/job/data_service.h"
#include "launcher/job/inquiry.h"
#include "launcher/job/record.h"
#include "launcher/job/world.h"
#include "launcher/metrics/job_metrics.h"
#include "launcher/metrics/job_status.h"
#include "launcher/metrics/metrics_server.h"
#include "launcher/metrics/training_history.h"
#include "launcher/options/options.h"
#include "launcher/outputs/checkpoint_files.h"
#include "launcher/outputs/result_files.h"
#include "launcher/placement/placement.h"
#include "launcher/screen/console.h"
#include "launcher/verdict/deadlines.h"
#include "launcher/verdict/goodput.h"
#include "launcher/verdict/job_state.h"
#include "launcher/verdict/phases.h"
#include "launcher/verdict/post_mortem.h"
#include "launcher/verdict/slow_replicas.h"
#include "launcher/wire/coordinator.h"
#include "launcher/wire/security.h"
#include "proto/coordinator.pb.h"
#include "proto/profile.pb.h"

namespace poprun::launcher {

struct JobEnd {
  int exit_code = 0;
  std::optional<proto::Profile> profile = {};  ///< Set only if the job is complete.
  bool may_pass = false;                       ///< Whether the failure may be transient, so that a restart may help.
  bool has_checkpoint = false;                 ///< Whether the job stored a checkpoint of its own.
  std::uint64_t checkpoint_step = 0;           ///< The step of the last checkpoint that the job stored or resumed from.
  std::vector<std::string> lost_hosts = {};    ///< Hosts known to be down or cut off.
};

/// The state that all attempts of a job share.
struct JobHistory {
  FolderLock folder = {};         ///< Holds the lock on the output folder from one attempt to the next.
  std::uint32_t restarts = 0;     ///< Number of earlier attempts.
  std::uint64_t checkpoints = 0;  ///< Number of checkpoints that earlier attempts stored.
  Goodput goodput;
  TrainingHistory training = {};
  bool traced = false;  ///< Whether an attempt has traced all steps of report.trace-steps.
};

/// Runs one job, from the check of its output folder to its exit code. The loop's single thread owns all state. gRPC,
/// child processes and the thread that writes the results only post to the loop or are polled. verdict/phases.h shows
/// the phases of a job, and phases.cc defines which events count in each; every handler first calls `react`. The class
/// is implemented in job.cc, job_start.cc, job_failure.cc (signs of trouble, up to the verdict), job_end.cc (signals,
/// and the wait for files, processes and disk) and job_metrics.cc.
class Job final : private CoordinatorEvents {
 public:
  /// `launched_at` is the world's time when the command or, after a restart, this attempt began. All references must
  /// outlive this.
  Job(World& world, const Options& options, const Placement& placement, Console& console, JobHistory& history,
      double launched_at);

  /// Runs the job and returns how it ended, with the exit code of poprun-emu. By then, all messages have been printed.
  JobEnd run();

 private:
  /// Enters the phase to which `event` leads, and returns what to do about the event.
  Reaction react(JobEvent event);

  // The start. An error here means that no replica has run.
  Status prepare();
  void on_dataset(const Result<ServedDataset>& served);

  // Messages from instances (CoordinatorEvents).
  Status on_join(const proto::JoinRequest& request) override;
  void on_beat(const proto::Beat& beat) override;
  void on_leave(std::uint32_t instance, bool orderly) override;
  Status on_report(const proto::ReportItem& item) override;
  Status on_report_end() override;
  void on_failure(const proto::Failure& failure) override;

  // Deadlines.
  void wait_for_deadline();
  [[nodiscard]] Deadlines::Facts facts() const;
  void notice_own_silence(double now);
  void update(double now);
  void do_what_is_due(double now);
  void tell_where_to_stop();

  // Trouble, and the verdict on it.
  void on_mpirun_line(std::string_view line, bool is_stderr);
  void on_mpirun_exit(int status);
  void on_data_server_exit(int status);
  void trouble(Deadlines::Trouble kind);
  void decide();
  void explain_mpirun(int status);
  void give_verdict(const Verdict& verdict);
  void give_error(const Error& error);

  /// Returns whether the job trains, rather than infers, checks or profiles a few steps.
  [[nodiscard]] bool trains() const {
    return !options_.config.inference() && !options_.config.has_check() && !options_.config.has_profile();
  }

  // The end.
  void wait_for_signal();
  void on_signal(int number);
  void drain();
  void end_drain();
  void end_at_timeout(double now);
  [[nodiscard]] int code_of_results() const;
  void look_after_results(double now);
  void give_results_up(const Error& error, std::string_view after);
  void stop(int exit_code);
  void finish();
  void wait_for_disk(double seconds);
  [[nodiscard]] std::string unwritten() const;
  void end_without_disk();

  // For monitoring.
  Status start_metrics();
  [[nodiscard]] JobMetrics metrics(double now) const;  ///< Does not set start_time_seconds.
  [[nodiscard]] JobStatus status(double now) const;    ///< Does not set metrics.start_time_seconds.

  [[nodiscard]] std::string listens_at() const { return listening_address(own_address_); }
  /// Returns whether other hosts can reach the job's services, in which case the services use TLS.
  [[nodiscard]] bool services_leave_loopback() const { return leaves_loopback(listens_at() + ":"); }

  [[nodiscard]] std::string metrics_address() const {
    return options_.metrics.address.empty() ? listens_at() : options_.metrics.address;
  }
  /// Returns whether other hosts can read the metrics, which then use TLS.
  [[nodiscard]] bool metrics_leave_loopback() const {
    return options_.metrics.port != 0 && leaves_loopback(metrics_address() + ":");
  }

  World& world_;
  const Options& options_;
  const Placement& placement_;
  Console& console_;
  std::string own_address_;
  double launched_at_;
  JobHistory& history_;
  Security security_;  ///< Set by `prepare`.
  ModelInputs inputs_;

  asio::io_context loop_;
  asio::signal_set signals_;
  std::unique_ptr<Alarm> alarm_;
  std::unique_ptr<Alarm> end_alarm_;
  std::unique_ptr<JobProcesses> processes_;
  JobState state_;
  Deadlines deadlines_;
  DrainPoint drain_point_;
  Stragglers stragglers_;
  std::optional<DataWaits> data_waits_;  ///< Set once the dataset and its server's address are known.
  JobRecord record_;
  JobCheckpoints checkpoints_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<MetricsServer> metrics_server_;  ///< Null without --metrics-port.

  Phase phase_ = Phase::kRunning;
  int signal_ = 0;                   ///< The first signal that asked the job to end.
  JobEnd end_ = {.may_pass = true};  ///< Filled in as facts about the end become known.
};

/// Runs the job. With --restarts, a job whose failure may be transient runs again from its last checkpoint, after a
/// pause that grows from 1 s to 30 s. Hosts that were lost are left out until they answer again. A checkpoint at a
/// later step than all earlier ones resets the count of restarts to 0. `launched_at` is the world's time when the
/// command began.
JobEnd run_attempts(World& world, const Options& options, const Placement& placement, Console& console,
                    double launched_at);

/// Returns the answer that every instance gets when it joins: the job as requested, with the dataset as served. If
/// there is no test data, nothing is evaluated. If `resumed` is set, training resumes from this checkpoint.
proto::JoinReply join_reply(const Options& options, const Placement& placement, const ServedDataset& served,
                            const std::optional<Checkpoint>& resumed);

}  // namespace poprun::launcher
