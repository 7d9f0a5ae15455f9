#include "collectives/local/background.h"

#include <utility>

#include "collectives/local/call.h"

namespace poprun::collectives {

Background::~Background() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
}

Status Background::begin(Communicator& parent, Reduction reduction, std::span<const Buffer> buffers) {
  POPRUN_TRY(check_reduction(reduction, buffers));
  if (channel_ == nullptr) {
    POPRUN_ASSIGN(channel_, parent.group({.kind = Group::Kind::kAll}));
    thread_ = std::thread([this] { work(); });
  }
  {
    const std::lock_guard lock(mutex_);
    POPRUN_TRY(status_);
    jobs_.push_back({reduction, {buffers.begin(), buffers.end()}});
  }
  changed_.notify_all();
  return {};
}

Status Background::await() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty(); });  // The wait ends, because each job has a deadline.
  return status_;
}

void Background::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !jobs_.empty() || ends_; });
    if (ends_) {
      return;
    }
    const Job& job = jobs_.front();
    lock.unlock();
    Status status = channel_->all_reduce(job.reduction, job.buffers);
    lock.lock();
    jobs_.pop_front();
    if (!status) {
      status_ = std::move(status);
      jobs_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace poprun::collectives
