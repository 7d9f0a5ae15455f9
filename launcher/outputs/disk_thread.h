#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>

#include <asio/thread_pool.hpp>

#include "replica/base/error.h"

namespace poprun::launcher {

/// A thread that uses a disk on behalf of another thread, which must not wait for the disk. A disk can hang for minutes
/// (a frozen file system, or a network file system whose server is gone), and no write can be cancelled. Tasks run one
/// after the other. The object itself belongs to one thread. Tests simulate slow disks with subclasses.
class DiskThread {
 public:
  using Task = std::function<Status()>;

  DiskThread() = default;
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;
  /// Waits for all tasks.
  virtual ~DiskThread() { thread_.join(); }

  virtual std::shared_future<Status> post(Task task);

  /// Returns whether the task is done, after waiting for it for at most `patience`. Does not wait at all if an earlier
  /// wait timed out and its task is still not done. The owner's thread therefore waits rarely, and never for long.
  virtual bool is_done(const std::shared_future<Status>& task, std::chrono::milliseconds patience = kMoment);

  /// Returns the seconds for which the current task has been running, or 0 if there is none.
  [[nodiscard]] virtual double busy_seconds() const;

  static constexpr std::chrono::milliseconds kMoment{100};

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point kIdle{};

  std::atomic<Clock::time_point> began_ = kIdle;  ///< Start of the current task.
  std::shared_future<Status> awaited_;            ///< The last task for which a wait timed out.
  asio::thread_pool thread_{1};                   ///< Must be the last member: its thread uses those above.
};

}  // namespace poprun::launcher
