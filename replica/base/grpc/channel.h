#pragma once

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/grpcpp.h>

#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

/// gRPC channels with TLS or, on loopback, in plain text.
namespace poprun {

/// Opens a channel that presents `identity` and accepts only servers whose certificate is signed by the same
/// authorities. Without an identity, the channel is in plain text, and uses the server's local socket (local_socket.h)
/// if there is one at present.
std::shared_ptr<grpc::Channel> open_channel(const std::string& address, const std::optional<TlsIdentity>& identity,
                                            grpc::ChannelArguments arguments);

/// Returns a server's credentials, which reject clients without a valid certificate during the handshake. Without an
/// identity, the credentials are for plain text.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const std::optional<TlsIdentity>& identity);

/// Maximum number of concurrent calls per connection to a server whose clients need only a few.
constexpr int kFewCallsMax = 32;

/// Limits what a client can cost a server before the server has authenticated it: 8 KiB of metadata per call,
/// `calls_max` concurrent calls per connection, 10 s per handshake and 256 MiB of buffers over all connections.
/// Connections without calls are closed after 5 minutes. A call beyond `calls_max` waits inside the client's gRPC until
/// another call ends, so `calls_max` must exceed the number of calls that wait for each other.
void bound_clients(grpc::ServerBuilder& builder, int calls_max = kFewCallsMax);

/// Checks whether `host`, a name or address with or without brackets, is a loopback address. Errors: kUsage if `host`
/// is not a host address; the message consists only of the resolver's reason.
Result<bool> is_loopback(const std::string& host);

}  // namespace poprun
