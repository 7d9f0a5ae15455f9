#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "proto/coordinator.grpc.pb.h"
#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

namespace poprun {

/// Maximum number of bytes of a tensor in one message.
inline constexpr std::size_t kPieceBytes = 1 << 20;

/// The channel to the launcher, and the token and epoch that every call on it carries.
struct CoordinatorConnection {
  std::string address;  ///< host:port.
  std::string token;    ///< Empty if the job has none.
  std::string epoch;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<proto::Coordinator::Stub> stub;

  CoordinatorConnection(const std::string& host_port, const std::string& job_token, std::uint64_t attempt,
                        const std::optional<TlsIdentity>& identity);

  /// Adds the token, the epoch and, if `seconds` > 0, a deadline.
  void prepare(grpc::ClientContext& context, double seconds) const;
};

/// Sends report items in order from its own thread, so that training waits for the launcher only if the queue is full.
class ReportStream {
 public:
  /// `connection` must outlive this.
  explicit ReportStream(const CoordinatorConnection& connection);

  /// Drops all items that are still queued.
  ~ReportStream();

  /// Queues `item`. Blocks, for at most 60 s, while 16 MiB or more are queued. Errors: kInfrastructure if the launcher
  /// ended the stream (with the launcher's message) or accepts nothing.
  Status send(proto::ReportItem item);

  /// Sends all queued items and waits at most 60 s for the launcher's answer. Call only once. Errors: those of `send`.
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
