/// Questions to a data server that answers, reads for a while, is silent, or is not there.

#include "launcher/wire/dataset_query.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <asio/executor_work_guard.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include "proto/host_streams.grpc.pb.h"

namespace poprun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

/// A data server that answers questions with a function.
class Server final : public proto::HostStreams::Service {
 public:
  using Writer = grpc::ServerWriter<proto::DescribeReply>;
  using Answer = std::function<grpc::Status(const grpc::ServerContext&, const proto::DescribeRequest&, Writer&)>;

  explicit Server(Answer answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Server() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Describe(grpc::ServerContext* context, const proto::DescribeRequest* request, Writer* writer) override {
    return answer_(*context, *request, *writer);
  }

  [[nodiscard]] std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  Answer answer_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

proto::DescribeReply dataset(std::uint64_t items) {
  proto::DescribeReply reply;
  reply.mutable_dataset()->set_train_items(items);
  return reply;
}

proto::DescribeReply loading(std::uint64_t work, std::uint32_t percent) {
  proto::DescribeReply reply;
  reply.mutable_loading()->set_work(work);
  reply.mutable_loading()->set_percent(percent);
  return reply;
}

/// Waits until the client gives up.
grpc::Status be_silent(const grpc::ServerContext& context) {
  while (!context.IsCancelled()) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  return grpc::Status::CANCELLED;
}

/// The outcome of a question, once the loop has nothing left to do.
struct Outcome {
  std::optional<Result<proto::Dataset>> answer;
  std::vector<std::uint32_t> percents;
  double seconds = 0;
};

Outcome ask(const DatasetQuery::Question& question) {
  asio::io_context loop;
  Outcome outcome;
  const auto begin = steady_clock::now();
  const DatasetQuery query(
      loop, question, [&](const proto::Loading& news) { outcome.percents.push_back(news.percent()); },
      [&](Result<proto::Dataset> answer) {
        EXPECT_FALSE(outcome.answer) << "answered twice";
        outcome.answer = std::move(answer);
      });
  auto work = asio::make_work_guard(loop);
  while (!outcome.answer && steady_clock::now() - begin < std::chrono::seconds(20)) {
    loop.run_one_for(milliseconds(100));
  }
  work.reset();
  loop.run();  // Until no timer is left.
  outcome.seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
  return outcome;
}

constexpr double kLong = 60;

TEST(DatasetQuery, ReceivesTheDescriptionAndLeavesNoTimer) {
  std::string token;
  proto::DescribeRequest asked;
  const Server server([&](const grpc::ServerContext& context, const proto::DescribeRequest& request, auto& writer) {
    const auto found = context.client_metadata().find("poprun-token");
    token = found == context.client_metadata().end() ? "" : std::string(found->second.data(), found->second.size());
    asked = request;
    writer.Write(dataset(7));
    return grpc::Status::OK;
  });
  const Outcome outcome = ask({.address = server.address(),
                               .token = "secret",
                               .identity = {},
                               .source = "idx:DIR",
                               .only_describe = true,
                               .timeout_seconds = kLong});
  ASSERT_TRUE(outcome.answer && *outcome.answer);
  EXPECT_EQ((*outcome.answer)->train_items(), 7U);
  EXPECT_EQ(token, "secret");
  EXPECT_EQ(asked.source(), "idx:DIR");
  EXPECT_TRUE(asked.only_describe());
  EXPECT_LT(outcome.seconds, kLong / 2);
}

TEST(DatasetQuery, WaitsAsLongAsTheServerMakesProgress) {
  const Server server([](const grpc::ServerContext& /*context*/, const auto& /*request*/, auto& writer) {
    for (std::uint32_t k = 1; k <= 8; ++k) {
      writer.Write(loading(k, 10 * k));
      std::this_thread::sleep_for(milliseconds(200));
    }
    writer.Write(dataset(7));
    return grpc::Status::OK;
  });
  const Outcome outcome =
      ask({.address = server.address(), .token = {}, .identity = {}, .source = "x", .timeout_seconds = 1});
  ASSERT_TRUE(outcome.answer && *outcome.answer) << outcome.answer->error().message;
  EXPECT_THAT(outcome.percents, ::testing::ElementsAre(10, 20, 30, 40, 50, 60, 70, 80));
  EXPECT_GT(outcome.seconds, 1.5) << "longer than the time without news";
}

TEST(DatasetQuery, GivesUpOnAServerThatMakesNoProgress) {
  const Server server([](const grpc::ServerContext& context, const auto& /*request*/, auto& writer) {
    while (!context.IsCancelled()) {
      writer.Write(loading(5, 30));
      std::this_thread::sleep_for(milliseconds(50));
    }
    return grpc::Status::CANCELLED;
  });
  const Outcome outcome =
      ask({.address = server.address(), .token = {}, .identity = {}, .source = "text:x", .timeout_seconds = 0.4});
  ASSERT_TRUE(outcome.answer && !*outcome.answer);
  EXPECT_EQ(outcome.answer->error().code, ErrorCode::kUnreachable);
  EXPECT_EQ(outcome.answer->error().facts.address, server.address());
  EXPECT_THAT(outcome.answer->error().message,
              HasSubstr("is reading 'text:x', but has made no progress beyond 30 % for 0.4 s"));
  EXPECT_THAT(outcome.percents, ::testing::ElementsAre(30)) << "news only of progress";
}

TEST(DatasetQuery, GivesUpOnAServerThatIsSilentOrAbsent) {
  const Server silent(
      [](const grpc::ServerContext& context, const auto& /*request*/, auto& /*writer*/) { return be_silent(context); });
  for (const std::string& address : {silent.address(), std::string("127.0.0.1:1")}) {
    const Outcome outcome =
        ask({.address = address, .token = {}, .identity = {}, .source = "x", .timeout_seconds = 0.4});
    ASSERT_TRUE(outcome.answer && !*outcome.answer) << address;
    EXPECT_EQ(outcome.answer->error().code, ErrorCode::kUnreachable);
    EXPECT_EQ(outcome.answer->error().facts.address, address);
    EXPECT_THAT(outcome.answer->error().message, HasSubstr("did not answer for 0.4 s; check that poprun-emu-hostio"));
    EXPECT_GE(outcome.seconds, 0.4);
  }
}

TEST(DatasetQuery, SaysWhatTheServerRefuses) {
  struct Case {
    grpc::Status status;
    ErrorCode code;
    std::string message;
  };
  const std::vector<Case> cases = {
      {grpc::Status::OK, ErrorCode::kUsage, "is not a poprun-emu data server"},
      {{grpc::StatusCode::UNIMPLEMENTED, "?"}, ErrorCode::kUsage, "is not a poprun-emu data server"},
      {{grpc::StatusCode::NOT_FOUND, "no file"}, ErrorCode::kData, "no file"},
      {{grpc::StatusCode::DATA_LOSS, "damaged"}, ErrorCode::kData, "damaged"},
      {{grpc::StatusCode::INVALID_ARGUMENT, "unknown source"}, ErrorCode::kUsage, "unknown source"},
      {{grpc::StatusCode::UNAUTHENTICATED, "none"}, ErrorCode::kUsage, "expects a different token: none"},
      {{grpc::StatusCode::INTERNAL, "broken"}, ErrorCode::kUnreachable, "failed with gRPC code 13: broken"}};
  for (const Case& one : cases) {
    const Server server(
        [&](const grpc::ServerContext& /*context*/, const auto& /*request*/, auto& /*writer*/) { return one.status; });
    const Outcome outcome =
        ask({.address = server.address(), .token = {}, .identity = {}, .source = "x", .timeout_seconds = kLong});
    ASSERT_TRUE(outcome.answer && !*outcome.answer) << one.message;
    EXPECT_EQ(outcome.answer->error().code, one.code) << one.message;
    EXPECT_THAT(outcome.answer->error().message, HasSubstr(one.message));
    EXPECT_LT(outcome.seconds, kLong / 2);
  }
}

TEST(DatasetQuery, IsSilentOnceItIsDestroyed) {
  const Server silent(
      [](const grpc::ServerContext& context, const auto& /*request*/, auto& /*writer*/) { return be_silent(context); });
  asio::io_context loop;
  const auto begin = steady_clock::now();
  auto query = std::make_unique<DatasetQuery>(
      loop,
      DatasetQuery::Question{
          .address = silent.address(), .token = {}, .identity = {}, .source = "x", .timeout_seconds = kLong},
      [](const proto::Loading& /*news*/) { ADD_FAILURE() << "news"; },
      [](const Result<proto::Dataset>& /*answer*/) { ADD_FAILURE() << "answered"; });
  loop.run_for(milliseconds(100));
  query.reset();
  loop.restart();
  loop.run();
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(30)) << "no timer is left";
}

}  // namespace
}  // namespace poprun::launcher
