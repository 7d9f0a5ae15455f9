#include "launcher/wire/dataset_query.h"

#include <chrono>
#include <future>
#include <utility>
#include <vector>

#include <asio/post.hpp>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <netdb.h>

#include "proto/host_streams.grpc.pb.h"
#include "replica/tls/channel.h"

namespace poprun::launcher {
namespace {

/// None is closed before the process ends: gRPC 1.51 aborts now and then if the last one is closed
/// while its thread polls. Belongs to the loop's thread.
std::shared_ptr<grpc::Channel> kept_channel(const DatasetQuery::Question& question) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  static auto& kept = *new std::vector<std::shared_ptr<grpc::Channel>>;  // NOLINT: never destroyed.
  kept.push_back(open_channel(question.address, question.identity, arguments));
  return kept.back();
}

/// Whether the host of `address`, host:port, is an address or a name that has one.
bool resolves(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  addrinfo* found = nullptr;
  if (getaddrinfo((bracketed ? host.substr(1, host.size() - 2) : host).c_str(), nullptr, nullptr,
                  &found) != 0) {
    return false;
  }
  freeaddrinfo(found);
  return true;
}

const char* remedy(const DatasetQuery::Question& question) {
  if (!resolves(question.address)) {
    return "its name does not resolve";
  }
  // Whoever is not let in is told no reason by TLS.
  return question.identity ? "check that poprun-emu-hostio is running there, with --bind for other "
                             "hosts and the same POPRUN_EMU_TOKEN or --tls-ca"
                           : "check that poprun-emu-hostio is running there, and listens on "
                             "loopback alone: what other hosts reach is not spoken to as localhost";
}

Error error_of(const grpc::Status& status, const DatasetQuery::Question& question) {
  const std::string& message = status.error_message();
  const grpc::StatusCode code = status.error_code();
  if (code == grpc::StatusCode::NOT_FOUND || code == grpc::StatusCode::DATA_LOSS) {
    return {ErrorCode::kData, message};
  }
  if (code == grpc::StatusCode::INVALID_ARGUMENT) {
    return {ErrorCode::kUsage, message};
  }
  if (code == grpc::StatusCode::UNIMPLEMENTED) {
    return {ErrorCode::kUsage,
            fmt::format("the service at {} is not a poprun-emu data server", question.address)};
  }
  if (code == grpc::StatusCode::UNAUTHENTICATED) {
    return {ErrorCode::kUsage,
            fmt::format("the data server at {} expects a different token: {}; set "
                        "POPRUN_EMU_TOKEN to the one it was started with",
                        question.address, message)};
  }
  if (code == grpc::StatusCode::DEADLINE_EXCEEDED || code == grpc::StatusCode::UNAVAILABLE) {
    return {ErrorCode::kUnreachable,
            fmt::format("the data server at {} did not answer for {} s; {}", question.address,
                        question.timeout_seconds, remedy(question)),
            {.address = question.address}};
  }
  return {ErrorCode::kUnreachable, fmt::format("the data server at {} failed with gRPC code {}: {}",
                                               question.address, static_cast<int>(code), message)};
}

}  // namespace

struct DatasetQuery::Call {
  Question question;
  std::unique_ptr<proto::HostStreams::Stub> stub;
  grpc::ClientContext context;
  proto::DescribeRequest request;
  proto::Dataset dataset;
  Answer answer;  ///< Emptied when the question is cancelled. Only the loop's thread touches it.
  std::promise<void> over;
};

DatasetQuery::DatasetQuery(asio::io_context& loop, const Question& question, Answer answer)
    : call_(std::make_shared<Call>()) {
  call_->question = question;
  call_->answer = std::move(answer);
  call_->stub = proto::HostStreams::NewStub(kept_channel(question));
  call_->request.set_source(question.source);
  if (!question.token.empty()) {
    call_->context.AddMetadata("poprun-token", question.token);
  }
  call_->context.set_wait_for_ready(true);
  call_->context.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::milliseconds(static_cast<std::int64_t>(question.timeout_seconds * 1000)));
  // Shared: the posted answer may be the last to hold the call.
  call_->stub->async()->Describe(
      &call_->context, &call_->request, &call_->dataset,
      [call = call_, &loop](const grpc::Status& status) {
        asio::post(loop, [call, status] {
          // Moved out first: an answer may end this question.
          if (const Answer take = std::exchange(call->answer, nullptr)) {
            take(status.ok() ? Result<proto::Dataset>(call->dataset)
                             : Result<proto::Dataset>(
                                   tl::unexpected<Error>{error_of(status, call->question)}));
          }
        });
        call->over.set_value();
      });
}

DatasetQuery::~DatasetQuery() {
  call_->answer = nullptr;
  call_->context.TryCancel();
  call_->over.get_future().wait();
}

}  // namespace poprun::launcher
