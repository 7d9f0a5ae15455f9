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

/// This process's TCP connections to other machines, summed up for each pair of addresses, in their order: what MPI,
/// the launcher and the data server are spoken to by. The kernel counts; whoever compares two looks sees which link
/// loses packets. Costs about a microsecond an open file. Nothing if /proc is not mounted.
std::vector<proto::TcpLink> tcp_links();

/// The heartbeat of one instance: a beat now and every interval up, and every second where a replica waits for its data
/// server; the launcher's wishes down. Two threads that sleep; a replica that hangs in a collective keeps beating and
/// shows where it hangs.
class Heartbeat {
 public:
  using Clock = std::chrono::steady_clock;

  /// `connection`, `board` and `gate`, which takes the launcher's wishes, must outlive this. `on_lost` is called once,
  /// from the reading thread, when the stream ends without `leave`.
  Heartbeat(const CoordinatorConnection& connection, const ProgressBoard& board, DrainGate& gate,
            std::uint32_t instance, std::chrono::milliseconds interval, std::function<void()> on_lost);

  /// Without `leave` before it, the launcher sees a death.
  ~Heartbeat();

  /// When the launcher last said that a replica of the job waits for its data server; the clock's beginning where it
  /// never did.
  [[nodiscard]] Clock::time_point last_excuse() const;

  /// As Directive's, the last one.
  [[nodiscard]] std::uint64_t checkpoint_after() const { return checkpoint_after_; }

  /// Closes the stream so that the launcher knows it as an orderly end. Waits 2 s at most. Once.
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
  std::atomic<bool> excused_ = false;                                 ///< Now,
  std::atomic<Clock::time_point> last_excuse_ = Clock::time_point{};  ///< or at last then.
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
