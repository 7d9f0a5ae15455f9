// DEPS: poprun::hostio_streams poprun::launcher_wire poprun::launcher_verdict
#include <array>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostio/datasets/dataset.h"
#include "hostio/streams/server.h"
#include "launcher/outputs/job_results.h"
#include "launcher/verdict/job_state.h"
#include "launcher/verdict/slow_replicas.h"
#include "launcher/wire/coordinator.h"
#include "proto/coordinator.pb.h"
#include "replica/base/sha256.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/temporary_folder.h"

namespace {

using poprun::Result;
using poprun::Status;
using poprun::launcher::Coordinator;
namespace proto = poprun::proto;
namespace hostio = poprun::hostio;
namespace launcher = poprun::launcher;

constexpr const char* kToken = "c41f6e0b9d7a258390e2b4fd61a7c835";
constexpr std::uint32_t kInstances = 4;
constexpr std::uint32_t kUnderWayMax = 64;
constexpr std::uint64_t kBetweenLooks = 20'000;                      // Requests.
constexpr std::uint64_t kResidentBytesMax = std::uint64_t{3} << 30;  // Including a sanitizer's own.

constexpr std::array kMethods = {"/poprun.proto.HostStreams/Describe",  "/poprun.proto.HostStreams/Pull",
                                 "/grpc.health.v1.Health/Check",        "/poprun.proto.Coordinator/Join",
                                 "/poprun.proto.Coordinator/Heartbeat", "/poprun.proto.Coordinator/Report",
                                 "/poprun.proto.Coordinator/Fail",      "/poprun.proto.Coordinator/SendWeights",
                                 "/poprun.proto.Coordinator/SendModel", "/poprun.proto.Coordinator/StoreState",
                                 "/poprun.proto.Coordinator/SendState"};
constexpr std::size_t kMethodsOfDataServer = 3;
constexpr std::uint8_t kRaw = 0xF0;       // From this value on the input is raw bytes instead of a call.
constexpr std::uint8_t kWrongToken = 16;  // Flag of the first byte, in addition to the method's number.
constexpr std::uint8_t kTwice = 32;       // Flag: the message is sent twice.

/// A launcher's state without a job: stores the messages of instances as a job would.
class Listener final : public launcher::CoordinatorEvents {
 public:
  explicit Listener(std::string folder)
      : folder_(std::move(folder)), state_(placement(), 0, ""), drain_(kInstances), stragglers_(kInstances) {
    config_.mutable_report()->add_dump_tensors()->set_step(1);
    results_.emplace(disk_, folder_, config_);
  }

  Status on_join(const proto::JoinRequest& request) override { return state_.join(request, now()); }
  void on_beat(const proto::Beat& beat) override {
    state_.beat(beat, now());
    drain_.beat(beat);
    stragglers_.beat(beat);
  }
  void on_leave(std::uint32_t instance, bool orderly) override {
    state_.leave(instance, orderly);
    drain_.left(instance);
  }
  Status on_report(const proto::ReportItem& item) override { return results_->take(item); }
  /// After a complete report, starts that of the next job.
  Status on_report_end() override {
    (void)results_->refresh(now());
    const Status finished = results_->finish();
    if (results_->reported()) {
      results_.emplace(disk_, folder_, config_);
    }
    return finished;
  }
  void on_failure(const proto::Failure& failure) override { state_.failure(failure, now()); }

 private:
  static double now() { return launcher::monotonic_seconds(); }
  static const launcher::Placement& placement() {
    static const launcher::Placement made = [] {
      launcher::Placement placement;
      placement.num_replicas = kInstances;
      placement.num_instances = kInstances;
      placement.hosts = {"localhost"};
      placement.instance_host.assign(kInstances, 0);
      return placement;
    }();
    return made;
  }

  std::string folder_;
  proto::RunConfig config_;
  launcher::DiskThread disk_;
  std::optional<launcher::JobResults> results_;
  launcher::JobState state_;
  launcher::DrainPoint drain_;
  launcher::Stragglers stragglers_;
};

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Both services, on loopback and in this process, and the connections to them.
class Services {
 public:
  Services() : store_({.files = hostio::FileScope::nothing(), .sources = {}, .bytes_max = std::uint64_t{256} << 20}) {
    // Requests may make the services write any number of bytes.
    constexpr rlim_t kFileBytesMax = rlim_t{64} << 20;
    const rlimit files{kFileBytesMax, kFileBytesMax};
    POPRUN_CHECK(setrlimit(RLIMIT_FSIZE, &files) == 0);
    std::signal(SIGXFSZ, SIG_IGN);
    (void)folder_.write("metrics.csv", "header\nrow\n");
    checkpoints_.no_more_metrics();
    google::protobuf::SetLogHandler(nullptr);  // Otherwise logs a line for each text that is not UTF-8.
    auto server = hostio::Server::start({.token = kToken, .batch_bytes_max = std::uint64_t{256} << 20}, store_);
    POPRUN_CHECK(server.has_value());
    server_ = std::move(*server);
    auto coordinator = Coordinator::start(loop_, listener_,
                                          {.bind_host = "127.0.0.1",
                                           .token = kToken,
                                           .job = {kInstances, 1},
                                           .initial_weights = weights_,
                                           .onnx_model = model_,
                                           .checkpoints = checkpoints_,
                                           .resumed_state = ""});
    POPRUN_CHECK(coordinator.has_value());
    coordinator_ = std::move(*coordinator);
    asio::post(loop_, [this] { coordinator_->open({}); });
    loop_thread_ = std::thread([this] { loop_.run(); });
    stubs_ = {stub(server_->port()), stub(coordinator_->port())};
  }
  Services(const Services&) = delete;
  Services& operator=(const Services&) = delete;
  ~Services() {
    wait_until_under_way(0);
    look();
    std::fprintf(stderr, "fuzz: %llu requests, %llu MiB resident\n", static_cast<unsigned long long>(requests_),
                 static_cast<unsigned long long>(resident_bytes() >> 20U));
    server_->stop();
    asio::post(loop_, [this] { coordinator_->stop([this] { loop_.stop(); }); });
    loop_thread_.join();
  }

  void call(std::size_t method, bool known, const std::string& message, int times) {
    begin_request();
    new Call(*this, method, known, message, times);
  }

  /// Sends the bytes, valid HTTP/2 or not, on a new connection.
  void raw(bool to_coordinator, const std::string& bytes) {
    begin_request();
    const int port = to_coordinator ? coordinator_->port() : server_->port();
    const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      send(file, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    close(file);
    end_request();
  }

 private:
  /// One call, which deletes itself.
  class Call final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    Call(Services& services, std::size_t method, bool known, const std::string& message, int times)
        : services_(services), left_(times) {
      const grpc::Slice slice(message);
      message_ = grpc::ByteBuffer(&slice, 1);
      context_.AddMetadata("poprun-epoch", "0");
      context_.AddMetadata("poprun-token", known ? kToken : "c41f6e0b9d7a258390e2b4fd61a7c836");
      context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
      services.stubs_[method < kMethodsOfDataServer ? 0 : 1]->PrepareBidiStreamingCall(&context_, kMethods[method], {},
                                                                                       this);
      write();
      StartRead(&answer_);
      StartCall();
    }
    void OnWriteDone(bool ok) override {
      if (ok && left_ > 0) {
        write();
      }
    }
    void OnReadDone(bool ok) override {
      if (ok) {
        StartRead(&answer_);
      }
    }
    void OnDone(const grpc::Status& /*status*/) override {
      services_.end_request();
      delete this;
    }

   private:
    void write() {
      if (--left_ == 0) {
        StartWriteLast(&message_, {});
      } else {
        StartWrite(&message_);
      }
    }

    Services& services_;
    int left_;
    grpc::ClientContext context_;
    grpc::ByteBuffer message_;
    grpc::ByteBuffer answer_;
  };

  static std::unique_ptr<grpc::GenericStub> stub(int port) {
    return std::make_unique<grpc::GenericStub>(
        grpc::CreateChannel(fmt::format("127.0.0.1:{}", port), grpc::InsecureChannelCredentials()));
  }

  void begin_request() {
    wait_until_under_way(kUnderWayMax - 1);
    {
      const std::lock_guard lock(mutex_);
      ++under_way_;
    }
    if (++requests_ % kBetweenLooks == 0) {
      look();
    }
  }

  void end_request() {
    const std::lock_guard lock(mutex_);
    --under_way_;
    ended_.notify_all();
  }

  void wait_until_under_way(std::uint32_t at_most) {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return under_way_ <= at_most; });
  }

  /// Checks that both services still serve and that memory has not grown.
  void look() {
    POPRUN_CHECK(resident_bytes() < kResidentBytesMax);
    for (std::size_t service = 0; service < stubs_.size(); ++service) {
      grpc::ClientContext context;
      context.AddMetadata("poprun-token", kToken);
      context.AddMetadata("poprun-epoch", "0");
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
      context.set_wait_for_ready(true);
      proto::DescribeRequest question;
      question.set_source("synthetic:images=1x2x2,classes=2,items=16");
      const std::string text = service == 0 ? question.SerializeAsString() : "";
      const grpc::Slice slice(text);
      const grpc::ByteBuffer message(&slice, 1);
      grpc::ByteBuffer answer;
      std::mutex mutex;
      std::condition_variable changed;
      std::optional<grpc::Status> status;
      // An empty Join is of instance 0, which may have joined already: that error is an answer, too.
      stubs_[service]->UnaryCall(&context, service == 0 ? kMethods[0] : kMethods[3], {}, &message, &answer,
                                 [&](const grpc::Status& ended) {
                                   const std::lock_guard lock(mutex);
                                   status = ended;
                                   changed.notify_all();
                                 });
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return status.has_value(); });
      const bool serves =
          status->ok() || (service == 1 && status->error_code() == grpc::StatusCode::FAILED_PRECONDITION);
      if (!serves) {
        std::fprintf(stderr, "fuzz: %s: %s\n", service == 0 ? "data server" : "coordinator",
                     status->error_message().c_str());
      }
      POPRUN_CHECK(serves);
    }
  }

  hostio::DatasetStore store_;
  std::unique_ptr<hostio::Server> server_;
  std::vector<launcher::Tensor> weights_;
  launcher::OnnxFile model_;
  poprun::testing::TemporaryFolder folder_;
  launcher::CheckpointWriter checkpoints_{
      {.folder = folder_.path() / "checkpoints", .metrics = folder_.path() / "metrics.csv", .keep = 1},
      [](std::uint64_t, const auto&) {}};
  Listener listener_{folder_.path() / "results"};
  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{loop_.get_executor()};
  std::unique_ptr<Coordinator> coordinator_;
  std::thread loop_thread_;
  std::array<std::unique_ptr<grpc::GenericStub>, 2> stubs_;

  std::uint64_t requests_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::uint32_t under_way_ = 0;
};

Services& services() {
  // OpenSSL is initialised first, so that it is cleaned up after everything that uses it.
  static const std::string begun = poprun::sha256_of("");
  static Services started;
  return started;
}

std::vector<std::uint8_t> seed(int first, const std::string& rest) {
  const std::string all = static_cast<char>(first) + rest;
  return {all.begin(), all.end()};
}

}  // namespace

/// Sends one request to the data server or to the coordinator over a real connection: the first byte selects the
/// method, the others are the message. Up to 64 requests are in progress at once.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string rest(data + 1, data + size);
  if (data[0] >= kRaw) {
    services().raw(data[0] % 2 != 0, rest);
  } else {
    services().call((data[0] % 16U) % kMethods.size(), (data[0] & kWrongToken) == 0, rest,
                    (data[0] & kTwice) != 0 ? 2 : 1);
  }
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  const std::string source = "synthetic:images=1x2x2,classes=2,items=16";
  proto::DescribeRequest describe;
  describe.set_source(source);
  proto::PullRequest pull;
  proto::Open& open = *pull.mutable_open();
  proto::Selection& selection = *open.mutable_selection();
  selection.set_source(source);
  selection.set_fingerprint(hostio::describe_dataset(source)->fingerprint());
  selection.set_split(proto::SPLIT_TRAIN);
  selection.set_replica_count(2);
  selection.set_micro_batch_size(3);
  selection.set_micro_batches_per_step(1);
  open.set_credits(2);
  proto::JoinRequest join;
  join.set_instance(1);
  join.set_host("node0");
  join.set_version(POPRUN_VERSION);
  join.add_cpu_isas("avx2");
  proto::Beat beat;
  beat.set_instance(1);
  proto::ReplicaProgress& progress = *beat.add_replicas();
  progress.set_replica(1);
  progress.set_step(7);
  progress.set_activity("conv1");
  progress.set_activity_seconds(0.5);
  progress.mutable_times()->set_steps(7);
  progress.mutable_times()->set_compute_seconds(1.5);
  proto::TcpLink& link = *beat.add_links();
  link.set_local("10.0.0.1");
  link.set_peer("10.0.0.2");
  link.set_segments(100);
  link.set_retransmits(9);
  proto::ReportItem weights;
  weights.mutable_weights()->set_name("conv1.weight");
  weights.mutable_weights()->set_type("f32");
  weights.mutable_weights()->add_shape(1);
  weights.mutable_weights()->set_data("1234");
  proto::ReportItem output;
  output.mutable_output()->add_shape(4);
  output.mutable_output()->set_data("12345678");
  proto::ReportItem dumped;
  dumped.mutable_dumped()->set_step(1);
  *dumped.mutable_dumped()->mutable_chunk() = weights.weights();
  dumped.mutable_dumped()->mutable_chunk()->set_last(true);
  proto::ReportItem profile;
  profile.mutable_profile();
  proto::StatePiece state;
  proto::StatePart& part = *state.mutable_part();
  part.set_parts(1);
  part.mutable_host()->set_step(3);
  part.mutable_host()->set_metric_rows(1);
  part.add_variables()->set_name("conv1.weight");
  part.mutable_variables(0)->set_type("f32");
  part.mutable_variables(0)->add_shape(0);
  part.add_variables()->set_name("conv1.bias");
  part.mutable_variables(1)->set_type("f32");
  part.mutable_variables(1)->add_shape(2);
  part.mutable_variables(1)->set_bytes(8);
  proto::Failure failure;
  failure.set_instance(2);
  failure.set_replica(2);
  failure.set_host("node0");
  failure.set_exit_code(75);
  failure.set_message("nobody came");
  failure.add_missing(3);
  failure.add_recent_calls("all-reduce of 8 tensors");
  *failure.mutable_progress() = progress;

  std::vector<std::vector<std::uint8_t>> seeds = {seed(0, describe.SerializeAsString()),
                                                  seed(1, pull.SerializeAsString()),
                                                  seed(1 + kTwice, pull.SerializeAsString()),
                                                  seed(2, ""),
                                                  seed(3, join.SerializeAsString()),
                                                  seed(3 + kWrongToken, join.SerializeAsString()),
                                                  seed(4, beat.SerializeAsString()),
                                                  seed(4 + kTwice, beat.SerializeAsString()),
                                                  seed(5, weights.SerializeAsString()),
                                                  seed(5 + kTwice, output.SerializeAsString()),
                                                  seed(6, failure.SerializeAsString()),
                                                  seed(5, dumped.SerializeAsString()),
                                                  seed(5, profile.SerializeAsString()),
                                                  seed(9, state.SerializeAsString()),
                                                  seed(9 + kTwice, state.SerializeAsString()),
                                                  seed(7, ""),
                                                  seed(8, "")};
  // A connection's preface and settings, then headers of a call (RFC 9113, 3.4 and 6.2), a ping, and the first record
  // of a TLS handshake (RFC 8446, 5.1).
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9);
  const std::string call = std::string("\0\0\4\1\4\0\0\0\1\x83\x86\x84\x41", 13);
  const std::string ping = std::string("\0\0\x8\6\0\0\0\0\0", 9) + "12345678";
  const std::string hello = std::string("\x16\3\1\0\x31\1\0\0\x2d\3\3", 11) + std::string(60, 'r');
  for (const int service : {0, 1}) {
    for (const std::string& bytes : {preface + call, preface + ping, hello}) {
      seeds.push_back(seed(kRaw + service, bytes));
    }
  }
  return seeds;
}
