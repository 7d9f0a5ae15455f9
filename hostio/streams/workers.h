#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace poprun::hostio {

/// Threads that do tasks, begun in the order in which they came.
///
/// Threads: any, for all functions.
class Workers {
 public:
  using Task = std::function<void()>;

  /// At most `waiting_max` tasks wait, beside those that `threads` do.
  Workers(std::size_t threads, std::size_t waiting_max);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Waits for the tasks that are running; forgets those that have not begun.
  ~Workers();

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
  std::vector<std::thread> threads_;  ///< The last member: they use those above.
};

}  // namespace poprun::hostio
