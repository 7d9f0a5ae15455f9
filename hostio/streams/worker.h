#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace poprun::hostio {

/// A thread that does one task after another, in the order in which they came.
///
/// Threads: any, for all functions.
class Worker {
 public:
  using Task = std::function<void()>;

  /// At most `waiting_max` tasks wait.
  explicit Worker(std::size_t waiting_max)
      : waiting_max_(waiting_max), thread_([this] { run(); }) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  /// Waits for the task that is running; forgets those that have not begun.
  ~Worker();

  /// False, and nothing is done, where as many wait as may.
  [[nodiscard]] bool add(Task task);

  [[nodiscard]] std::size_t waiting();

 private:
  void run();

  const std::size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::thread thread_;  ///< The last member: it uses those above.
};

}  // namespace poprun::hostio
