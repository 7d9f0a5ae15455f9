#include "hostio/streams/pull_call.h"

#include <utility>

#include <fmt/format.h>

#include "hostio/streams/wire.h"
#include "replica/base/grpc/channel.h"

namespace poprun::hostio {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Larger than gRPC's defaults, so that a batch takes few frames. Credits, not the window, bound what the server sends.
constexpr int kFrameBytes = 8 << 20;
constexpr int kWindowBytes = 32 << 20;

/// Opens a channel without a web proxy. It shares no state with other channels, so it finds a returning server
/// immediately.
std::shared_ptr<grpc::Channel> fresh_channel(const std::string& address, const std::optional<TlsIdentity>& identity) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kBackoffFirst.count());
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kBackoffMost.count());
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return open_channel(address, identity, arguments);
}

gpr_timespec on_grpc_clock(Clock::time_point deadline) {
  const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(deadline - Clock::now());
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_micros(rest.count(), GPR_TIMESPAN));
}

}  // namespace

PullCall::PullCall(const std::string& address, const std::optional<TlsIdentity>& identity, const std::string& token,
                   const proto::Open& open)
    : stub_(fresh_channel(address, identity)) {
  if (!token.empty()) {
    context_.AddMetadata(kTokenKey, token);
  }
  *open_.mutable_open() = open;
  stream_ = stub_.PrepareCall(&context_, fmt::format("/{}/Pull", proto::HostStreams::service_full_name()), &events_);
  stream_->StartCall(tag(kStarted));
  pending_ = 1;
}

PullCall::Event PullCall::wait(Clock::time_point deadline, grpc::ByteBuffer& batch) {
  while (true) {
    void* which = nullptr;
    bool ok = false;
    if (events_.AsyncNext(&which, &ok, on_grpc_clock(deadline)) != grpc::CompletionQueue::GOT_EVENT) {
      return Event::kSilence;
    }
    --pending_;
    // If writing a credit fails, the server has ended the call, but batches that it sent earlier may still arrive. A
    // failed read is the end of the call.
    if (!ok && which == tag(kWritten)) {
      continue;  // writing_ stays set, so nothing more is written.
    }
    if (!ok) {
      return Event::kOver;
    }
    if (which == tag(kStarted)) {
      write(open_);
      read();
    } else if (which == tag(kWritten)) {
      writing_ = false;
      grant(0);
    } else {
      batch.Swap(&batch_);
      batch_.Clear();
      read();
      return Event::kBatch;
    }
  }
}

void PullCall::grant(std::uint32_t batches) {
  ungranted_ += batches;
  if (writing_ || ungranted_ == 0) {
    return;
  }
  proto::PullRequest request;
  request.mutable_credit()->set_batches(std::exchange(ungranted_, 0));
  write(request);
}

grpc::Status PullCall::close() {
  // The operations of a broken call usually fail by themselves; otherwise, they are cancelled.
  const auto end = [this] {
    if (!drain(Clock::now() + milliseconds{100})) {
      context_.TryCancel();
      POPRUN_CHECK(drain(Clock::now() + std::chrono::minutes{1}));
    }
  };
  end();
  grpc::Status status;
  stream_->Finish(&status, tag(kFinished));
  ++pending_;
  end();
  events_.Shutdown();
  closed_ = true;
  return status;
}

bool PullCall::drain(Clock::time_point deadline) {
  while (pending_ > 0) {
    void* which = nullptr;
    bool ok = false;
    if (events_.AsyncNext(&which, &ok, on_grpc_clock(deadline)) != grpc::CompletionQueue::GOT_EVENT) {
      return false;
    }
    --pending_;
  }
  return true;
}

}  // namespace poprun::hostio
