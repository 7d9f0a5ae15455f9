#pragma once

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/grpcpp.h>

#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

/// gRPC with an identity or, on loopback, without.
namespace poprun {

/// A channel that presents `identity` and talks only to a server with such a one; without it, in plain text.
std::shared_ptr<grpc::Channel> open_channel(const std::string& address, const std::optional<TlsIdentity>& identity,
                                            grpc::ChannelArguments arguments);

/// What a server asks of its clients, likewise: one without a certificate does not get past the handshake.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const std::optional<TlsIdentity>& identity);

/// Calls at once on a connection to a server whose clients need only a few.
constexpr int kFewCallsMax = 32;

/// What a client can cost a server of ours that it has not been let into: at most 8 KiB of metadata a call, `calls_max`
/// calls at once on a connection, 10 s for a handshake, 256 MiB of buffers over all connections, and those without
/// calls are closed after 5 minutes.
///
/// A call beyond `calls_max` waits inside of the client's gRPC until another one ends: it must be more than the calls
/// that wait for each other.
void bound_clients(grpc::ServerBuilder& builder, int calls_max = kFewCallsMax);

/// Whether only this host reaches `host`, a name or address, in brackets or not.
///
/// Errors
///   kUsage  it is no address of a host; the resolver's reason alone.
Result<bool> is_loopback(const std::string& host);

}  // namespace poprun
