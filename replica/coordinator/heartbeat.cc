#include "replica/coordinator/heartbeat.h"

#include <algorithm>
#include <utility>

#include "replica/coordinator/tcp_links.h"

namespace poprun {
namespace {

constexpr std::chrono::seconds kLeaveMax{2};
constexpr std::chrono::seconds kDataWait{1};  // Others must hear of it before they lose patience.

}  // namespace

Heartbeat::Heartbeat(const CoordinatorConnection& connection, const ProgressBoard& board,
                     DrainGate& gate, std::uint32_t instance, std::chrono::milliseconds interval,
                     std::function<void()> on_lost)
    : board_(board),
      gate_(gate),
      instance_(instance),
      interval_(interval),
      on_lost_(std::move(on_lost)) {
  connection.prepare(context_, 0);
  stream_ = connection.stub->Heartbeat(&context_);
  writer_ = std::thread([this] { write_beats(); });
  reader_ = std::thread([this] { read_directives(); });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = !leaving_;
    leaving_ = true;
  }
  changed_.notify_all();
  context_.TryCancel();
  writer_.join();
  reader_.join();
}

Heartbeat::Clock::time_point Heartbeat::last_excuse() const {
  return excused_ ? Clock::now() : last_excuse_.load();
}

void Heartbeat::leave() {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kLeaveMax, [this] { return ended_; });
}

void Heartbeat::write_beats() {
  std::unique_lock lock(mutex_);
  while (!leaving_ && !ended_) {
    lock.unlock();
    proto::Beat beat = board_.beat(instance_);
    gate_.tell(beat);
    for (proto::TcpLink& link : tcp_links()) {
      *beat.add_links() = std::move(link);
    }
    const bool alive = stream_->Write(beat);
    lock.lock();
    if (!alive) {
      return;  // The reader sees the same end and reports it.
    }
    wait_for_next_beat(lock);
  }
  const bool orderly = !abandoned_;
  lock.unlock();
  if (orderly) {
    stream_->WritesDone();  // Without leave() the launcher must see a loss.
  }
}

void Heartbeat::wait_for_next_beat(std::unique_lock<std::mutex>& lock) {
  const Clock::time_point due = Clock::now() + interval_;
  const auto is_due = [&] { return leaving_ || ended_ || hurry_ || Clock::now() >= due; };
  while (!changed_.wait_until(lock, std::min(due, Clock::now() + kDataWait), is_due) &&
         !board_.waits_for_data(kDataWait)) {
  }
  hurry_ = false;
}

void Heartbeat::read_directives() {
  proto::Directive directive;
  while (stream_->Read(&directive)) {
    gate_.take(directive);
    checkpoint_after_ = directive.checkpoint_after();
    {
      const std::lock_guard lock(mutex_);
      hurry_ = true;
    }
    changed_.notify_all();
    if (excused_ && !directive.excused()) {
      last_excuse_ = Clock::now();
    }
    excused_ = directive.excused();
  }
  bool lost = false;
  {
    const std::lock_guard lock(mutex_);
    lost = !leaving_;
    ended_ = true;
  }
  changed_.notify_all();
  if (lost) {
    on_lost_();
  }
}

}  // namespace poprun
