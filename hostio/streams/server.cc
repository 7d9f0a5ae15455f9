#include "hostio/streams/server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include "hostio/streams/served_calls.h"
#include "hostio/streams/wire.h"
#include "proto/health.grpc.pb.h"
#include "proto/host_streams.grpc.pb.h"
#include "replica/base/grpc/channel.h"
#include "replica/base/grpc/identity.h"
#include "replica/base/grpc/listener.h"

namespace poprun::hostio {
namespace {

constexpr std::chrono::milliseconds kDrain{100};
constexpr int kRequestBytesMax = 64 * 1024;

using ServiceBase = proto::HostStreams::WithCallbackMethod_Describe<
    proto::HostStreams::WithRawCallbackMethod_Pull<proto::HostStreams::Service>>;

class Service final : public ServiceBase {
 public:
  Service(const ServerOptions& options, DatasetStore& datasets)
      : token_(options.token), datasets_(datasets), room_(std::make_shared<Room>(options.batch_bytes_max)) {}

  grpc::ServerWriteReactor<proto::DescribeReply>* Describe(grpc::CallbackServerContext* context,
                                                           const proto::DescribeRequest* request) override {
    return serve_describe(datasets_, news_, admit(*context), *request);
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Pull(grpc::CallbackServerContext* context) override {
    return serve_pull(datasets_, news_, room_, admit(*context));
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
    return {grpc::StatusCode::UNAUTHENTICATED, found == context.client_metadata().end()
                                                   ? "the data server needs the job's token, but the call carried none"
                                                   : "the data server was started with a token other than this job's"};
  }

  const std::string token_;
  DatasetStore& datasets_;
  const std::shared_ptr<Room> room_;
  NewsThread news_;
};

/// Returns the identity of a server with these options, or nothing if its connections are in plain text. Errors: those
/// of Server::start for the address and the token.
Result<std::optional<TlsIdentity>> identity_of(const ServerOptions& options) {
  POPRUN_ASSIGN(const bool local, is_loopback(options.bind).map_error([&](const Error& error) {
    return Error{ErrorCode::kUsage, fmt::format("cannot listen on {}: {}; choose an address of this host with --bind",
                                                options.bind, error.message)};
  }));
  if (options.token.empty() && !local) {
    return fail(ErrorCode::kUsage, fmt::format("--bind {} opens the server to other hosts, which requires a job token; "
                                               "set POPRUN_EMU_TOKEN or --token-file, or use --bind 127.0.0.1",
                                               options.bind));
  }
  if (options.identity || local) {
    return options.identity;
  }
  POPRUN_TRY(check_hard_to_guess(options.token, "--bind " + options.bind));
  return identity_of_token(options.token);
}

/// Returns an address at which this host reaches a server that is bound to `bind`.
std::string reachable(const std::string& bind) {
  return bind == "0.0.0.0" ? "127.0.0.1" : bind == "::" || bind == "[::]" ? "[::1]" : bind;
}

/// Adds the remedy to an error of Listener::open.
Error with_remedy(Error error) {
  error.message += error.code == ErrorCode::kUsage ? "; choose a different address or port with --bind or --port"
                                                   : "; choose a different port with --port (0: any free port)";
  return error;
}

class GrpcServer final : public Server {
 public:
  GrpcServer(const ServerOptions& options, const std::optional<TlsIdentity>& identity, DatasetStore& datasets,
             std::unique_ptr<Listener> listener)
      : service_(options, datasets), listener_(std::move(listener)) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kRequestBytesMax);
    bound_clients(builder);
    listener_->feed(builder, identity);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    listener_->start();
  }

  ~GrpcServer() override { stop(); }

  [[nodiscard]] int port() const override { return listener_->port(); }

  void stop() override {
    if (std::exchange(stopped_, true)) {
      return;
    }
    server_->GetHealthCheckService()->SetServingStatus(false);
    server_->Shutdown(std::chrono::system_clock::now() + kDrain);
    listener_->stop();
  }

 private:
  Service service_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
  bool stopped_ = false;
};

}  // namespace

std::uint64_t batch_bytes_max_of(Bytes free_memory) {
  return std::min(ServerOptions{}.batch_bytes_max, static_cast<std::uint64_t>(free_memory.count()) / 4);
}

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, DatasetStore& datasets) {
  POPRUN_ASSIGN(const std::optional<TlsIdentity> identity, identity_of(options));
  POPRUN_ASSIGN(auto listener, Listener::open(options.bind, options.port).map_error(with_remedy));
  return std::make_unique<GrpcServer>(options, identity, datasets, std::move(listener));
}

Status probe(const ServerOptions& options) {
  constexpr std::chrono::seconds kPatience{5};
  namespace health = grpc::health::v1;
  POPRUN_ASSIGN(const std::optional<TlsIdentity> identity, identity_of(options));
  const std::string address = fmt::format("{}:{}", reachable(options.bind), options.port);
  const auto stub = health::Health::NewStub(open_channel(address, identity, {}));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  health::HealthCheckResponse answer;
  const grpc::Status status = stub->Check(&context, {}, &answer);
  if (!status.ok() || answer.status() != health::HealthCheckResponse::SERVING) {
    return fail(ErrorCode::kUnreachable,
                fmt::format("the data server at {} is not serving: {}", address,
                            status.ok() ? health::HealthCheckResponse::ServingStatus_Name(answer.status())
                                        : status.error_message()));
  }
  return {};
}

}  // namespace poprun::hostio
