#include "hostio/streams/worker.h"

#include <utility>

namespace poprun::hostio {

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Worker::add(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() >= waiting_max_) {
      return false;
    }
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
  return true;
}

std::size_t Worker::waiting() {
  const std::lock_guard lock(mutex_);
  return tasks_.size();
}

void Worker::run() {
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
