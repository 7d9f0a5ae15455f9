#include "launcher/wire/coordinator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <mutex>
#include <thread>

#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "proto/coordinator.grpc.pb.h"
#include "replica/link/launcher_link.h"
#include "replica/link/launcher_ports.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::launcher {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Records the coordinator's events, for which threads other than the loop's can wait.
class Events final : public CoordinatorEvents {
 public:
  Status on_join(const proto::JoinRequest& request) override {
    note("join " + std::to_string(request.instance()));
    return request.instance() == 9 ? fail(ErrorCode::kUnreachable, "nine is too many") : Status{};
  }
  void on_beat(const proto::Beat& beat) override {
    note(beat.replicas(0).data_wait_seconds() > 0 ? "wait" : "beat " + beat.replicas(0).activity());
    if (beat.holds()) {
      note("holds after part " + std::to_string(beat.replicas(0).parts()));
    }
  }
  void on_leave(std::uint32_t instance, bool orderly) override {
    note((orderly ? "left " : "lost ") + std::to_string(instance));
  }
  Status on_report(const proto::ReportItem& item) override {
    note("step " + std::to_string(item.step().step()));
    return item.step().step() == 13 ? fail(ErrorCode::kInfrastructure, "out/metrics.csv cannot be written") : Status{};
  }
  Status on_report_end() override {
    note("end");
    return {};
  }
  void on_failure(const proto::Failure& failure) override {
    {
      const std::lock_guard lock(mutex_);
      failures_.push_back(failure);
    }
    note("failed " + failure.message());
  }

  /// Returns true as soon as `event` has arrived, or false after 10 s.
  bool saw(const std::string& event) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(10), [&] { return std::ranges::find(seen_, event) != seen_.end(); });
  }
  std::vector<proto::Failure> failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }
  std::vector<std::string> without_beats() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> rest;
    std::ranges::copy_if(seen_, std::back_inserter(rest), [](const auto& e) { return !e.starts_with("beat"); });
    return rest;
  }

 private:
  void note(std::string event) {
    const std::lock_guard lock(mutex_);
    seen_.push_back(std::move(event));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> seen_;
  std::vector<proto::Failure> failures_;
};

/// A checkpoint's state of two tensors: x, which needs two messages, and y.
std::string state_bytes() {
  const std::string header = R"({"x":{"dtype":"F32","shape":[300000],"data_offsets":[0,1200000]},)"
                             R"("y":{"dtype":"F32","shape":[1],"data_offsets":[1200000,1200004]}})";
  std::string length(8, '\0');
  for (std::size_t k = 0; k < length.size(); ++k) {
    length[k] = static_cast<char>(header.size() >> 8 * k & 0xFF);
  }
  return length + header + std::string(1'000'000, 'x') + std::string(200'000, 'z') + "yyyy";
}

/// A coordinator without a job, whose loop runs in a separate thread.
class CoordinatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = Coordinator::start(loop_, events_,
                                      {.bind_host = "127.0.0.1",
                                       .token = "secret",
                                       .epoch = 7,
                                       .launched_at = monotonic_seconds(),
                                       .initial_weights = weights_,
                                       .onnx_model = onnx_,
                                       .checkpoints = checkpoints_,
                                       .resumed_state = resumed_state_});
    ASSERT_TRUE(started) << started.error().message;
    coordinator_ = std::move(*started);
    thread_ = std::thread([this] { loop_.run(); });
  }

  void TearDown() override { stop(); }

  void stop() {
    if (thread_.joinable()) {
      on_loop([this] { coordinator_->stop([this] { loop_.stop(); }); });
      thread_.join();
    }
  }

  void on_loop(const std::function<void()>& call) {
    std::promise<void> done;
    asio::post(loop_, [&] {
      call();
      done.set_value();
    });
    done.get_future().wait();
  }

  void open(std::uint32_t heartbeat_interval_ms = 20) {
    proto::JoinReply reply;
    reply.mutable_config()->mutable_model()->set_name("small-cnn");
    reply.set_heartbeat_interval_ms(heartbeat_interval_ms);
    on_loop([&] { coordinator_->open(reply); });
  }

  [[nodiscard]] InstanceEnvironment environment(std::uint32_t instance = 3) const {
    return {"127.0.0.1:" + std::to_string(coordinator_->port()), "secret", instance, instance, 1, {}, 7};
  }

  static proto::ReportItem step(std::uint64_t number) {
    proto::ReportItem item;
    item.mutable_step()->set_step(number);
    return item;
  }

  std::vector<Tensor> weights_ = {{"a", "F32", {300000}, std::string(1200000, 'a')}, {"b", "F32", {1}, "bbbb"}};
  testing::TemporaryFolder folder_;
  CheckpointWriter checkpoints_{
      {.folder = folder_.path() / "checkpoints", .metrics = folder_.write("metrics.csv", "step\n")},
      [](std::uint64_t, const auto&) {}};
  std::string resumed_state_ = folder_.write("state.safetensors", state_bytes());
  OnnxFile onnx_{"a.onnx", std::string((2U << 20) + 1, 'o'), {}};
  Events events_;
  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> keep_running_{loop_.get_executor()};
  std::unique_ptr<Coordinator> coordinator_;
  std::thread thread_;
};

TEST_F(CoordinatorTest, AnswersAJoinWhenTheDatasetIsKnown) {
  CoordinatorClient client(environment(), [] {});
  auto joining = std::async(std::launch::async, [&] { return client.join(10); });
  ASSERT_TRUE(events_.saw("join 3"));
  EXPECT_EQ(joining.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);

  open();

  const auto reply = joining.get();
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->config().model().name(), "small-cnn");
  EXPECT_GT(reply->seconds_since_launch(), 0.05);
}

TEST_F(CoordinatorTest, CarriesProgressUp) {
  open();
  CoordinatorClient client(environment(), [] {});
  ASSERT_TRUE(client.join(10));

  client.progress(ReplicaId{3}, 7, "conv1");
  EXPECT_TRUE(events_.saw("beat conv1"));
}

/// Returns the part of `replica`, which is one byte.
proto::StatePart part_of(std::uint32_t replica, std::uint64_t step, std::uint32_t parts = 2) {
  proto::StatePart part;
  part.set_replica(replica);
  part.set_parts(parts);
  part.mutable_host()->set_step(step);
  proto::StateVariable& variable = *part.add_variables();
  variable.set_name("w");
  variable.set_type("u8");
  variable.add_shape(parts);
  variable.set_bytes(parts);
  part.add_slices()->set_offset(replica);
  part.mutable_slices(0)->set_bytes(1);
  return part;
}

TEST_F(CoordinatorTest, StoresOneCheckpointAfterTheOtherOrLeavesOneOut) {
  open();
  CoordinatorClient client(environment(), [] {});
  LauncherCheckpoints first(client, 1, std::chrono::milliseconds(50));
  LauncherCheckpoints second(client, 1, std::chrono::milliseconds(50));
  ASSERT_TRUE(first.begin(part_of(0, 1), false));
  first.send();
  EXPECT_FALSE(first.begin(part_of(0, 2), false));  // The other part of step 1 has not arrived.
  ASSERT_TRUE(second.begin(part_of(1, 1), false));
  second.send();
  EXPECT_TRUE(first.begin(part_of(0, 3), true));
  EXPECT_TRUE(checkpoints_.has_stored());
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "checkpoints/step-1/manifest.json"));
}

TEST_F(CoordinatorTest, BreaksAPartOffAtTheEndWhoseOtherPartDoesNotCome) {
  open();
  CoordinatorClient client(environment(), [] {});
  LauncherCheckpoints first(client, 0, std::chrono::minutes(10));
  EXPECT_EQ(first.last_step(), 0U);
  ASSERT_TRUE(first.begin(part_of(0, 7), false));
  first.send();
  EXPECT_EQ(first.last_step(), 7U);
  first.settle(std::array<std::uint64_t, 4>{7, 5, 0, 0}, std::chrono::minutes(10));  // Must return immediately.
  EXPECT_FALSE(checkpoints_.has_stored());
}

TEST_F(CoordinatorTest, AwaitsThePartsOfTheReplicasThatHaveOneAtTheEnd) {
  open();
  CoordinatorClient client(environment(), [] {});
  for (const std::uint32_t parts : {1U, 2U}) {
    std::vector<std::uint64_t> last_steps(4);  // The other replicas have no part to store.
    std::vector<std::unique_ptr<LauncherCheckpoints>> replicas;
    for (std::uint32_t replica = 0; replica < parts; ++replica) {
      auto& mine =
          replicas.emplace_back(std::make_unique<LauncherCheckpoints>(client, 0, std::chrono::milliseconds(0)));
      proto::StatePart part = part_of(replica, parts, parts);
      part.mutable_host()->set_metric_rows(parts);  // The launcher waits for the last of these rows.
      ASSERT_TRUE(mine->begin(std::move(part), true));
      mine->send();
      last_steps[replica] = mine->last_step();
    }
    std::vector<std::future<void>> settling;
    for (const auto& mine : replicas) {
      settling.push_back(
          std::async(std::launch::async, [&last_steps, &mine] { mine->settle(last_steps, std::chrono::minutes(10)); }));
    }
    EXPECT_EQ(settling[0].wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    std::ofstream(folder_.path() / "metrics.csv", std::ios::app) << "row\n";
    for (auto& settled : settling) {
      settled.get();
    }
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / fmt::format("checkpoints/step-{}/manifest.json", parts)));
  }
}

TEST_F(CoordinatorTest, HoldsADrainedReplicaUntilItIsToldWhereToStop) {
  open();
  CoordinatorClient client(environment(), [] {});
  ASSERT_TRUE(client.join(10));
  const ReplicaId self{3};
  EXPECT_TRUE(client.begin_part(self));
  EXPECT_TRUE(client.begin_part(self));

  on_loop([this] { coordinator_->request_drain(); });
  ASSERT_TRUE(events_.saw("holds after part 2"));
  auto third = std::async(std::launch::async, [&] { return client.begin_part(self); });
  EXPECT_TRUE(events_.saw("beat waiting for the launcher to announce where the job stops"));
  on_loop([this] { coordinator_->stop_after(3); });

  EXPECT_TRUE(third.get());
  EXPECT_FALSE(client.begin_part(self));
}

TEST_F(CoordinatorTest, StopsAReplicaInAStepThatTheJobDoesNotComplete) {
  open();
  CoordinatorClient client(environment(), [] {});
  ASSERT_TRUE(client.join(10));
  const ReplicaId self{3};
  client.begin_parts(self, 4);
  EXPECT_TRUE(client.begin_part(self));
  EXPECT_FALSE(client.stops(self));

  on_loop([this] { coordinator_->request_drain(); });
  ASSERT_TRUE(events_.saw("holds after part 1"));
  on_loop([this] { coordinator_->stop_after(3); });

  EXPECT_FALSE(client.begin_part(self)) << "part 4, which the others do not begin, ends the step";
  EXPECT_TRUE(client.stops(self));
}

TEST_F(CoordinatorTest, BeatsAtOnceWhereAReplicaWaitsForData) {
  open(/*heartbeat_interval_ms=*/3'600'000);
  CoordinatorClient client(environment(), [] {});
  ASSERT_TRUE(client.join(10));
  ASSERT_TRUE(events_.saw("beat starting"));
  client.waits_for_data(ReplicaId{3}, true);
  EXPECT_TRUE(events_.saw("wait"));
}

TEST_F(CoordinatorTest, CarriesAWaitForDataUpAndItsExcuseDown) {
  open();
  CoordinatorClient client(environment(), [] {});
  ASSERT_TRUE(client.join(10));
  const auto excused_by = [&](std::chrono::steady_clock::time_point then) {
    for (int i = 0; i < 1000 && client.last_excuse() < then; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return client.last_excuse() >= then;
  };

  client.waits_for_data(ReplicaId{3}, true);
  EXPECT_TRUE(events_.saw("wait"));
  EXPECT_EQ(client.last_excuse(), std::chrono::steady_clock::time_point{});
  on_loop([this] { coordinator_->excuse(true); });
  EXPECT_TRUE(excused_by(std::chrono::steady_clock::now()));
  on_loop([this] {
    coordinator_->request_drain();
    coordinator_->stop_after(0);
    coordinator_->excuse(false);
  });
  for (int i = 0; i < 1000 && client.last_excuse() + seconds(1) > std::chrono::steady_clock::now(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LT(client.last_excuse(), std::chrono::steady_clock::now() - seconds(1));
  EXPECT_FALSE(client.begin_part(ReplicaId{3}));
}

TEST_F(CoordinatorTest, TellsLeavingFromDying) {
  open();
  bool lost = false;
  {
    CoordinatorClient orderly(environment(1), [&] { lost = true; });
    ASSERT_TRUE(orderly.join(10));
    ASSERT_TRUE(events_.saw("beat starting"));
    orderly.leave();
    EXPECT_TRUE(events_.saw("left 1"));
  }
  {
    CoordinatorClient dying(environment(2), [&] { lost = true; });
    ASSERT_TRUE(dying.join(10));
    dying.progress(ReplicaId{2}, 0, "second");
    ASSERT_TRUE(events_.saw("beat second"));
  }
  EXPECT_TRUE(events_.saw("lost 2"));
  EXPECT_FALSE(lost);
}

TEST_F(CoordinatorTest, AReplicaNoticesThatTheLauncherIsGone) {
  open();
  std::promise<void> lost;
  CoordinatorClient client(environment(), [&] { lost.set_value(); });
  ASSERT_TRUE(client.join(10));
  ASSERT_TRUE(events_.saw("beat starting"));

  stop();

  EXPECT_EQ(lost.get_future().wait_for(seconds(10)), std::future_status::ready);
}

TEST_F(CoordinatorTest, AReplicaThatComesAfterTheEndLeavesWithoutAWord) {
  int lost = 0;
  CoordinatorClient early(environment(), [&] { ++lost; });
  auto joining = std::async(std::launch::async, [&] { return early.join(10); });
  ASSERT_TRUE(events_.saw("join 3"));

  on_loop([this] { coordinator_->close(); });

  EXPECT_FALSE(joining.get());
  CoordinatorClient late(environment(4), [&] { ++lost; });
  EXPECT_FALSE(late.join(10));
  EXPECT_EQ(lost, 2);
  EXPECT_THAT(events_.without_beats(), ElementsAre("join 3"));
}

TEST_F(CoordinatorTest, TakesReportsInOrderAndConfirmsTheEnd) {
  open();
  CoordinatorClient client(environment(), [] {});
  ASSERT_TRUE(client.join(10));
  ASSERT_TRUE(client.report(step(1)));
  ASSERT_TRUE(client.report(step(2)));

  EXPECT_TRUE(client.finish());

  EXPECT_THAT(events_.without_beats(), ElementsAre("join 3", "step 1", "step 2", "end"));
}

TEST_F(CoordinatorTest, AFailedWriteReachesTheReplicaWithItsReason) {
  open();
  CoordinatorClient client(environment(), [] {});
  ASSERT_TRUE(client.join(10));
  ASSERT_TRUE(client.report(step(13)));

  const Status finished = client.finish();

  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, ErrorCode::kInfrastructure);
  EXPECT_EQ(finished.error().message, "out/metrics.csv cannot be written");
}

TEST_F(CoordinatorTest, LetsAFailedInstanceGoOnceTheJobIsDecided) {
  const Error lost{ErrorCode::kInfrastructure, "nobody came", {.missing = {1, 2}}};
  const Error full{
      ErrorCode::kHostResources, "too little", {.address = "node0:7", .shortage = Shortage{Bytes{7}, Bytes{5}}}};
  CoordinatorClient client(environment(), [] {});
  auto failing = std::async(std::launch::async, [&] { client.fail(ReplicaId{3}, lost, {"call 1"}); });
  ASSERT_TRUE(events_.saw("failed nobody came"));
  EXPECT_EQ(failing.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);

  on_loop([this] { coordinator_->close(); });
  failing.get();
  client.fail(ReplicaId{3}, full, {});  // Returns immediately: the coordinator is closed.

  const std::vector<proto::Failure> failures = events_.failures();
  ASSERT_EQ(failures.size(), 2U);
  EXPECT_EQ(failures[0].instance(), 3U);
  EXPECT_EQ(failures[0].exit_code(), 75U);
  EXPECT_THAT(failures[0].missing(), ElementsAre(1, 2));
  EXPECT_THAT(failures[0].recent_calls(), ElementsAre("call 1"));
  EXPECT_FALSE(failures[0].has_needed_bytes());
  EXPECT_EQ(failures[1].exit_code(), 69U);
  EXPECT_EQ(failures[1].address(), "node0:7");
  EXPECT_EQ(failures[1].needed_bytes(), 7U);
  EXPECT_EQ(failures[1].had_bytes(), 5U);
}

TEST_F(CoordinatorTest, TakesFourFailuresOfAnInstance) {
  CoordinatorClient client(environment(), [] {});
  on_loop([this] { coordinator_->close(); });
  for (int k = 0; k < 6; ++k) {
    client.fail(ReplicaId{3}, {ErrorCode::kInfrastructure, fmt::format("failure {}", k)}, {});
  }
  const std::vector<proto::Failure> failures = events_.failures();
  ASSERT_EQ(failures.size(), 4U);
  EXPECT_EQ(failures[3].message(), "failure 3");
}

TEST_F(CoordinatorTest, SendsTheStateOfACheckpointInPieces) {
  proto::Coordinator::Stub stub(grpc::CreateChannel(environment().coordinator, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.AddMetadata("poprun-token", "secret");
  context.AddMetadata("poprun-epoch", "7");
  const auto reader = stub.SendState(&context, {});
  std::vector<std::string> pieces;
  std::string x;
  proto::TensorChunk chunk;
  while (reader->Read(&chunk)) {
    pieces.push_back(fmt::format("{} {}{}", chunk.name(), chunk.data().size(), chunk.last() ? " last" : ""));
    x += chunk.name() == "x" ? chunk.data() : "";
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(pieces, ElementsAre("x 1048576", "x 151424 last", "y 4 last"));
  EXPECT_EQ(x, std::string(1'000'000, 'x') + std::string(200'000, 'z'));
  EXPECT_EQ(chunk.type(), "f32");
  EXPECT_THAT(chunk.shape(), ElementsAre(1));
}

TEST_F(CoordinatorTest, SendsInitialWeightsInPieces) {
  CoordinatorClient client(environment(), [] {});
  std::vector<std::string> names;
  std::string a;

  const Status received = client.receive_weights([&](const proto::TensorChunk& chunk) -> Status {
    names.push_back(chunk.name() + (chunk.last() ? "." : "-"));
    EXPECT_EQ(chunk.type(), "f32");
    a += chunk.name() == "a" ? chunk.data() : "";
    return {};
  });

  ASSERT_TRUE(received) << received.error().message;
  EXPECT_THAT(names, ElementsAre("a-", "a.", "b."));
  EXPECT_EQ(a, weights_[0].data);
}

TEST_F(CoordinatorTest, SendsTheWeightsOfALargeOnnxModelFromTheirFiles) {
  weights_.clear();
  const std::string file = folder_.write("data", "..wxyz" + std::string(1'200'000, 'v'));
  onnx_.weights = {{"v", "F32", {300'000}, file, 6, 1'200'000}, {"w", "F16", {2}, file, 2, 4}};
  CoordinatorClient client(environment(), [] {});
  std::map<std::string, std::string> received;
  std::vector<std::string> pieces;
  const Status status = client.receive_weights([&](const proto::TensorChunk& chunk) -> Status {
    received[chunk.name() + " " + chunk.type()] += chunk.data();
    pieces.push_back(chunk.name() + (chunk.last() ? "." : "-"));
    return {};
  });
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_THAT(pieces, ElementsAre("v-", "v.", "w."));
  EXPECT_EQ(received["v f32"], std::string(1'200'000, 'v'));
  EXPECT_EQ(received["w f16"], "wxyz");
  std::filesystem::remove(file);
  const Status lost = client.receive_weights([](const proto::TensorChunk&) { return Status{}; });
  ASSERT_FALSE(lost);
  EXPECT_THAT(lost.error().message, ::testing::HasSubstr("tensor 'v' cannot be read"));
}

TEST_F(CoordinatorTest, SendsAnOnnxFileWhole) {
  CoordinatorClient client(environment(), [] {});
  const auto received = client.receive_model();
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_EQ(received->name, "a.onnx");
  EXPECT_EQ(received->bytes, onnx_.bytes);
}

TEST_F(CoordinatorTest, AnOnnxFileWithoutItsEndIsRefused) {
  onnx_.bytes.clear();
  CoordinatorClient client(environment(), [] {});
  const auto received = client.receive_model();
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().message, "the launcher stopped sending the ONNX model: the end is missing");
}

TEST_F(CoordinatorTest, ReceivingStopsAtTheFirstRefusal) {
  CoordinatorClient client(environment(), [] {});
  const Status received = client.receive_weights(
      [](const proto::TensorChunk&) -> Status { return fail(ErrorCode::kData, "no such tensor"); });
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().message, "no such tensor");
}

TEST_F(CoordinatorTest, WantsTheToken) {
  open();
  InstanceEnvironment wrong = environment();
  wrong.token = "guess";
  CoordinatorClient client(wrong, [] {});

  const auto joined = client.join(10);
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, HasSubstr("is wrong or missing"));
  EXPECT_FALSE(client.receive_weights([](const proto::TensorChunk&) { return Status{}; }));
  ASSERT_TRUE(client.report(step(1)));
  EXPECT_FALSE(client.finish());
  client.fail(ReplicaId{3}, {ErrorCode::kBug, "not heard"}, {});
  EXPECT_TRUE(events_.without_beats().empty());
}

TEST_F(CoordinatorTest, TurnsAwayInstancesOfAnotherAttempt) {
  open();
  for (const std::uint64_t epoch : {environment().epoch - 1, environment().epoch + 1}) {
    InstanceEnvironment other = environment();
    other.epoch = epoch;
    bool lost = false;
    CoordinatorClient client(other, [&] { lost = true; });
    const auto joined = client.join(10);
    ASSERT_FALSE(joined);
    EXPECT_THAT(joined.error().message, HasSubstr("over"));
    ASSERT_TRUE(client.report(step(1)));
    EXPECT_FALSE(client.finish());
    client.fail(ReplicaId{3}, {ErrorCode::kBug, "not heard"}, {});
  }
  EXPECT_TRUE(events_.without_beats().empty());
}

TEST_F(CoordinatorTest, ReadsNoMessageOfWhoeverHasNoToken) {
  grpc::GenericStub stub(grpc::CreateChannel(environment().coordinator, grpc::InsecureChannelCredentials()));
  const auto ask = [&](const std::string& method, const std::string& token) {
    grpc::ClientContext context;
    context.AddMetadata("poprun-token", token);
    context.AddMetadata("poprun-epoch", "7");
    context.set_deadline(std::chrono::system_clock::now() + seconds(10));
    const grpc::Slice slice("\xFF\xFF\xFF");
    const grpc::ByteBuffer unreadable(&slice, 1);
    grpc::ByteBuffer answer;
    std::promise<grpc::StatusCode> code;
    stub.UnaryCall(&context, "/poprun.proto.Coordinator/" + method, {}, &unreadable, &answer,
                   [&](const grpc::Status& status) { code.set_value(status.error_code()); });
    return code.get_future().get();
  };
  for (const char* method : {"Join", "Fail"}) {
    EXPECT_EQ(ask(method, "guess"), grpc::StatusCode::UNAUTHENTICATED) << method;
    EXPECT_EQ(ask(method, "secret"), grpc::StatusCode::INVALID_ARGUMENT) << method;
  }
}

TEST_F(CoordinatorTest, TakesTwoPartsOfEachReplicaAtOnce) {
  auto started = Coordinator::start(loop_, events_,
                                    {.bind_host = "127.0.0.1",
                                     .token = "",
                                     .job = {.instances = 1, .replicas_per_instance = 1},
                                     .launched_at = monotonic_seconds(),
                                     .initial_weights = weights_,
                                     .onnx_model = onnx_,
                                     .checkpoints = checkpoints_,
                                     .resumed_state = ""});
  ASSERT_TRUE(started);
  proto::Coordinator::Stub stub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string((*started)->port()), grpc::InsecureChannelCredentials()));
  std::array<grpc::ClientContext, 3> contexts;
  std::array<std::thread, 3> calls;
  std::atomic<int> refused = 0;
  std::promise<void> one_ended;
  std::once_flag once;
  for (std::size_t k = 0; k < calls.size(); ++k) {
    calls[k] = std::thread([&, k] {
      proto::StoreStateReply reply;
      contexts[k].AddMetadata("poprun-epoch", "0");
      const grpc::Status status = stub.StoreState(&contexts[k], &reply)->Finish();
      refused += status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ? 1 : 0;
      std::call_once(once, [&] { one_ended.set_value(); });
    });
  }
  EXPECT_EQ(one_ended.get_future().wait_for(seconds(10)), std::future_status::ready);
  for (std::size_t k = 0; k < calls.size(); ++k) {
    contexts[k].TryCancel();
    calls[k].join();
  }
  EXPECT_EQ(refused, 1);
  std::promise<void> stopped;
  on_loop([&] { (*started)->stop([&] { stopped.set_value(); }); });
  stopped.get_future().wait();
}

TEST_F(CoordinatorTest, RefusesAPartOfACheckpointThatDoesNotBeginWithItsOnlyDescription) {
  proto::Coordinator::Stub stub(grpc::CreateChannel(environment().coordinator, grpc::InsecureChannelCredentials()));
  proto::StatePiece data;
  data.set_data("1234");
  proto::StatePiece part;
  *part.mutable_part() = part_of(0, 2);
  const auto code_of = [&](const std::vector<proto::StatePiece>& pieces) {
    grpc::ClientContext context;
    context.AddMetadata("poprun-token", "secret");
    context.AddMetadata("poprun-epoch", "7");
    context.set_deadline(std::chrono::system_clock::now() + seconds(20));
    proto::StoreStateReply reply;
    const auto stream = stub.StoreState(&context, &reply);
    for (const proto::StatePiece& piece : pieces) {
      stream->Write(piece);
    }
    stream->WritesDone();
    return stream->Finish().error_code();
  };
  EXPECT_EQ(code_of({data, part}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code_of({}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code_of({part, part}), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(CoordinatorTest, BeyondLoopbackLetsInThoseWithTheJobsIdentityAlone) {
  constexpr const char* kToken = "0123456789abcdef";
  auto started = Coordinator::start(loop_, events_,
                                    {.bind_host = "127.0.0.1",
                                     .token = kToken,
                                     .epoch = 7,
                                     .identity = identity_of_token(kToken),
                                     .launched_at = monotonic_seconds(),
                                     .initial_weights = weights_,
                                     .onnx_model = onnx_,
                                     .checkpoints = checkpoints_,
                                     .resumed_state = ""});
  ASSERT_TRUE(started);
  on_loop([&] { (*started)->open({}); });
  InstanceEnvironment own = environment();
  own.coordinator = "127.0.0.1:" + std::to_string((*started)->port());
  own.token = kToken;
  EXPECT_FALSE(CoordinatorClient(own, [] {}).join(0.5)) << "in plain text";
  own.identity = identity_of_token("0123456789abcdee");
  EXPECT_FALSE(CoordinatorClient(own, [] {}).join(0.5)) << "with another job's identity";
  EXPECT_TRUE(events_.without_beats().empty());
  own.identity = identity_of_token(kToken);
  CoordinatorClient client(own, [] {});
  const auto joined = client.join(10);
  EXPECT_TRUE(joined) << joined.error().message;
  client.leave();
  std::promise<void> stopped;
  on_loop([&] { (*started)->stop([&] { stopped.set_value(); }); });
  stopped.get_future().wait();
}

TEST_F(CoordinatorTest, HearsNothingThatIsOutOfBounds) {
  open();
  CoordinatorClient client(environment(4096), [] {});  // The job has 4,096 instances, 0 to 4095.
  EXPECT_THAT(client.join(10).error().message, HasSubstr("instance 4096 does not exist"));
  client.fail(ReplicaId{4096}, {ErrorCode::kBug, "not heard"}, {});
  CoordinatorClient known(environment(), [] {});
  known.fail(ReplicaId{3}, {ErrorCode::kBug, std::string(2 << 20, 'x')}, {});
  proto::ReportItem output;
  output.mutable_output()->set_data("1234");
  ASSERT_TRUE(known.report(output));
  EXPECT_THAT(known.finish().error().message, HasSubstr("has no shape"));
  EXPECT_TRUE(events_.without_beats().empty());
}

TEST_F(CoordinatorTest, TellsWhoseHeartbeatItRefusesAndWhy) {
  open();
  std::promise<void> lost;
  CoordinatorClient client(environment(), [&] { lost.set_value(); });
  ASSERT_TRUE(client.join(10));
  ASSERT_TRUE(events_.saw("beat starting"));
  client.progress(ReplicaId{3}, 1, std::string(5000, 'x'));
  EXPECT_EQ(lost.get_future().wait_for(seconds(10)), std::future_status::ready);
  const std::vector<proto::Failure> failures = events_.failures();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].instance(), 3U);
  EXPECT_EQ(failures[0].replica(), 3U);
  EXPECT_EQ(failures[0].exit_code(), static_cast<std::uint32_t>(exit_code_of(ErrorCode::kBug)));
  EXPECT_THAT(failures[0].message(), HasSubstr("the launcher refused this instance's heartbeat: "));
}

TEST_F(CoordinatorTest, RefusesAnInstanceWithTheJobsReason) {
  CoordinatorClient client(environment(9), [] {});
  const auto joined = client.join(10);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ErrorCode::kInfrastructure);
  EXPECT_THAT(joined.error().message, HasSubstr("nine is too many"));
}

}  // namespace
}  // namespace poprun::launcher
