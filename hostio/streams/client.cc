#include "hostio/streams/client.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "hostio/streams/pull_call.h"
#include "hostio/streams/wire.h"
#include "replica/base/log.h"
#include "replica/base/rare.h"

namespace poprun::hostio {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kBetweenQuestions{100};  // Interval at which is_needed is polled.

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// Returns why a call broke, for a log line: the last reason in gRPC's list, such as "Connection refused".
std::string reason_of(const grpc::Status& status) {
  const std::string& message = status.error_message();
  const std::size_t colon = message.rfind(": ");
  const bool listed = message.starts_with("failed to connect") && colon != std::string::npos;
  return listed ? message.substr(colon + 2) : message;
}

/// Returns the error if retrying cannot change the server's answer, and otherwise nothing.
std::optional<Error> final_error(const grpc::Status& status, const std::string& address) {
  using enum grpc::StatusCode;
  const grpc::StatusCode code = status.error_code();
  if (code == NOT_FOUND || code == DATA_LOSS) {
    return Error{ErrorCode::kData, status.error_message()};
  }
  if (code == INVALID_ARGUMENT || code == UNAUTHENTICATED) {
    return Error{ErrorCode::kUsage, status.error_message()};
  }
  if (code == UNIMPLEMENTED) {
    return Error{ErrorCode::kUsage, fmt::format("the service at {} is not a poprun-emu data server", address)};
  }
  return std::nullopt;
}

Error unreachable(const std::string& address, milliseconds timeout, const std::string& source,
                  const std::string& progress) {
  return {ErrorCode::kUnreachable,
          fmt::format("data server {} did not answer for {:g} s{}; check that poprun-emu-hostio is "
                      "running there and serving '{}', or raise --hostio-timeout",
                      address, seconds(timeout), progress, source),
          {.address = address}};
}

/// Returns the error for a server that answers but makes no progress in reading a dataset.
Error stuck(const std::string& address, milliseconds timeout, const std::string& source,
            const proto::Loading& loading) {
  return {ErrorCode::kUnreachable,
          fmt::format("data server {} is reading '{}' but has not progressed beyond {} % for {:g} s; check the disk "
                      "that the server reads from, or raise --hostio-timeout",
                      address, source, loading.percent(), seconds(timeout)),
          {.address = address}};
}

/// Pulls batches on its own thread into a queue for next(). At most prefetch_batches are in flight or queued.
class PrefetchingStream final : public HostStream {
 public:
  explicit PrefetchingStream(const HostStreamOptions& options)
      : options_(options), next_sequence_(options.first_sequence) {
    POPRUN_CHECK(options_.prefetch_batches > 0);
    thread_ = std::thread([this] { run(); });
  }

  ~PrefetchingStream() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      if (call_ != nullptr) {
        call_->cancel();
      }
    }
    changed_.notify_all();
    thread_.join();
  }

  Result<HostBatch> next() override {
    std::unique_lock lock(mutex_);
    const auto is_over = [&] { return !batches_.empty() || failure_; };
    if (!is_over()) {
      options_.on_wait(true);
      // The thread gives up after the timeout and sets failure_, which ends this wait.
      while (!changed_.wait_for(lock, kBetweenQuestions, is_over) && options_.is_needed()) {
      }
      options_.on_wait(false);
    }
    if (batches_.empty()) {
      return tl::unexpected(
          failure_.value_or(Error{ErrorCode::kInfrastructure, "the job is stopping and needs no more batches"}));
    }
    HostBatch batch = std::move(batches_.front());
    batches_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

 private:
  void run() {
    last_success_ = Clock::now();
    while (true) {
      const grpc::Status status = pull();
      if (std::optional<Error> failure = verdict(status)) {
        const std::lock_guard lock(mutex_);
        failure_ = std::move(failure);
        changed_.notify_all();
        return;
      }
      note_lost(status);
      if (!pause()) {
        return;
      }
    }
  }

  /// Runs one call, starting with the next batch needed, until the call ends.
  grpc::Status pull() {
    const std::uint32_t credits = room();
    proto::Open open;
    *open.mutable_selection() = options_.selection;
    open.set_first_sequence(next_sequence_);
    open.set_credits(credits);
    under_way_ = credits;
    PullCall call(options_.address, options_.identity, options_.token, open);
    publish(&call);
    const std::optional<grpc::Status> abandoned = receive(call);
    publish(nullptr);
    if (abandoned) {
      call.cancel();
    }
    const grpc::Status status = call.close();
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      loading_.reset();
    }
    return abandoned.value_or(status);
  }

  /// Moves batches from the call to the queue until the call is over. Returns a status if the call must be abandoned.
  std::optional<grpc::Status> receive(PullCall& call) {
    Clock::time_point heard = Clock::now();
    grpc::ByteBuffer message;
    while (true) {
      if (under_way_ == 0) {
        if (!wait_for_room()) {
          return grpc::Status::CANCELLED;
        }
        heard = last_success_ = Clock::now();  // No request to the server was open until now.
      }
      grant_room(call);
      const auto deadline = std::min(heard + options_.timeout / 4, last_success_ + options_.timeout);
      switch (call.wait(deadline, message)) {
        case PullCall::Event::kOver:
          return std::nullopt;
        case PullCall::Event::kSilence:
          return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "it is not responding");
        case PullCall::Event::kBatch:
          break;
      }
      Result<ReceivedBatch> received = decode_batch(std::move(message));
      if (!received) {
        return grpc::Status(grpc::StatusCode::INTERNAL, received.error().message);
      }
      if (received->loading) {
        heard = Clock::now();
        note_loading(*received->loading);
        continue;
      }
      if (received->fingerprint != options_.selection.fingerprint()) {
        return grpc::Status(grpc::StatusCode::DATA_LOSS,
                            fmt::format("the data server at {} is sending batches of a dataset that it did not "
                                        "describe to this job; is it running a different version?",
                                        options_.address));
      }
      if (received->batch.sequence != next_sequence_) {
        return grpc::Status(grpc::StatusCode::INTERNAL, fmt::format("batch {} arrived, but batch {} was expected",
                                                                    received->batch.sequence, next_sequence_));
      }
      heard = last_success_ = Clock::now();
      loading_.reset();
      note_back();
      keep(std::move(received->batch));
    }
  }

  /// Records progress: the server counts as alive as long as it makes progress.
  void note_loading(const proto::Loading& loading) {
    if (!loading_ || loading.work() != loading_->work()) {
      last_success_ = Clock::now();
      options_.on_loading(loading.percent());
    }
    loading_ = loading;
  }

  void keep(HostBatch batch) {
    --under_way_;
    ++next_sequence_;
    const std::lock_guard lock(mutex_);
    batches_.push_back(std::move(batch));
    changed_.notify_all();
  }

  /// Returns how many batches may be in flight now, including those that already are.
  std::uint32_t room() {
    const std::lock_guard lock(mutex_);
    return options_.prefetch_batches - static_cast<std::uint32_t>(batches_.size());
  }

  /// Grants credits in steps of half the prefetch. That needs few messages, and keeps at least half of the prefetch in
  /// flight or queued.
  void grant_room(PullCall& call) {
    const std::uint32_t free = room() - under_way_;
    if (2 * free >= options_.prefetch_batches) {
      call.grant(free);
      under_way_ += free;
    }
  }

  /// Waits until this replica has taken batches from the queue. Returns false if the stream is being destroyed.
  bool wait_for_room() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || 2 * batches_.size() <= options_.prefetch_batches; });
    return !stopping_;
  }

  /// Registers the call that the destructor cancels. Null removes it.
  void publish(PullCall* call) {
    const std::lock_guard lock(mutex_);
    call_ = call;
    if (stopping_ && call != nullptr) {
      call->cancel();
    }
  }

  /// Returns the error that ends the stream, if any.
  std::optional<Error> verdict(const grpc::Status& status) const {
    if (status.ok()) {
      return Error{ErrorCode::kBug, fmt::format("batch {} was requested, but the stream of replica {} ended before it",
                                                next_sequence_, options_.selection.replica())};
    }
    if (std::optional<Error> error = final_error(status, options_.address)) {
      return error;
    }
    if (Clock::now() - last_success_ < options_.timeout) {
      return std::nullopt;
    }
    if (loading_) {
      return stuck(options_.address, options_.timeout, options_.selection.source(), *loading_);
    }
    return unreachable(options_.address, options_.timeout, options_.selection.source(),
                       next_sequence_ == options_.first_sequence
                           ? " (no batch yet)"
                           : fmt::format(" (last batch: {})", next_sequence_ - 1));
  }

  void note_lost(const grpc::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      if (lost_since_ || stopping_) {
        return;
      }
    }
    POPRUN_RARE("stream.lost");
    lost_since_ = last_success_;
    log::write(log::Level::kWarning, options_.log_source,
               next_sequence_ == options_.first_sequence
                   ? fmt::format("data server {} has not answered yet ({}); retrying for up to {:g} s",
                                 options_.address, reason_of(status), seconds(options_.timeout))
                   : fmt::format("lost the connection to data server {} after batch {} ({}); retrying for up to {:g} s",
                                 options_.address, next_sequence_ - 1, reason_of(status), seconds(options_.timeout)));
  }

  void note_back() {
    backoff_ = kBackoffFirst;
    if (lost_since_) {
      log::write(log::Level::kInfo, options_.log_source,
                 fmt::format("data server {} is back after {:.1f} s; continuing with batch {}", options_.address,
                             seconds(Clock::now() - *lost_since_), next_sequence_));
      POPRUN_RARE("stream.back");
      lost_since_.reset();
    }
  }

  /// Pauses between two calls. Returns false if the stream is being destroyed.
  bool pause() {
    const auto until = std::min(Clock::now() + backoff_, last_success_ + options_.timeout);
    backoff_ = std::min(2 * backoff_, kBackoffMost);
    std::unique_lock lock(mutex_);
    return !changed_.wait_until(lock, until, [&] { return stopping_; });
  }

  const HostStreamOptions options_;

  // Only the thread uses the following members.
  std::uint64_t next_sequence_;
  std::uint32_t under_way_ = 0;
  Clock::time_point last_success_;
  std::optional<Clock::time_point> lost_since_;
  std::optional<proto::Loading> loading_;  ///< The last progress message since the last batch.
  milliseconds backoff_ = kBackoffFirst;

  std::mutex mutex_;  ///< Guards all members below.
  std::condition_variable changed_;
  std::deque<HostBatch> batches_;
  std::optional<Error> failure_;
  PullCall* call_ = nullptr;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace

std::unique_ptr<HostStream> open_host_stream(const HostStreamOptions& options) {
  return std::make_unique<PrefetchingStream>(options);
}

}  // namespace poprun::hostio
