#include "launcher/wire/dataset_query.h"

#include <chrono>
#include <future>
#include <utility>
#include <vector>

#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <netdb.h>

#include "proto/host_streams.grpc.pb.h"
#include "replica/base/grpc/channel.h"

namespace poprun::launcher {
namespace {

/// Opens a channel that stays open until the process ends, because gRPC 1.51 occasionally aborts if the last channel is
/// closed while its thread polls. Call this only on the loop's thread.
std::shared_ptr<grpc::Channel> kept_channel(const DatasetQuery::Question& question) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  static auto& kept = *new std::vector<std::shared_ptr<grpc::Channel>>;  // NOLINT: never destroyed.
  kept.push_back(open_channel(question.address, question.identity, arguments));
  return kept.back();
}

/// Returns whether the host of `address`, host:port, is an address or a name that resolves.
bool resolves(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  addrinfo* found = nullptr;
  if (getaddrinfo((bracketed ? host.substr(1, host.size() - 2) : host).c_str(), nullptr, nullptr, &found) != 0) {
    return false;
  }
  freeaddrinfo(found);
  return true;
}

const char* remedy(const DatasetQuery::Question& question) {
  if (!resolves(question.address)) {
    return "this host name does not resolve";
  }
  // If TLS rejects a client, the client does not learn the reason.
  return question.identity ? "check that poprun-emu-hostio is running there, with --bind for other "
                             "hosts and the same POPRUN_EMU_TOKEN or --tls-ca"
                           : "check that poprun-emu-hostio is running there and listens on loopback only; a server "
                             "that other hosts can reach cannot be addressed as localhost";
}

Error error_of(const grpc::Status& status, const DatasetQuery::Question& question,
               const std::optional<proto::Loading>& loading) {
  const std::string& message = status.error_message();
  const grpc::StatusCode code = status.error_code();
  if (code == grpc::StatusCode::NOT_FOUND || code == grpc::StatusCode::DATA_LOSS) {
    return {ErrorCode::kData, message};
  }
  if (code == grpc::StatusCode::INVALID_ARGUMENT) {
    return {ErrorCode::kUsage, message};
  }
  if (code == grpc::StatusCode::UNIMPLEMENTED) {
    return {ErrorCode::kUsage, fmt::format("the service at {} is not a poprun-emu data server", question.address)};
  }
  if (code == grpc::StatusCode::UNAUTHENTICATED) {
    return {ErrorCode::kUsage, fmt::format("the data server at {} expects a different token: {}; set "
                                           "POPRUN_EMU_TOKEN to the token that the server was started with",
                                           question.address, message)};
  }
  if (code == grpc::StatusCode::DEADLINE_EXCEEDED && loading) {
    return {ErrorCode::kUnreachable,
            fmt::format("the data server at {} is reading '{}', but has made no progress beyond {} % for {} s; check "
                        "the disk that the server reads from, or raise --hostio-timeout",
                        question.address, question.source, loading->percent(), question.timeout_seconds),
            {.address = question.address}};
  }
  if (code == grpc::StatusCode::DEADLINE_EXCEEDED || code == grpc::StatusCode::UNAVAILABLE) {
    return {ErrorCode::kUnreachable,
            fmt::format("the data server at {} did not answer for {} s; {}", question.address, question.timeout_seconds,
                        remedy(question)),
            {.address = question.address}};
  }
  return {ErrorCode::kUnreachable, fmt::format("the data server at {} failed with gRPC code {}: {}", question.address,
                                               static_cast<int>(code), message)};
}

}  // namespace

/// A call to the data server. The object lives until gRPC has finished with it and the loop has dropped it.
class DatasetQuery::Call final : public grpc::ClientReadReactor<proto::DescribeReply>,
                                 public std::enable_shared_from_this<Call> {
 public:
  Call(asio::io_context& loop, const Question& question, News news, Answer answer)
      : loop_(loop),
        question_(question),
        news_(std::move(news)),
        answer_(std::move(answer)),
        timer_(loop),
        stub_(proto::HostStreams::NewStub(kept_channel(question))) {
    request_.set_source(question.source);
    request_.set_only_describe(question.only_describe);
    if (!question.token.empty()) {
      context_.AddMetadata("poprun-token", question.token);
    }
    context_.set_wait_for_ready(true);
  }

  /// Starts the call. Like all functions except the reactor's, this runs on the loop's thread.
  void start() {
    self_ = shared_from_this();
    wait_longer();
    stub_->async()->Describe(&context_, &request_, this);
    StartRead(&reply_);
    StartCall();
  }

  void forget() {
    answer_ = nullptr;
    news_ = nullptr;
    timer_.cancel();
    context_.TryCancel();
    over_.get_future().wait();
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      asio::post(loop_, [self = shared_from_this(), reply = reply_] { self->take(reply); });
      StartRead(&reply_);
    }
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Call> self = std::move(self_);
    asio::post(loop_, [self, status] { self->end(status); });
    over_.set_value();
  }

 private:
  void take(const proto::DescribeReply& reply) {
    if (reply.has_dataset()) {
      dataset_ = reply.dataset();
    } else if (reply.has_loading()) {
      const bool gets_on = !loading_ || reply.loading().work() != loading_->work();
      loading_ = reply.loading();
      if (gets_on && answer_) {
        wait_longer();
        news_(*loading_);
      }
    }
  }

  void end(grpc::Status status) {
    timer_.cancel();
    if (is_late_) {
      status = grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "");
    } else if (status.ok() && !dataset_) {
      status = grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no description arrived");
    }
    // Moves `answer_` out first, since calling it may destroy this query.
    if (const Answer take = std::exchange(answer_, nullptr)) {
      take(status.ok() ? Result<proto::Dataset>(*dataset_)
                       : Result<proto::Dataset>(tl::unexpected<Error>{error_of(status, question_, loading_)}));
    }
  }

  void wait_longer() {
    timer_.expires_after(std::chrono::milliseconds(static_cast<std::int64_t>(question_.timeout_seconds * 1000)));
    timer_.async_wait([self = shared_from_this()](const asio::error_code& cancelled) {
      if (!cancelled) {
        self->is_late_ = true;
        self->context_.TryCancel();
      }
    });
  }

  asio::io_context& loop_;
  Question question_;
  News news_;
  Answer answer_;  ///< Emptied when the query is cancelled.
  asio::steady_timer timer_;
  bool is_late_ = false;
  std::optional<proto::Loading> loading_;  ///< The last progress message.
  std::optional<proto::Dataset> dataset_;

  std::unique_ptr<proto::HostStreams::Stub> stub_;
  grpc::ClientContext context_;
  proto::DescribeRequest request_;
  proto::DescribeReply reply_;  ///< Filled by the read in progress.
  std::promise<void> over_;
  std::shared_ptr<Call> self_;  ///< Shared with gRPC until OnDone.
};

DatasetQuery::DatasetQuery(asio::io_context& loop, const Question& question, News news, Answer answer)
    : call_(std::make_shared<Call>(loop, question, std::move(news), std::move(answer))) {
  call_->start();
}

DatasetQuery::~DatasetQuery() {
  call_->forget();
}

}  // namespace poprun::launcher
