#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "proto/coordinator.pb.h"
#include "replica/link/progress_board.h"
#include "replica/link/streams_up.h"

namespace poprun {

/// Returns the counters of this process's TCP connections to other machines (of MPI, the launcher and the data server),
/// summed per pair of addresses and sorted by that pair. The counters are the kernel's; comparing two results shows
/// which link loses packets. Cost: about a microsecond per open file. The result is empty if /proc is not mounted.
std::vector<proto::TcpLink> tcp_links();

/// The heartbeat of one instance. It sends a beat immediately, then one per interval, and one per second while a
/// replica is waiting for its data server. It also receives the launcher's directives. Its two threads mostly sleep. If
/// a replica hangs in a collective, the beats continue and show where it hangs.
class Heartbeat {
 public:
  using Clock = std::chrono::steady_clock;

  /// `connection`, `board` and `gate`, which applies the launcher's directives, must outlive this. `on_lost` is called
  /// once, from the reading thread, when the stream ends without `leave`.
  Heartbeat(const CoordinatorConnection& connection, const ProgressBoard& board, DrainGate& gate,
            std::uint32_t instance, std::chrono::milliseconds interval, std::function<void()> on_lost);

  /// Unless `leave` was called before, the launcher concludes that the instance died.
  ~Heartbeat();

  /// Returns the time at which the launcher last reported that a replica is waiting for its data server, or the clock's
  /// epoch if it never did.
  [[nodiscard]] Clock::time_point last_excuse() const;

  /// Returns `checkpoint_after` of the last Directive.
  [[nodiscard]] std::uint64_t checkpoint_after() const { return checkpoint_after_; }

  /// Closes the stream in a way that the launcher recognises as orderly. Waits at most 2 s. Call only once.
  void leave();

 private:
  void write_beats();
  void wait_for_next_beat(std::unique_lock<std::mutex>& lock);
  void read_directives();

  const ProgressBoard& board_;
  DrainGate& gate_;
  std::uint32_t instance_;
  std::chrono::milliseconds interval_;
  std::function<void()> on_lost_;
  std::atomic<bool> excused_ = false;                                 ///< Whether a replica is waiting for data now.
  std::atomic<Clock::time_point> last_excuse_ = Clock::time_point{};  ///< Time at which a replica last waited.
  std::atomic<std::uint64_t> checkpoint_after_ = 0;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::Beat, proto::Directive>> stream_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool leaving_ = false;    ///< Guarded by mutex_.
  bool hurry_ = false;      ///< Guarded by mutex_: the next beat is due now.
  bool abandoned_ = false;  ///< Destroyed without leave().
  bool ended_ = false;      ///< Guarded by mutex_: the launcher closed its side, or is gone.

  std::thread writer_;
  std::thread reader_;
};

}  // namespace poprun
