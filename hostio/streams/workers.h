#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace poprun::hostio {

/// A pool of threads that start tasks in order of arrival.
///
/// Threads: any, for all functions.
class Workers {
 public:
  using Task = std::function<void()>;

  /// At most `waiting_max` tasks wait, in addition to those that `threads` are running.
  Workers(std::size_t threads, std::size_t waiting_max);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Waits for the running tasks; drops those that have not begun.
  ~Workers();

  /// Adds a task. Returns false and does nothing if `waiting_max` tasks are already waiting.
  [[nodiscard]] bool add(Task task);

  [[nodiscard]] std::size_t waiting();

 private:
  void run();

  const std::size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;  ///< Must be the last member: the threads use those above.
};

}  // namespace poprun::hostio
