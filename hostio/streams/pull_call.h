#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "proto/host_streams.grpc.pb.h"
#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

namespace poprun::hostio {

/// The first and the longest pause before a client tries a lost data server again.
inline constexpr std::chrono::milliseconds kBackoffFirst{50};
inline constexpr std::chrono::milliseconds kBackoffMost{1000};

/// One Pull call on its own channel. Used by one thread, except for cancel().
class PullCall {
 public:
  enum class Event : std::uint8_t { kBatch, kOver, kSilence };

  PullCall(const std::string& address, const std::optional<TlsIdentity>& identity, const std::string& token,
           const proto::Open& open);
  PullCall(const PullCall&) = delete;
  PullCall& operator=(const PullCall&) = delete;
  ~PullCall() { POPRUN_CHECK(closed_); }

  /// Moves the next serialised proto::Batch into `batch`; waits for it until `deadline`. Returns kOver if the call
  /// ended (see close()).
  Event wait(std::chrono::steady_clock::time_point deadline, grpc::ByteBuffer& batch);

  /// Allows the server to send this many more batches.
  void grant(std::uint32_t batches);

  /// Ends the call immediately. Threads: any.
  void cancel() { context_.TryCancel(); }

  /// Returns how the call ended. This must be the last use of the call.
  grpc::Status close();

 private:
  enum Tag : std::uint8_t { kStarted, kRead, kWritten, kFinished };

  /// Returns a distinct address for each kind of event.
  void* tag(Tag which) { return &tags_[which]; }

  void read() {
    stream_->Read(&batch_, tag(kRead));
    ++pending_;
  }

  void write(const proto::PullRequest& request) {
    stream_->Write(request, tag(kWritten));
    writing_ = true;
    ++pending_;
  }

  /// Waits until `deadline` for the operations in progress. Returns whether all have ended.
  bool drain(std::chrono::steady_clock::time_point deadline);

  grpc::TemplatedGenericStub<proto::PullRequest, grpc::ByteBuffer> stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue events_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<proto::PullRequest, grpc::ByteBuffer>> stream_;
  proto::PullRequest open_;
  grpc::ByteBuffer batch_;  ///< Batch of the read in progress.
  char tags_[4] = {};
  std::uint32_t ungranted_ = 0;  ///< Credits to send after the write in progress.
  bool writing_ = false;
  int pending_ = 0;
  bool closed_ = false;
};

}  // namespace poprun::hostio
