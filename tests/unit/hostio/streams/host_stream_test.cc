#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostio/streams/client.h"
#include "hostio/streams/dataset_store.h"
#include "hostio/streams/server.h"
#include "hostio/streams/wire.h"
#include "proto/host_streams.grpc.pb.h"
#include "tests/unit/hostio/idx_bytes.h"

/// Tests a client and a server over loopback, in one process.
namespace poprun::hostio {
namespace {

#ifdef __has_feature  // Only clang has this, and only clang builds the tests with AddressSanitizer.
constexpr bool kHasAddressSanitizer = __has_feature(address_sanitizer);
#else
constexpr bool kHasAddressSanitizer = false;
#endif

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_images;

using Clock = std::chrono::steady_clock;
using Batches = std::vector<std::vector<std::string>>;

/// A TCP port on which the kernel accepts connections but no process answers, like a server under SIGSTOP.
class SilentPort {
 public:
  SilentPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    POPRUN_CHECK(::bind(socket_, generic, size) == 0);
    POPRUN_CHECK(::listen(socket_, 64) == 0);
    POPRUN_CHECK(::getsockname(socket_, generic, &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  ~SilentPort() { ::close(socket_); }

  [[nodiscard]] int port() const { return port_; }

 private:
  int socket_;
  int port_ = 0;
};

constexpr const char* kLongToken = "c41f6e0b9d7a258390e2b4fd61a7c835";
constexpr const char* kOtherToken = "0123456789abcdef0123456789abcdee";

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Returns the description of a dataset from a data server on loopback.
Result<proto::Dataset> describe(const std::string& address, const std::string& token, const std::string& source) {
  proto::HostStreams::Stub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  if (!token.empty()) {
    context.AddMetadata(kTokenKey, token);
  }
  context.set_deadline(std::chrono::system_clock::now() + 60s);
  proto::DescribeRequest request;
  request.set_source(source);
  const auto reader = stub.Describe(&context, request);
  proto::DescribeReply reply;
  while (reader->Read(&reply) && !reply.has_dataset()) {
  }
  const grpc::Status status = reader->Finish();
  const bool is_data = status.error_code() == grpc::StatusCode::DATA_LOSS;
  return status.ok() ? Result<proto::Dataset>(reply.dataset())
                     : fail(is_data ? ErrorCode::kData : ErrorCode::kUsage, status.error_message());
}

class HostStreamTest : public ::testing::Test {
 protected:
  HostStreamTest() {
    write_images(folder_, "train", 40, 0);
    write_images(folder_, "t10k", 10, 50);
    fingerprint_ = describe_dataset("idx:" + folder_.path().string())->fingerprint();
    restart();
  }

  /// Starts another server on the previous one's port.
  void restart() {
    server_.reset();
    store_ = std::make_unique<DatasetStore>();
    ServerOptions options;
    options.port = static_cast<std::uint16_t>(port_);
    options.token = token_;
    auto server = Server::start(options, *store_);
    POPRUN_CHECK(server.has_value());
    server_ = std::move(*server);
    port_ = server_->port();
  }

  [[nodiscard]] std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

  [[nodiscard]] HostStreamOptions options(proto::Split split = proto::SPLIT_TRAIN) const {
    HostStreamOptions options;
    options.address = address();
    options.token = token_;
    options.selection.set_source("idx:" + folder_.path().string());
    options.selection.set_fingerprint(fingerprint_);
    options.selection.set_split(split);
    options.selection.set_seed(7);
    options.selection.set_replica(1);
    options.selection.set_replica_count(2);
    options.selection.set_micro_batch_size(3);
    options.selection.set_micro_batches_per_step(2);
    options.timeout = 10s;
    options.log_source = "test";
    return options;
  }

  static Batches take(HostStream& stream, std::uint64_t first, std::uint64_t count) {
    Batches batches;
    for (std::uint64_t sequence = first; sequence < first + count; ++sequence) {
      Result<HostBatch> batch = stream.next();
      if (!batch) {
        ADD_FAILURE() << batch.error().message;
        break;
      }
      EXPECT_EQ(batch->sequence, sequence);
      auto& tensors = batches.emplace_back();
      for (const HostBytes& tensor : batch->tensors) {
        tensors.push_back(tensor.text());
      }
    }
    return batches;
  }

  TemporaryFolder folder_;
  std::string fingerprint_;  ///< Fingerprint of the initial files.
  std::string token_ = "secret";
  int port_ = 0;
  std::unique_ptr<DatasetStore> store_;
  std::unique_ptr<Server> server_;
};

TEST_F(HostStreamTest, DescribesADataset) {
  const auto dataset = describe(address(), token_, "idx:" + folder_.path().string());
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ(dataset->train_items(), 40U);
  EXPECT_EQ(dataset->classes(), 5U);
}

TEST_F(HostStreamTest, BringsTheBatchesThatSamplingSays) {
  const auto stream = open_host_stream(options());
  const Batches batches = take(*stream, 0, 30);

  const auto sampler = Sampler::make(options().selection, 40);
  ASSERT_TRUE(sampler);
  ASSERT_EQ(batches.size(), 30U);
  for (std::uint64_t k = 0; k < batches.size(); ++k) {
    std::vector<std::uint64_t> items(3);
    sampler->items_of(k, items);
    std::string images;
    std::string labels;
    for (const std::uint64_t item : items) {
      images += std::string(6, static_cast<char>(item));
      labels += std::string{static_cast<char>(item % 5), 0, 0, 0};
    }
    EXPECT_EQ(batches[k], (std::vector<std::string>{images, labels})) << k;
  }
}

TEST_F(HostStreamTest, PadsTheLastEvaluationBatchAndEnds) {
  // 10 items are dealt to 2 replicas, 3 at a time. Replica 1 gets items 3 4 5 and 9, then 0 1 without labels.
  const auto stream = open_host_stream(options(proto::SPLIT_TEST));
  const Batches batches = take(*stream, 0, 2);
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0][0], std::string(6, 53) + std::string(6, 54) + std::string(6, 55));
  EXPECT_EQ(batches[1][0], std::string(6, 59) + std::string(6, 50) + std::string(6, 51));
  EXPECT_EQ(batches[1][1], std::string({4, 0, 0, 0}) + std::string(8, '\xFF'));

  const auto beyond = stream->next();
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kBug);
  EXPECT_THAT(beyond.error().message, HasSubstr("batch 2 was requested"));
}

// The last batch must arrive even if the last credits reach a server that has already ended the call.
TEST_F(HostStreamTest, BringsTheLastEvaluationBatchHoweverTheCallEnds) {
  HostStreamOptions narrow = options(proto::SPLIT_TEST);
  narrow.selection.set_replica_count(2);
  narrow.selection.set_micro_batch_size(1);
  narrow.prefetch_batches = 2;
  for (int round = 0; round < 300; ++round) {
    const auto stream = open_host_stream(narrow);
    ASSERT_EQ(take(*stream, 0, 5).size(), 5U) << "round " << round;
  }
}

TEST_F(HostStreamTest, GoesOnWhereItIsTold) {
  HostStreamOptions later = options();
  later.first_sequence = 11;
  const Batches all = take(*open_host_stream(options()), 0, 14);
  const Batches rest = take(*open_host_stream(later), 11, 3);
  EXPECT_EQ(rest, Batches(all.begin() + 11, all.end()));
}

TEST_F(HostStreamTest, WorksWithOneBatchOfPrefetch) {
  HostStreamOptions narrow = options();
  narrow.prefetch_batches = 1;
  EXPECT_EQ(take(*open_host_stream(narrow), 0, 20), take(*open_host_stream(options()), 0, 20));
}

TEST_F(HostStreamTest, TwoServersGiveEqualBytes) {
  const Batches first = take(*open_host_stream(options()), 0, 25);
  DatasetStore other_store;
  const auto other = Server::start({.bind = "127.0.0.1", .port = 0, .token = token_}, other_store);
  ASSERT_TRUE(other);
  HostStreamOptions elsewhere = options();
  elsewhere.address = fmt::format("127.0.0.1:{}", (*other)->port());
  EXPECT_EQ(take(*open_host_stream(elsewhere), 0, 25), first);
}

TEST_F(HostStreamTest, ARestartedServerChangesNoByte) {
  const Batches undisturbed = take(*open_host_stream(options()), 0, 40);

  const auto stream = open_host_stream(options());
  Batches batches;
  for (std::uint64_t first = 0; first < 40; first += 10) {
    for (auto& batch : take(*stream, first, 10)) {
      batches.push_back(std::move(batch));
    }
    restart();
  }
  EXPECT_EQ(batches, undisturbed);
}

TEST_F(HostStreamTest, ARestartDuringAnEvaluationEndsItNoEarlier) {
  const auto stream = open_host_stream([&] {
    HostStreamOptions narrow = options(proto::SPLIT_TEST);
    narrow.selection.set_replica_count(2);
    narrow.selection.set_micro_batch_size(1);
    narrow.prefetch_batches = 1;
    return narrow;
  }());
  take(*stream, 0, 2);
  restart();
  take(*stream, 2, 3);
  EXPECT_FALSE(stream->next());
}

TEST_F(HostStreamTest, BringsTheDataThatWasDescribedOrNone) {
  const auto message = [&] {
    const auto batch = open_host_stream(options())->next();
    EXPECT_FALSE(batch);
    EXPECT_EQ(batch.error().code, ErrorCode::kData);
    return batch ? "" : batch.error().message;
  };
  const Batches first = take(*open_host_stream(options()), 0, 5);
  write_images(folder_, "train", 40, 7);
  EXPECT_EQ(take(*open_host_stream(options()), 0, 5), first) << "as it was described";

  const std::string old = fingerprint_;
  fingerprint_ = describe(address(), token_, options().selection.source())->fingerprint();
  EXPECT_NE(fingerprint_, old);
  EXPECT_NE(take(*open_host_stream(options()), 0, 5), first) << "as it is now";

  fingerprint_ = old;
  restart();
  EXPECT_THAT(message(), AllOf(HasSubstr("the files changed after the job began"), HasSubstr("start a new job")));
  std::filesystem::remove(folder_.path() / "train-images-idx3-ubyte");
  EXPECT_THAT(message(), HasSubstr("is missing"));
}

TEST_F(HostStreamTest, OtherDataAfterARestartEndsTheStream) {
  HostStreamOptions narrow = options();
  narrow.prefetch_batches = 1;
  const auto stream = open_host_stream(narrow);
  take(*stream, 0, 3);
  write_images(folder_, "train", 50, 0);
  restart();
  Result<HostBatch> batch = stream->next();
  while (batch) {
    batch = stream->next();
  }
  EXPECT_EQ(batch.error().code, ErrorCode::kData);
  EXPECT_THAT(batch.error().message, HasSubstr("the files changed"));
}

TEST_F(HostStreamTest, NeedsAFingerprint) {
  fingerprint_ = "";
  const auto batch = open_host_stream(options())->next();
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ErrorCode::kUsage);
  EXPECT_THAT(batch.error().message, HasSubstr("the fingerprint that Describe returned is missing"));
}

/// The server generates 51 million tokens, which takes longer than the client waits for a silent server. With
/// AddressSanitizer, it takes ten times as long, and each percent nearly as long as the client waits.
TEST_F(HostStreamTest, AServerThatLoadsCountsAsAlive) {
  constexpr int kItems = kHasAddressSanitizer ? 100'000 : 800'000;
  HostStreamOptions impatient = options();
  impatient.selection.set_source(fmt::format("synthetic:tokens,vocabulary=50,items={}?sequence-length=64", kItems));
  impatient.selection.set_fingerprint(describe(address(), token_, impatient.selection.source())->fingerprint());
  impatient.timeout = 800ms;
  std::vector<unsigned> percents;
  impatient.on_loading = [&](unsigned percent) { percents.push_back(percent); };
  restart();  // Discards the data that describe() made the server load.

  const auto batch = open_host_stream(impatient)->next();

  EXPECT_TRUE(batch) << batch.error().message;
  EXPECT_TRUE(std::ranges::is_sorted(percents));
}

TEST_F(HostStreamTest, WaitsForAServerThatIsNotUpYet) {
  server_.reset();
  const auto stream = open_host_stream(options());
  std::this_thread::sleep_for(20ms);
  restart();
  take(*stream, 0, 3);
}

TEST_F(HostStreamTest, GivesUpOnAServerThatIsGoneForGood) {
  HostStreamOptions impatient = options();
  impatient.timeout = 600ms;
  impatient.prefetch_batches = 2;
  const auto stream = open_host_stream(impatient);
  take(*stream, 0, 1);
  server_.reset();

  const auto start = Clock::now();
  Result<HostBatch> batch = stream->next();
  while (batch) {
    batch = stream->next();
  }
  EXPECT_EQ(batch.error().code, ErrorCode::kUnreachable);
  EXPECT_EQ(batch.error().facts.address, address());
  EXPECT_THAT(batch.error().message,
              AllOf(HasSubstr("data server " + address() + " did not answer for 0.6 s"), HasSubstr("(last batch: "),
                    HasSubstr("check that poprun-emu-hostio is running there")));
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_GE(Clock::now() - start, 500ms);
}

TEST_F(HostStreamTest, GivesUpOnAServerThatAcceptsAndNeverAnswers) {
  const SilentPort silent;
  HostStreamOptions impatient = options();
  impatient.address = fmt::format("127.0.0.1:{}", silent.port());
  impatient.timeout = 200ms;
  const auto start = Clock::now();
  const auto batch = open_host_stream(impatient)->next();
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ErrorCode::kUnreachable);
  EXPECT_THAT(batch.error().message, HasSubstr("did not answer for 0.2 s (no batch yet)"));
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST_F(HostStreamTest, EndsAWaitThatNobodyNeedsAnyMore) {
  const SilentPort silent;
  HostStreamOptions stopped = options();
  stopped.address = fmt::format("127.0.0.1:{}", silent.port());
  std::vector<bool> waits;
  stopped.on_wait = [&](bool begins) { waits.push_back(begins); };
  int questions = 0;
  stopped.is_needed = [&] { return ++questions < 3; };

  const auto begin = Clock::now();
  const auto batch = open_host_stream(stopped)->next();

  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ErrorCode::kInfrastructure);
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_EQ(waits, (std::vector<bool>{true, false}));
}

TEST_F(HostStreamTest, IsDestroyedAtOnceWhateverTheServerDoes) {
  const SilentPort silent;
  HostStreamOptions patient = options();
  patient.timeout = 60s;
  for (const int port : {silent.port(), port_, 1}) {
    patient.address = fmt::format("127.0.0.1:{}", port);
    for (const auto wait : {0ms, 30ms}) {
      auto stream = open_host_stream(patient);
      std::this_thread::sleep_for(wait);
      const auto start = Clock::now();
      stream.reset();
      EXPECT_LT(Clock::now() - start, patient.timeout / 2) << port;
    }
  }
}

TEST_F(HostStreamTest, RefusesAWrongToken) {
  HostStreamOptions wrong = options();
  wrong.token = "secreT";
  const auto batch = open_host_stream(wrong)->next();
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ErrorCode::kUsage);
  EXPECT_THAT(batch.error().message, HasSubstr("a token other than this job's"));

  const auto dataset = describe(address(), "", "fashion-mnist");
  ASSERT_FALSE(dataset);
  EXPECT_EQ(dataset.error().code, ErrorCode::kUsage);
  EXPECT_THAT(dataset.error().message, HasSubstr("the call carried none"));
}

TEST_F(HostStreamTest, PassesOnThatADatasetIsMissing) {
  HostStreamOptions missing = options();
  missing.selection.set_source("idx:/nowhere");
  const auto batch = open_host_stream(missing)->next();
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ErrorCode::kData);
  EXPECT_THAT(batch.error().message, HasSubstr("/nowhere/train-images-idx3-ubyte.gz is missing"));

  const auto dataset = describe(address(), token_, "idx:/nowhere");
  ASSERT_FALSE(dataset);
  EXPECT_EQ(dataset.error().code, ErrorCode::kData);
}

TEST_F(HostStreamTest, RefusesASelectionThatCanNeverWork) {
  HostStreamOptions bad = options();
  bad.selection.set_replica(2);
  const auto batch = open_host_stream(bad)->next();
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ErrorCode::kUsage);
  EXPECT_THAT(batch.error().message, HasSubstr("replica must be < 2, but it is 2"));
}

TEST_F(HostStreamTest, RefusesABatchThatNoMessageHolds) {
  HostStreamOptions bad = options(proto::SPLIT_TEST);
  bad.selection.set_micro_batch_size(120'000'000);
  const auto batch = open_host_stream(bad)->next();
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ErrorCode::kUsage);
  EXPECT_THAT(batch.error().message, HasSubstr("at most 1,024.0 MiB; use a smaller data.micro-batch-size"));
}

TEST_F(HostStreamTest, CarriesBatchesBeyondTheDefaultMessageLimit) {
  HostStreamOptions large = options(proto::SPLIT_TEST);
  large.selection.set_micro_batch_size(1'000'000);
  large.selection.set_replica(0);
  large.selection.set_replica_count(1);
  const Batches batches = take(*open_host_stream(large), 0, 1);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0][0].size(), 6'000'000U);
}

/// The protocol itself, tested by a counting client.
class CreditTest : public HostStreamTest {
 protected:
  CreditTest() : stub_(grpc::CreateChannel(address(), grpc::InsecureChannelCredentials())) {
    context_.AddMetadata(kTokenKey, token_);
    context_.set_deadline(std::chrono::system_clock::now() + 1s);
    stream_ = stub_.Pull(&context_);
  }

  proto::PullRequest open(std::uint32_t credits) const {
    proto::PullRequest request;
    *request.mutable_open()->mutable_selection() = options().selection;
    request.mutable_open()->set_credits(credits);
    return request;
  }

  static proto::PullRequest credit(std::uint32_t batches) {
    proto::PullRequest request;
    request.mutable_credit()->set_batches(batches);
    return request;
  }

  proto::HostStreams::Stub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::PullRequest, proto::Batch>> stream_;
};

TEST_F(CreditTest, TheServerSendsNoMoreThanGranted) {
  proto::Batch batch;
  stream_->Write(open(3));
  stream_->Write(credit(2));
  for (std::uint64_t sequence = 0; sequence < 5; ++sequence) {
    ASSERT_TRUE(stream_->Read(&batch));
    EXPECT_EQ(batch.sequence(), sequence);
  }
  EXPECT_FALSE(stream_->Read(&batch));  // The call's deadline passes without a sixth batch.
  EXPECT_EQ(stream_->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(CreditTest, TheServerRefusesCreditsBeforeAnOpen) {
  stream_->Write(credit(1));
  EXPECT_EQ(stream_->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CreditTest, TheServerRefusesASecondOpen) {
  stream_->Write(open(0));
  stream_->Write(open(0));
  EXPECT_EQ(stream_->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(HostStreamTest, FetchesAheadAsManyBatchesAsItMayAndNoMore) {
  // After the server is gone, only prefetched batches are left.
  HostStreamOptions ahead = options();
  ahead.prefetch_batches = 6;
  ahead.timeout = 800ms;
  const auto stream = open_host_stream(ahead);
  take(*stream, 0, 1);
  std::this_thread::sleep_for(200ms);
  server_.reset();
  int left = 0;
  while (stream->next()) {
    ++left;
  }
  // One batch was taken. Five are left, or six if its credit was granted again in time.
  EXPECT_GE(left, 5);
  EXPECT_LE(left, 6);
}

TEST_F(HostStreamTest, NamesAPortThatIsInUse) {
  const auto second =
      Server::start({.bind = "127.0.0.1", .port = static_cast<std::uint16_t>(port_), .token = ""}, *store_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kHostResources);
  EXPECT_THAT(second.error().message,
              AllOf(HasSubstr(fmt::format("port {} on 127.0.0.1 is in use", port_)), HasSubstr("--port")));
}

TEST_F(HostStreamTest, NamesAnAddressThatIsNotOfThisHost) {
  const auto server = Server::start({.bind = "192.0.2.1", .port = 0, .token = "secret"}, *store_);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, ErrorCode::kUsage);
  EXPECT_THAT(server.error().message, AllOf(HasSubstr("192.0.2.1"), HasSubstr("--bind")));
}

TEST_F(HostStreamTest, ListensBeyondThisHostWithATokenOnly) {
  for (const char* all : {"0.0.0.0", "[::]", "192.0.2.1"}) {
    const auto server = Server::start({.bind = all, .port = 0, .token = ""}, *store_);
    ASSERT_FALSE(server) << all;
    EXPECT_EQ(server.error().code, ErrorCode::kUsage);
    EXPECT_THAT(server.error().message, AllOf(HasSubstr(all), HasSubstr("POPRUN_EMU_TOKEN")));
  }
  for (const char* own : {"127.0.0.1", "127.0.0.2", "localhost"}) {
    EXPECT_TRUE(Server::start({.bind = own, .port = 0, .token = ""}, *store_)) << own;
  }
  const auto guessed = Server::start({.bind = "0.0.0.0", .port = 0, .token = "secret"}, *store_);
  ASSERT_FALSE(guessed);
  EXPECT_EQ(guessed.error().code, ErrorCode::kUsage);
  EXPECT_THAT(guessed.error().message, HasSubstr("openssl rand -hex 16"));
  EXPECT_TRUE(Server::start({.bind = "0.0.0.0", .port = 0, .token = kLongToken}, *store_));
}

TEST_F(HostStreamTest, ServesTheFilesThatItWasStartedForAlone) {
  const TemporaryFolder other;
  write_images(other, "train", 40, 0);
  write_images(other, "t10k", 10, 50);
  const std::string inside = "idx:" + folder_.path().string();
  const std::string outside = "idx:" + other.path().string();
  StoreLimits limits;
  limits.files = *FileScope::below(folder_.path());
  DatasetStore store(limits);
  const auto server = Server::start({.bind = "127.0.0.1", .port = 0, .token = token_}, store);
  ASSERT_TRUE(server);
  const std::string address = fmt::format("127.0.0.1:{}", (*server)->port());
  EXPECT_TRUE(describe(address, token_, inside));
  const auto refused = describe(address, token_, outside);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr(other.path()), HasSubstr("--root")));

  HostStreamOptions direct = options();
  direct.address = address;
  direct.selection.set_source(outside);
  EXPECT_FALSE(open_host_stream(direct)->next()) << "without describing it first";
}

TEST_F(HostStreamTest, BeyondLoopbackLetsInThoseWithTheJobsIdentityAndTokenAlone) {
  const auto server = Server::start({.bind = "0.0.0.0", .port = 0, .token = kLongToken}, *store_);
  ASSERT_TRUE(server) << server.error().message;
  HostStreamOptions client = options();
  client.address = fmt::format("127.0.0.1:{}", (*server)->port());
  client.timeout = 500ms;

  client.token = kLongToken;
  EXPECT_FALSE(open_host_stream(client)->next()) << "in plain text";
  client.identity = identity_of_token(kOtherToken);
  EXPECT_FALSE(open_host_stream(client)->next()) << "with another job's identity";
  client.token = kOtherToken;
  client.identity = identity_of_token(kLongToken);
  client.timeout = 10s;
  const auto wrong = open_host_stream(client)->next();
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("a token other than this job's"));

  client.token = kLongToken;
  EXPECT_EQ(take(*open_host_stream(client), 0, 5), take(*open_host_stream(options()), 0, 5));
}

TEST_F(HostStreamTest, AServerWithoutTheJobsIdentityGetsNoToken) {
  HostStreamOptions client = options();  // The server uses plain text and knows the token.
  client.identity = identity_of_token(kLongToken);
  client.timeout = 500ms;
  EXPECT_FALSE(open_host_stream(client)->next());
}

TEST_F(HostStreamTest, RequestsWithoutEndDoNotMakeItGrow) {
  constexpr std::uint64_t kGrowthMax = std::uint64_t{64} << 20;
  const auto ask = [this](const std::string& token, int from, int to) {
    proto::HostStreams::Stub stub(grpc::CreateChannel(address(), grpc::InsecureChannelCredentials()));
    for (int i = from; i < to; ++i) {
      grpc::ClientContext context;
      context.AddMetadata("poprun-token", token);
      proto::DescribeRequest request;
      request.set_source(fmt::format("synthetic:images=1x8x8,classes=2,items={}", 100 + i));
      proto::DescribeReply reply;
      const auto reader = stub.Describe(&context, request);
      while (reader->Read(&reply)) {
      }
      const grpc::Status status = reader->Finish();
      ASSERT_EQ(status.error_code(), token == token_ ? grpc::StatusCode::OK : grpc::StatusCode::UNAUTHENTICATED);
    }
  };
  if (kHasAddressSanitizer) {
    GTEST_SKIP() << "AddressSanitizer keeps freed memory";
  }
  ask(token_, 0, 500);
  const std::uint64_t before = resident_bytes();
  ask(token_, 500, 4000);
  ask("guess", 0, 4000);
  EXPECT_LT(resident_bytes(), before + kGrowthMax);
  EXPECT_EQ(take(*open_host_stream(options()), 0, 2).size(), 2U) << "and it goes on";
}

TEST_F(HostStreamTest, RefusesASourceOfAnySize) {
  const auto refused = describe(address(), token_, std::string(10'000, 'x'));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "a source is limited to 8192 B");
  HostStreamOptions direct = options();
  direct.selection.set_source(std::string(10'000, 'x'));
  const auto batch = open_host_stream(direct)->next();
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().message, "a source is limited to 8192 B");
}

TEST_F(HostStreamTest, StreamsShareWhatThereIsForBatches) {
  DatasetStore store;
  const auto server = Server::start({.token = token_, .batch_bytes_max = 40}, store);
  ASSERT_TRUE(server);
  HostStreamOptions client = options();
  client.address = fmt::format("127.0.0.1:{}", (*server)->port());
  client.timeout = 1s;
  auto first = open_host_stream(client);  // A batch is 3 samples of 6 + 4 B.
  ASSERT_TRUE(first->next());
  EXPECT_FALSE(open_host_stream(client)->next());
  first.reset();
  EXPECT_TRUE(open_host_stream(client)->next());
}

TEST(HostStreams, TakeAQuarterOfTheFreeMemoryForBatchesAnd4GiBAtMost) {
  constexpr std::int64_t kMebibyte = 1 << 20;
  EXPECT_EQ(batch_bytes_max_of(Bytes{512 * kMebibyte}), 128U * kMebibyte);
  EXPECT_EQ(batch_bytes_max_of(Bytes{256 * 1024 * kMebibyte}), 4096U * kMebibyte);
}

}  // namespace
}  // namespace poprun::hostio
