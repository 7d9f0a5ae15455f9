#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "launcher/job/data_service.h"
#include "launcher/options/options.h"
#include "launcher/outputs/job_results.h"
#include "launcher/outputs/result_files.h"
#include "launcher/placement/placement.h"
#include "launcher/process/supervisor.h"
#include "launcher/process/surroundings.h"
#include "launcher/screen/console.h"
#include "launcher/screen/display.h"
#include "launcher/screen/output_router.h"
#include "launcher/verdict/job_state.h"
#include "launcher/verdict/post_mortem.h"
#include "launcher/wire/coordinator.h"
#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// One job from the check of its outputs to its exit code. A single thread, the loop's, owns all of
/// it; gRPC and child processes only post to it.
///
///   running --> draining --> stopping --> over
///      |  a signal   |  results safe, mpirun gone
///      '-------------+--> a verdict, or a second signal
class Job final : private CoordinatorEvents {
 public:
  /// `launched_at`: monotonic_seconds() when the command began. All references must outlive this.
  Job(const Options& options, const Placement& placement, Console& console, double launched_at);

  /// Returns the exit code of poprun-emu; everything that had to be said is said.
  int run();

 private:
  enum class Phase : std::uint8_t { kRunning, kDraining, kStopping, kOver };

  [[nodiscard]] bool ending() const { return phase_ == Phase::kStopping || phase_ == Phase::kOver; }

  // Starting. Each returns what went wrong before any replica ran.
  Status prepare();
  int check_model(const std::string& onnx);
  Status start_mpirun();
  void on_dataset(const Result<ServedDataset>& served);

  // What instances say (CoordinatorEvents).
  Status on_join(const proto::JoinRequest& request) override;
  void on_beat(const proto::Beat& beat) override;
  void on_leave(std::uint32_t instance, bool orderly) override;
  Status on_report(const proto::ReportItem& item) override;
  Status on_report_end() override;
  void on_failure(const proto::Failure& failure) override;

  // What happens around them.
  void on_mpirun_line(std::string_view line, bool is_stderr);
  void on_mpirun_exit(int status);
  void on_data_server_exit(int status);
  void on_signal(int number);
  [[nodiscard]] int code_of_results() const;
  void notice_own_silence(double now);
  void on_tick();

  // Deciding and ending.
  void expect_details(double seconds);
  void decide();
  void give_verdict(const Verdict& verdict);
  void give_error(const Error& error);
  void write_failure(const Verdict& verdict);
  void stop(int exit_code, bool at_once);
  void watch_the_stop(double now);
  void finish();

  Status begin_logs(std::uint32_t instance);
  void wait_for_tick();
  void wait_for_signal();
  [[nodiscard]] std::vector<pid_t> local_replicas() const;

  const Options& options_;
  const Placement& placement_;
  Console& console_;
  double launched_at_;
  std::string token_;
  std::string own_address_;  ///< Host at which others reach this machine.
  std::vector<Tensor> initial_weights_;
  std::vector<Tensor> onnx_model_;  ///< One, where the job has such a model.

  asio::io_context loop_;
  asio::signal_set signals_;
  asio::steady_timer tick_;
  Supervisor supervisor_;
  Programs programs_;
  JobState state_;
  Display display_;
  std::optional<OutputFolder> output_folder_;  ///< From its check on.
  JobResults results_;
  ReplicaLogs logs_;
  OutputRouter router_;
  std::unique_ptr<Coordinator> coordinator_;
  std::optional<DataService> data_;  ///< From the check of the outputs on.

  Phase phase_ = Phase::kRunning;
  int exit_code_ = 0;
  int signal_ = 0;  ///< The first one that asked us to end.
  double last_tick_ = 0;
  double decide_at_ = 0;       ///< 0: nothing to decide.
  bool awaits_dumps_ = false;  ///< Before it is decided.
  double held_since_ = 0;      ///< When the last of mpirun's waiting lines came.
  double drain_until_ = 0;     ///< Infinite once all steps are done.
  double left_at_ = 0;         ///< When the last instance went.
  double stopping_since_ = 0;
  bool dataset_known_ = false;
};

}  // namespace poprun::launcher
