#include "hostio/streams/workers.h"

#include <utility>

namespace poprun::hostio {

Workers::Workers(std::size_t threads, std::size_t waiting_max) : waiting_max_(waiting_max) {
  while (threads_.size() < threads) {
    threads_.emplace_back([this] { run(); });
  }
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

bool Workers::add(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() >= waiting_max_) {
      return false;
    }
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

std::size_t Workers::waiting() {
  const std::lock_guard lock(mutex_);
  return tasks_.size();
}

void Workers::run() {
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (stopping_) {
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace poprun::hostio
