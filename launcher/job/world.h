#pragma once

#include <functional>
#include <memory>

#include <asio/io_context.hpp>

#include "launcher/job/processes.h"
#include "launcher/outputs/disk_thread.h"
#include "launcher/wire/coordinator.h"

namespace poprun::launcher {

/// Calls a function on a loop at a given time.
class Alarm {
 public:
  Alarm() = default;
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  virtual ~Alarm() = default;  ///< Cancels.

  /// Replaces the time and the function of any earlier call.
  virtual void set(double seconds_from_now, std::function<void()> then) = 0;
};

/// The environment of a job: the clock, the processes on this machine, the service that instances call, and the thread
/// that uses the disk. Tests simulate a world (tests/unit/launcher/job/simulated_world.h) in which a whole job takes
/// milliseconds, and runs with the same seed are identical.
class World {
 public:
  World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  virtual ~World() = default;

  /// Returns the time of a monotonic clock, in seconds.
  [[nodiscard]] virtual double now() const = 0;
  /// Runs the loop's handlers as they become due, until the loop is stopped.
  virtual void run(asio::io_context& loop) = 0;
  virtual std::unique_ptr<Alarm> alarm(asio::io_context& loop) = 0;
  /// Waits between two attempts of a job. Returns early, with the signal's number, if a signal asks the job to end;
  /// otherwise returns 0.
  virtual int pause(double seconds) = 0;
  /// Ends the process now, even if a thread waits for a disk that hangs.
  [[noreturn]] virtual void leave(int exit_code) = 0;

  virtual std::unique_ptr<DiskThread> disk() = 0;
  /// See JobProcesses::real.
  virtual std::unique_ptr<JobProcesses> processes(asio::io_context& loop, const Options& options,
                                                  const Placement& placement, Console& console,
                                                  const Security& security, JobProcesses::Events events) = 0;
  /// See Coordinator::start.
  virtual Result<std::unique_ptr<Coordinator>> serve(asio::io_context& loop, CoordinatorEvents& events,
                                                     Coordinator::Setup setup) = 0;
};

World& real_world();

}  // namespace poprun::launcher
