#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/world.h"

/// A world in which time is virtual: it jumps to the next event. A job of hundreds of steps takes milliseconds, and the
/// same faults always have the same outcome. The instances are simulated: they join, compute steps together, send
/// heartbeats, metrics and parts of checkpoints, and stop when asked, as replica/instance does. Their weights are a
/// chain, in which the state after a step depends on all steps before it. The files are real.
namespace poprun::launcher {

/// Returns the contents of the only weight after `step` steps.
std::string simulated_weights(std::uint64_t step);

enum class FaultKind : std::uint8_t {
  kKilled,      ///< An instance is killed: its connections close, and mpirun ends the job.
  kSilent,      ///< An instance hangs: its heartbeats end, or it never joins.
  kFails,       ///< An instance reports a failure.
  kLost,        ///< An instance loses touch with the launcher, but mpirun notices nothing.
  kMpirunDies,  ///< mpirun is killed, and the instances with it.
  kDataServer,  ///< The data server ends. Replicas can do without it in the simulation.
  kSigterm,     ///< The launcher receives SIGTERM.
  kSigusr1,     ///< The launcher receives SIGUSR1.
  kDiskHangs,   ///< The disk accepts nothing for `seconds`.
  kSleeps,      ///< The launcher does not run for `seconds`.
  kStubborn,    ///< From now on, mpirun ends only if it is killed.
};
inline constexpr int kFaultKinds = 11;

struct Fault {
  FaultKind kind;
  double at = 0;  ///< Seconds since the world began.
  std::uint32_t instance = 0;
  double seconds = 0;
};

class SimulatedWorld final : public World {
 public:
  struct Setup {
    std::uint32_t instances = 2;
    std::uint64_t steps = 20;
    double step_seconds = 0.5;
    double part_seconds = 0.3;  ///< Time that the parts of a checkpoint take to arrive.
    double data_seconds = 0;    ///< Part of each step that replicas wait for data.
    double saving_seconds = 0;  ///< Time that replicas wait while a checkpoint is taken, before the next step.
    std::vector<Fault> faults = {};
  };

  struct Left {
    int exit_code;
  };

  explicit SimulatedWorld(Setup setup);
  ~SimulatedWorld() override;

  [[nodiscard]] double now() const override { return now_; }
  void run(asio::io_context& loop) override;
  std::unique_ptr<Alarm> alarm(asio::io_context& loop) override;
  int pause(double seconds) override;
  /// Throws a Left.
  [[noreturn]] void leave(int exit_code) override { throw Left{exit_code}; }
  std::unique_ptr<DiskThread> disk() override;
  std::unique_ptr<JobProcesses> processes(asio::io_context& loop, const Options& options, const Placement& placement,
                                          Console& console, const Security& security,
                                          JobProcesses::Events events) override;
  Result<std::unique_ptr<Coordinator>> serve(asio::io_context& loop, CoordinatorEvents& events,
                                             Coordinator::Setup setup) override;

  /// Called whenever a checkpoint has been stored, with its step.
  std::function<void(std::uint64_t step)> on_stored = [](std::uint64_t) {};
  /// Returns the number of times that the job was started.
  [[nodiscard]] int attempts() const { return attempts_; }

 private:
  class SimulatedAlarm;
  class Disk;
  class Processes;
  class Service;
  class Instances;

  /// Calls `then` after some time. Returns its key in `events_`.
  std::pair<double, std::uint64_t> after(double seconds, std::function<void()> then);
  void inject(const Fault& fault);
  void mpirun_ends(int status);
  /// Runs the first event. Requires: there is one.
  void step();
  [[nodiscard]] bool disk_hangs() const { return now_ < disk_hangs_until_; }
  /// Calls `use` as soon as the disk works.
  void with_disk(std::function<void()> use);

  Setup setup_;
  double now_ = 1000;
  std::uint64_t next_ = 0;
  std::map<std::pair<double, std::uint64_t>, std::function<void()>> events_;  ///< Keyed by time, and then by order.
  double disk_hangs_until_ = 0;
  std::string metrics_;  ///< The job's metrics.csv.
  int signal_ = 0;       ///< The last signal that asked the job to end.
  bool stubborn_ = false;
  int attempts_ = 0;
  std::shared_ptr<Instances> instances_;  ///< Of the current attempt.
  Processes* processes_ = nullptr;
};

}  // namespace poprun::launcher
