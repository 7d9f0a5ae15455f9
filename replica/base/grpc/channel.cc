#include "replica/base/grpc/channel.h"

#include <netdb.h>
#include <netinet/in.h>

#include "replica/base/grpc/local_socket.h"
#include "replica/base/text.h"

namespace poprun {
namespace {

constexpr int kMetadataBytesMax = 8 * 1024;
constexpr int kHandshakeMs = 10'000;
constexpr int kIdleMs = 300'000;
constexpr std::size_t kBufferBytesMax = std::size_t{256} << 20;

}  // namespace

std::shared_ptr<grpc::Channel> open_channel(const std::string& address, const std::optional<TlsIdentity>& identity,
                                            grpc::ChannelArguments arguments) {
  if (!identity) {
    return grpc::CreateCustomChannel(find_local_socket(address).value_or(address), grpc::InsecureChannelCredentials(),
                                     arguments);
  }
  arguments.SetSslTargetNameOverride(identity->peer_name);
  return grpc::CreateCustomChannel(address,
                                   grpc::SslCredentials({.pem_root_certs = identity->authorities,
                                                         .pem_private_key = identity->key,
                                                         .pem_cert_chain = identity->certificate}),
                                   arguments);
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(const std::optional<TlsIdentity>& identity) {
  if (!identity) {
    return grpc::InsecureServerCredentials();
  }
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = identity->authorities;
  options.pem_key_cert_pairs.push_back({identity->key, identity->certificate});
  return grpc::SslServerCredentials(options);
}

void bound_clients(grpc::ServerBuilder& builder, int calls_max) {
  grpc::ResourceQuota quota("poprun-emu");
  quota.Resize(kBufferBytesMax);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, calls_max);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
}

Result<bool> is_loopback(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(without_brackets(host).c_str(), nullptr, &hints, &found); code != 0) {
    return fail(ErrorCode::kUsage, gai_strerror(code));
  }
  bool local = true;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (at->ai_family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(at->ai_addr);  // NOLINT: type given by sa_family.
      local = local && ntohl(address->sin_addr.s_addr) >> 24U == IN_LOOPBACKNET;
    } else if (at->ai_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(at->ai_addr);  // NOLINT: type given by sa_family.
      local = local && IN6_IS_ADDR_LOOPBACK(&address->sin6_addr);
    }
  }
  freeaddrinfo(found);
  return local;
}

}  // namespace poprun
