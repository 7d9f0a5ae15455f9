#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "replica/base/error.h"
#include "replica/coordinator/connection.h"

namespace poprun {

/// Sends report items in order from a thread of its own, so that training never waits for the
/// launcher while the queue has room.
class ReportStream {
 public:
  /// `connection` must outlive this.
  explicit ReportStream(const CoordinatorConnection& connection);

  /// Drops what is still queued.
  ~ReportStream();

  /// Queues `item`. Blocks, 60 s at most, only while more than 16 MiB wait.
  ///
  /// Errors
  ///   kInfrastructure  the launcher ended the stream (its message), or takes nothing.
  Status send(proto::ReportItem item);

  /// Sends what is queued and waits, 60 s at most, for the launcher's answer. Once.
  ///
  /// Errors
  ///   kInfrastructure  as `send`.
  Status finish();

 private:
  void run();
  [[nodiscard]] Status result() const;

  grpc::ClientContext context_;
  proto::ReportReply reply_;
  std::unique_ptr<grpc::ClientWriter<proto::ReportItem>> stream_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::deque<proto::ReportItem> queue_;
  std::size_t queued_bytes_ = 0;
  bool finishing_ = false;
  std::optional<grpc::Status> ended_;  ///< Set once, when the stream is over.

  std::thread writer_;
};

}  // namespace poprun
