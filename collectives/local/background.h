#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "replica/base/error.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// Runs all-reduces one after another, on its own thread and channel, while the replica does other work. Threads: call
/// `begin` and `await` from one thread. The destructor waits for all-reduces in progress, at most until their deadline.
class Background {
 public:
  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background();

  /// See Communicator::begin_all_reduce. The first call creates the channel, a group of `parent`.
  Status begin(Communicator& parent, Reduction reduction, std::span<const Buffer> buffers);

  Status await();

 private:
  struct Job {
    Reduction reduction = Reduction::kSum;
    std::vector<Buffer> buffers;
  };

  void work();

  std::unique_ptr<Communicator> channel_;
  std::thread thread_;
  std::mutex mutex_;  ///< Guards the members below.
  std::condition_variable changed_;
  std::deque<Job> jobs_;  ///< The first job is in progress.
  Status status_;         ///< The first failure; no job begins after it.
  bool ends_ = false;
};

}  // namespace poprun::collectives
