#include "hostio/streams/server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostio/streams/served_calls.h"
#include "hostio/streams/wire.h"
#include "proto/host_streams.grpc.pb.h"
#include "replica/base/grpc/channel.h"
#include "replica/base/grpc/identity.h"

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

std::string without_brackets(std::string host) {
  std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
  return host;
}

Error not_an_address(const std::string& bind, std::string_view reason) {
  return {ErrorCode::kUsage, fmt::format("cannot listen on {}: {}; choose an address of this host "
                                         "with --bind",
                                         bind, reason)};
}

/// Finds out why gRPC could not listen. gRPC gives no reason, so this binds a plain socket to the same address.
Error why_not_listening(const ServerOptions& options) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(without_brackets(options.bind).c_str(), std::to_string(options.port).c_str(), &hints, &found);
  if (code != 0) {
    return not_an_address(options.bind, gai_strerror(code));
  }
  const int probe = socket(found->ai_family, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool bound = bind(probe, found->ai_addr, found->ai_addrlen) == 0;
  const int reason = bound ? EADDRINUSE : errno;  // If the port is free by now, its owner has just ended.
  close(probe);
  freeaddrinfo(found);
  if (reason == EADDRINUSE) {
    return {ErrorCode::kHostResources,
            fmt::format("port {} on {} is in use; choose a different port with --port (0: any free port)", options.port,
                        options.bind)};
  }
  return {ErrorCode::kUsage,
          fmt::format("cannot listen on {}:{}: {}; choose a different address or port with --bind or --port",
                      options.bind, options.port, std::strerror(reason))};
}

class GrpcServer final : public Server {
 public:
  GrpcServer(const ServerOptions& options, const std::optional<TlsIdentity>& identity, DatasetStore& datasets)
      : service_(options, datasets) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    // Two servers on one port would share its clients at random.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(kRequestBytesMax);
    bound_clients(builder);
    builder.AddListeningPort(fmt::format("{}:{}", options.bind, options.port), server_credentials(identity), &port_);
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
  return std::min(ServerOptions{}.batch_bytes_max, static_cast<std::uint64_t>(free_memory.count()) / 4);
}

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, DatasetStore& datasets) {
  POPRUN_ASSIGN(const bool local, is_loopback(options.bind).map_error([&](const Error& error) {
    return not_an_address(options.bind, error.message);
  }));
  if (options.token.empty() && !local) {
    return fail(ErrorCode::kUsage, fmt::format("--bind {} opens the server to other hosts, which requires a job token; "
                                               "set POPRUN_EMU_TOKEN or --token-file, or use --bind 127.0.0.1",
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
