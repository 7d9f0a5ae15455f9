#include "hostio/streams/server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostio/sampling/sampling.h"
#include "hostio/streams/wire.h"
#include "proto/host_streams.grpc.pb.h"
#include "replica/base/grpc/channel.h"
#include "replica/base/text.h"
#include "replica/base/token.h"

namespace poprun::hostio {
namespace {

constexpr std::chrono::milliseconds kDrain{100};
constexpr int kRequestBytesMax = 64 * 1024;
constexpr std::size_t kSourceBytesMax = 8 * 1024;
constexpr std::chrono::milliseconds kBetweenNews{100};  // How often progress is checked.
constexpr std::uint64_t kCreditsMax = 1 << 20;
constexpr std::uint32_t kStreamsMax = 8192;  // Two per replica of the largest job.

grpc::Status source_too_long() {
  return {grpc::StatusCode::INVALID_ARGUMENT,
          fmt::format("a source takes at most {} B", kSourceBytesMax)};
}

/// Resources of this host that all streams use together. Thread-safe.
class Room {
 public:
  explicit Room(std::uint64_t batch_bytes_max) : bytes_max_(batch_bytes_max) {}

  /// Admits one more stream, if there is space.
  bool enter() {
    const std::lock_guard lock(mutex_);
    return streams_ < kStreamsMax && ++streams_ > 0;
  }

  /// Reserves memory for its batch, if there is space; a single batch is always admitted.
  bool take(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes_ > 0 && bytes > bytes_max_ - std::min(bytes_, bytes_max_)) {
      return false;
    }
    bytes_ += bytes;
    return true;
  }

  /// Ends a stream; `bytes` is the memory that it reserved.
  void leave(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    --streams_;
    bytes_ -= bytes;
  }

 private:
  const std::uint64_t bytes_max_;
  std::mutex mutex_;
  std::uint32_t streams_ = 0;
  std::uint64_t bytes_ = 0;
};

grpc::Status status_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kUsage:
      return {grpc::StatusCode::INVALID_ARGUMENT, error.message};
    case ErrorCode::kData:
      return {grpc::StatusCode::DATA_LOSS, error.message};
    case ErrorCode::kUnreachable:
    case ErrorCode::kBug:
    case ErrorCode::kHostResources:
    case ErrorCode::kInfrastructure:
    case ErrorCode::kOutOfMemory:
      break;
  }
  return {grpc::StatusCode::INTERNAL, error.message};
}

/// A call that waits for a dataset to be read.
class Waiting {
 public:
  Waiting() = default;
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  virtual ~Waiting() = default;

  /// Sends the client progress of the dataset. Returns false if the call no longer waits.
  virtual bool send_news() = 0;
};

/// Makes waiting calls send their progress, a few times per second, on a thread of its own.
///
/// Threads: any.
class NewsThread {
 public:
  NewsThread() : thread_([this] { run(); }) {}
  NewsThread(const NewsThread&) = delete;
  NewsThread& operator=(const NewsThread&) = delete;
  ~NewsThread() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(std::weak_ptr<Waiting> call) {
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back(std::move(call));
    }
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
      if (changed_.wait_for(lock, kBetweenNews, [this] { return stopping_; })) {
        return;
      }
      std::vector<std::weak_ptr<Waiting>> calls = std::move(calls_);
      calls_.clear();
      lock.unlock();
      std::erase_if(calls, [](const std::weak_ptr<Waiting>& call) {
        const std::shared_ptr<Waiting> waiting = call.lock();
        return waiting == nullptr || !waiting->send_news();
      });
      lock.lock();
      calls_.insert(calls_.end(), calls.begin(), calls.end());
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::weak_ptr<Waiting>> calls_;
  bool stopping_ = false;
  std::thread thread_;  ///< Must be the last member: the thread uses those above.
};

/// One replica's stream. Lives until both gRPC has finished with it and the dataset store has
/// answered, in either order: hence a shared_ptr, held by the stream itself until OnDone, and by
/// the request to the store.
///
/// One read is always pending until the end, so the stream notices a client that goes away. At most
/// one write is pending, and the end waits for it.
class ServedPull final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                         public Waiting,
                         public std::enable_shared_from_this<ServedPull> {
 public:
  static ServedPull* start(DatasetStore& datasets, NewsThread& news,
                           const std::shared_ptr<Room>& room, grpc::Status admission) {
    const auto call = std::make_shared<ServedPull>(datasets, news);
    call->self_ = call;
    if (admission.ok()) {
      if (room->enter()) {
        call->room_ = room;
      } else {
        admission = {grpc::StatusCode::RESOURCE_EXHAUSTED,
                     fmt::format("the data server has {} streams, as many as it can", kStreamsMax)};
      }
    }
    if (admission.ok()) {
      call->StartRead(&call->request_);
    } else {
      call->end(std::move(admission));
    }
    return call.get();
  }

  ServedPull(DatasetStore& datasets, NewsThread& news) : datasets_(datasets), news_(news) {}

  ServedPull(const ServedPull&) = delete;
  ServedPull& operator=(const ServedPull&) = delete;
  ~ServedPull() override {
    if (room_ != nullptr) {
      room_->leave(reserved_);
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      end({grpc::StatusCode::CANCELLED, "the client disconnected"});
      return;
    }
    proto::PullRequest request;
    const bool parsed =
        grpc::SerializationTraits<proto::PullRequest>::Deserialize(&request_, &request).ok();
    if (parsed && request.has_open() && !opened_) {
      opened_ = true;
      open(request.open());
    } else if (parsed && request.has_credit() && opened_) {
      {
        const std::lock_guard lock(mutex_);
        credits_ = std::min(credits_ + request.credit().batches(), kCreditsMax);
      }
      advance();
    } else {
      end({grpc::StatusCode::INVALID_ARGUMENT, "needed one open, then credits"});
      return;
    }
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
    }
    if (ok) {
      advance();
    } else {
      end({grpc::StatusCode::CANCELLED, "the client disconnected"});
    }
  }

  void OnDone() override { self_.reset(); }

  bool send_news() override {
    proto::Batch news;
    *news.mutable_loading() = datasets_.loading(selection_.source());
    {
      const std::lock_guard lock(mutex_);
      if (finished_ || outcome_ || sampler_) {
        return false;
      }
      if (writing_) {
        return true;  // The client has not taken the previous message yet.
      }
      bool own = false;
      if (!grpc::SerializationTraits<proto::Batch>::Serialize(news, &batch_, &own).ok()) {
        return true;
      }
      writing_ = true;
    }
    StartWrite(&batch_);
    return true;
  }

 private:
  void open(const proto::Open& open) {
    selection_ = open.selection();
    sequence_ = open.first_sequence();
    credits_ = std::min<std::uint64_t>(open.credits(), kCreditsMax);
    if (selection_.source().size() > kSourceBytesMax) {
      end(source_too_long());
      return;
    }
    if (selection_.fingerprint().empty()) {
      end({grpc::StatusCode::INVALID_ARGUMENT,
           "selection: needed the fingerprint that Describe gave; is the job of another version?"});
      return;
    }
    datasets_.load_then(selection_.source(), selection_.fingerprint(),
                        [self = shared_from_this()](const Result<DatasetStore::Loaded>& dataset) {
                          self->begin(dataset);
                        });
    news_.add(weak_from_this());
  }

  void begin(const Result<DatasetStore::Loaded>& dataset) {
    const Result<Sampler> sampler = dataset.and_then(
        [&](const DatasetStore::Loaded& loaded) { return sampler_for(loaded->description()); });
    if (!sampler) {
      end(status_of(sampler.error()));
      return;
    }
    const std::uint64_t bytes =
        batch_bytes((*dataset)->description(), selection_.micro_batch_size());
    if (!room_->take(bytes)) {
      end({grpc::StatusCode::RESOURCE_EXHAUSTED,
           fmt::format("the batches of all streams take as much as the data server has for them; "
                       "this one takes {}",
                       mebibytes_text(bytes))});
      return;
    }
    reserved_ = bytes;
    {
      const std::lock_guard lock(mutex_);
      dataset_ = *dataset;
      sampler_ = *sampler;
    }
    advance();
  }

  [[nodiscard]] Result<Sampler> sampler_for(const proto::Dataset& description) const {
    POPRUN_ASSIGN(Sampler sampler,
                  Sampler::make(selection_, items_of(description, selection_.split())));
    const std::uint64_t bytes = batch_bytes(description, selection_.micro_batch_size());
    if (bytes > kBatchBytesMax) {
      return fail(ErrorCode::kUsage,
                  fmt::format("a micro-batch of {} samples of \"{}\" takes {}, but a host stream "
                              "message holds at most {}; use a smaller data.micro-batch-size",
                              grouped(selection_.micro_batch_size()), selection_.source(),
                              mebibytes_text(bytes), mebibytes_text(kBatchBytesMax)));
    }
    return sampler;
  }

  /// Ends the stream with the first status given, once no write is pending.
  void end(grpc::Status status) {
    {
      const std::lock_guard lock(mutex_);
      if (!outcome_) {
        outcome_ = std::move(status);
      }
    }
    advance();
  }

  /// Starts the next write, or the end, when it is time. Decides under the lock and acts outside
  /// it; `writing_` and `finished_` keep other threads away meanwhile.
  void advance() {
    {
      const std::lock_guard lock(mutex_);
      if (writing_ || finished_) {
        return;
      }
      if (!outcome_ && sampler_ && sequence_ >= sampler_->batch_count()) {
        outcome_ = grpc::Status::OK;
      }
      finished_ = outcome_.has_value();
      if (!finished_) {
        if (!sampler_ || credits_ == 0) {
          return;
        }
        batch_ = encode_batch(*dataset_, selection_.split(), *sampler_, sequence_);
        ++sequence_;
        --credits_;
        writing_ = true;
      }
    }
    if (finished_) {
      Finish(*outcome_);
    } else {
      StartWrite(&batch_);
    }
  }

  DatasetStore& datasets_;
  NewsThread& news_;
  std::shared_ptr<ServedPull> self_;
  std::shared_ptr<Room> room_;  ///< Set once the stream is admitted.
  std::uint64_t reserved_ = 0;  ///< Bytes reserved there.
  grpc::ByteBuffer request_;    ///< Request of the read in progress.
  bool opened_ = false;         ///< Used only by the reader.
  proto::Selection selection_;  ///< Constant once opened.

  std::mutex mutex_;  ///< Guards all members below.
  DatasetStore::Loaded dataset_;
  std::optional<Sampler> sampler_;
  std::uint64_t sequence_ = 0;
  std::uint64_t credits_ = 0;
  grpc::ByteBuffer batch_;  ///< Batch of the write in progress.
  bool writing_ = false;
  std::optional<grpc::Status> outcome_;
  bool finished_ = false;
};

/// A request for a description. Lives until both gRPC has finished with it and the dataset store
/// has answered, like a ServedPull; a cancelled one does not wait for the answer.
class DescribeCall final : public grpc::ServerWriteReactor<proto::DescribeReply>,
                           public Waiting,
                           public std::enable_shared_from_this<DescribeCall> {
 public:
  static DescribeCall* start(DatasetStore& datasets, NewsThread& news,
                             const grpc::Status& admission, const proto::DescribeRequest& request) {
    const auto call = std::make_shared<DescribeCall>(datasets, request.source());
    call->self_ = call;
    if (!admission.ok()) {
      call->end(admission);
      return call.get();
    }
    const bool will_pull = !request.only_describe();
    datasets.describe_then(request.source(), will_pull,
                           [call, will_pull](const Result<proto::Dataset>& description) {
                             if (description && will_pull) {
                               // The client will pull soon, so the load starts now. An error shows
                               // again at the pull.
                               call->datasets_.load_soon(call->source_, description->fingerprint());
                             }
                             call->end(description);
                           });
    news.add(call);
    return call.get();
  }

  DescribeCall(DatasetStore& datasets, std::string source)
      : datasets_(datasets), source_(std::move(source)) {}

  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
    }
    if (!ok) {
      end({grpc::StatusCode::CANCELLED, "the client disconnected"});
    }
    advance();
  }
  void OnCancel() override { end({grpc::StatusCode::CANCELLED, "the client disconnected"}); }
  void OnDone() override { self_.reset(); }

  bool send_news() override {
    const proto::Loading loading = datasets_.describing(source_);
    {
      const std::lock_guard lock(mutex_);
      if (outcome_) {
        return false;
      }
      if (writing_) {
        return true;
      }
      writing_ = true;
      *reply_.mutable_loading() = loading;
    }
    StartWrite(&reply_);
    return true;
  }

 private:
  /// Ends the call with the first status given, once no write is pending.
  void end(const grpc::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      outcome_ = outcome_.value_or(status);
    }
    advance();
  }
  void end(const Result<proto::Dataset>& description) {
    {
      const std::lock_guard lock(mutex_);
      if (!outcome_ && description) {
        dataset_ = *description;
      }
    }
    end(description ? grpc::Status::OK : status_of(description.error()));
  }

  void advance() {
    {
      const std::lock_guard lock(mutex_);
      if (writing_ || finished_ || !outcome_) {
        return;
      }
      finished_ = true;
      if (outcome_->ok()) {
        *reply_.mutable_dataset() = dataset_;
      }
    }
    if (outcome_->ok()) {
      StartWriteAndFinish(&reply_, grpc::WriteOptions(), *outcome_);
    } else {
      Finish(*outcome_);
    }
  }

  DatasetStore& datasets_;
  const std::string source_;
  std::shared_ptr<DescribeCall> self_;

  std::mutex mutex_;  ///< Guards all members below.
  proto::Dataset dataset_;
  proto::DescribeReply reply_;  ///< Reply of the write in progress.
  bool writing_ = false;
  std::optional<grpc::Status> outcome_;
  bool finished_ = false;
};

using ServiceBase = proto::HostStreams::WithCallbackMethod_Describe<
    proto::HostStreams::WithRawCallbackMethod_Pull<proto::HostStreams::Service>>;

class Service final : public ServiceBase {
 public:
  Service(const ServerOptions& options, DatasetStore& datasets)
      : token_(options.token),
        datasets_(datasets),
        room_(std::make_shared<Room>(options.batch_bytes_max)) {}

  grpc::ServerWriteReactor<proto::DescribeReply>* Describe(
      grpc::CallbackServerContext* context, const proto::DescribeRequest* request) override {
    grpc::Status status = admit(*context);
    if (status.ok() && request->source().size() > kSourceBytesMax) {
      status = source_too_long();
    }
    return DescribeCall::start(datasets_, news_, status, *request);
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Pull(
      grpc::CallbackServerContext* context) override {
    return ServedPull::start(datasets_, news_, room_, admit(*context));
  }

 private:
  [[nodiscard]] grpc::Status admit(const grpc::CallbackServerContext& context) const {
    if (token_.empty()) {
      return grpc::Status::OK;
    }
    const auto found = context.client_metadata().find(kTokenKey);
    if (found != context.client_metadata().end() &&
        equal_tokens({found->second.data(), found->second.size()}, token_)) {
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::UNAUTHENTICATED,
            found == context.client_metadata().end()
                ? "the data server needs the job's token, but the call had none"
                : "the data server was started with a different token from this job's"};
  }

  const std::string token_;
  DatasetStore& datasets_;
  const std::shared_ptr<Room> room_;
  NewsThread news_;
};

std::string without_brackets(std::string host) {
  std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
  return host;
}

Error not_an_address(const std::string& bind, std::string_view reason) {
  return {ErrorCode::kUsage, fmt::format("cannot listen on {}: {}; choose an address of this host "
                                         "with --bind",
                                         bind, reason)};
}

/// Finds out why gRPC could not listen, which it does not say, by trying the same with a plain
/// socket.
Error why_not_listening(const ServerOptions& options) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(without_brackets(options.bind).c_str(),
                               std::to_string(options.port).c_str(), &hints, &found);
  if (code != 0) {
    return not_an_address(options.bind, gai_strerror(code));
  }
  const int probe = socket(found->ai_family, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool bound = bind(probe, found->ai_addr, found->ai_addrlen) == 0;
  const int reason = bound ? EADDRINUSE : errno;  // Free by now: its owner has just left.
  close(probe);
  freeaddrinfo(found);
  if (reason == EADDRINUSE) {
    return {ErrorCode::kHostResources,
            fmt::format("port {} on {} is in use; choose another with --port (0: any free one)",
                        options.port, options.bind)};
  }
  return {ErrorCode::kUsage,
          fmt::format("cannot listen on {}:{}: {}; choose others with --bind and --port",
                      options.bind, options.port, std::strerror(reason))};
}

class GrpcServer final : public Server {
 public:
  GrpcServer(const ServerOptions& options, const std::optional<TlsIdentity>& identity,
             DatasetStore& datasets)
      : service_(options, datasets) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    // Two servers on one port would share its clients at random.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(kRequestBytesMax);
    bound_clients(builder);
    builder.AddListeningPort(fmt::format("{}:{}", options.bind, options.port),
                             server_credentials(identity), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  ~GrpcServer() override { stop(); }

  [[nodiscard]] bool listening() const { return server_ != nullptr && port_ != 0; }

  [[nodiscard]] int port() const override { return port_; }

  void stop() override {
    if (server_ == nullptr || std::exchange(stopped_, true)) {
      return;
    }
    server_->GetHealthCheckService()->SetServingStatus(false);
    server_->Shutdown(std::chrono::system_clock::now() + kDrain);
  }

 private:
  Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  bool stopped_ = false;
};

}  // namespace

std::uint64_t batch_bytes_max_of(Bytes free_memory) {
  return std::min(ServerOptions{}.batch_bytes_max,
                  static_cast<std::uint64_t>(free_memory.count()) / 4);
}

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options,
                                              DatasetStore& datasets) {
  POPRUN_ASSIGN(const bool local, is_loopback(options.bind).map_error([&](const Error& error) {
    return not_an_address(options.bind, error.message);
  }));
  if (options.token.empty() && !local) {
    return fail(ErrorCode::kUsage,
                fmt::format("--bind {} lets other hosts in, which needs a job token; set "
                            "POPRUN_EMU_TOKEN or --token-file, or bind 127.0.0.1",
                            options.bind));
  }
  std::optional<TlsIdentity> identity = options.identity;
  if (!identity && !local) {
    POPRUN_TRY(check_hard_to_guess(options.token, "--bind " + options.bind));
    identity = identity_of_token(options.token);
  }
  auto server = std::make_unique<GrpcServer>(options, identity, datasets);
  if (!server->listening()) {
    return tl::unexpected(why_not_listening(options));
  }
  return server;
}

}  // namespace poprun::hostio
