#include "replica/coordinator/connection.h"

#include "replica/tls/channel.h"

namespace poprun {
namespace {

// A cut link is noticed after 40 s at most; a launcher that is only slow is left alone.
constexpr int kKeepaliveMs = 20000;

grpc::ChannelArguments arguments_of_channel() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // The launcher is on this machine or its own network: a proxy of the environment is never meant.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

}  // namespace

CoordinatorConnection::CoordinatorConnection(const std::string& host_port,
                                             const std::string& job_token,
                                             const std::optional<TlsIdentity>& identity)
    : address(host_port),
      token(job_token),
      channel(open_channel(host_port, identity, arguments_of_channel())),
      stub(proto::Coordinator::NewStub(channel)) {}

void CoordinatorConnection::prepare(grpc::ClientContext& context, double seconds) const {
  if (!token.empty()) {
    context.AddMetadata("poprun-token", token);
  }
  if (seconds > 0) {
    const auto wait = std::chrono::duration<double>(seconds);
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(wait));
  }
}

}  // namespace poprun
