#include "replica/link/streams_up.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "replica/base/grpc/channel.h"

namespace poprun {
namespace {

// A cut link is noticed after at most 40 s; a launcher that is merely slow is not dropped.
constexpr int kKeepaliveMs = 20000;

grpc::ChannelArguments arguments_of_channel() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // The launcher is on this machine or its own network, so a proxy in the environment does not apply.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

constexpr std::size_t kQueuedBytesMax = 16 << 20;
constexpr std::chrono::seconds kWaitMax{60};

}  // namespace

CoordinatorConnection::CoordinatorConnection(const std::string& host_port, const std::string& job_token,
                                             std::uint64_t attempt, const std::optional<TlsIdentity>& identity)
    : address(host_port),
      token(job_token),
      epoch(std::to_string(attempt)),
      channel(open_channel(host_port, identity, arguments_of_channel())),
      stub(proto::Coordinator::NewStub(channel)) {}

void CoordinatorConnection::prepare(grpc::ClientContext& context, double seconds) const {
  if (!token.empty()) {
    context.AddMetadata("poprun-token", token);
  }
  context.AddMetadata("poprun-epoch", epoch);
  if (seconds > 0) {
    const auto wait = std::chrono::duration<double>(seconds);
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(wait));
  }
}

ReportStream::ReportStream(const CoordinatorConnection& connection) {
  connection.prepare(context_, 0);
  stream_ = connection.stub->Report(&context_, &reply_);
  writer_ = std::thread([this] { run(); });
}

ReportStream::~ReportStream() {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
    queue_.clear();
    if (!ended_) {
      context_.TryCancel();
    }
  }
  changed_.notify_all();
  writer_.join();
}

Status ReportStream::send(proto::ReportItem item) {
  const std::size_t bytes = item.ByteSizeLong();
  std::unique_lock lock(mutex_);
  const bool in_time =
      changed_.wait_for(lock, kWaitMax, [this] { return ended_.has_value() || queued_bytes_ < kQueuedBytesMax; });
  if (ended_) {
    return result();
  }
  if (!in_time) {
    return fail(ErrorCode::kInfrastructure,
                fmt::format("the launcher accepted no report for {} s; {} B of reports are still queued",
                            kWaitMax.count(), queued_bytes_));
  }
  queue_.push_back(std::move(item));
  queued_bytes_ += bytes;
  changed_.notify_all();
  return {};
}

Status ReportStream::finish() {
  std::unique_lock lock(mutex_);
  finishing_ = true;
  changed_.notify_all();
  if (!changed_.wait_for(lock, kWaitMax, [this] { return ended_.has_value(); })) {
    return fail(ErrorCode::kInfrastructure,
                fmt::format("the launcher did not confirm the results within {} s", kWaitMax.count()));
  }
  return ended_->ok() ? Status{} : result();
}

void ReportStream::run() {
  std::unique_lock lock(mutex_);
  bool open = true;
  while (open) {
    changed_.wait(lock, [this] { return finishing_ || !queue_.empty(); });
    if (queue_.empty()) {
      break;
    }
    const proto::ReportItem item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    open = stream_->Write(item);
    lock.lock();
    queued_bytes_ -= std::min(queued_bytes_, item.ByteSizeLong());
    changed_.notify_all();
  }
  lock.unlock();
  if (open) {
    stream_->WritesDone();
  }
  grpc::Status status = stream_->Finish();
  lock.lock();
  ended_ = std::move(status);
  changed_.notify_all();
}

Status ReportStream::result() const {
  const std::string& message = ended_->error_message();
  return fail(ErrorCode::kInfrastructure,
              message.empty() ? "the launcher closed the stream of reports before it was complete" : message);
}

}  // namespace poprun
