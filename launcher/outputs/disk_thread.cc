#include "launcher/outputs/disk_thread.h"

#include <utility>

#include <asio/packaged_task.hpp>
#include <asio/post.hpp>

#include "replica/base/rare.h"

namespace poprun::launcher {

std::shared_future<Status> DiskThread::post(Task task) {
  return asio::post(thread_, std::packaged_task<Status()>([this, task = std::move(task)] {
                      began_ = Clock::now();
                      Status done = task();
                      began_ = kIdle;
                      return done;
                    }))
      .share();
}

bool DiskThread::is_done(const std::shared_future<Status>& task, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kNow{0};
  const bool is_late = awaited_.valid() && awaited_.wait_for(kNow) == std::future_status::timeout;
  if (task.wait_for(is_late ? kNow : patience) == std::future_status::ready) {
    return true;
  }
  if (patience > kNow) {
    POPRUN_RARE("disk.late");
    awaited_ = task;
  }
  return false;
}

double DiskThread::busy_seconds() const {
  const Clock::time_point began = began_;
  return began == kIdle ? 0 : std::chrono::duration<double>(Clock::now() - began).count();
}

}  // namespace poprun::launcher
