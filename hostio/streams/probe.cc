#include <chrono>

#include <fmt/format.h>

#include "hostio/streams/server.h"
#include "proto/health.grpc.pb.h"
#include "replica/base/grpc/channel.h"

namespace poprun::hostio {
namespace {

/// Returns an address at which this host reaches a server that is bound to `bind`.
std::string reachable(const std::string& bind) {
  return bind == "0.0.0.0" ? "127.0.0.1" : bind == "::" || bind == "[::]" ? "[::1]" : bind;
}

}  // namespace

Status probe(const ServerOptions& options) {
  constexpr std::chrono::seconds kPatience{5};
  namespace health = grpc::health::v1;
  const std::string address = fmt::format("{}:{}", reachable(options.bind), options.port);
  std::optional<TlsIdentity> identity = options.identity;
  if (!identity && !is_loopback(options.bind).value_or(false)) {
    POPRUN_TRY(check_hard_to_guess(options.token, "--bind " + options.bind));
    identity = identity_of_token(options.token);
  }
  const auto stub = health::Health::NewStub(open_channel(address, identity, {}));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  health::HealthCheckResponse answer;
  const grpc::Status status = stub->Check(&context, {}, &answer);
  if (!status.ok() || answer.status() != health::HealthCheckResponse::SERVING) {
    return fail(ErrorCode::kUnreachable,
                fmt::format("the data server at {} does not serve: {}", address,
                            status.ok() ? health::HealthCheckResponse::ServingStatus_Name(answer.status())
                                        : status.error_message()));
  }
  return {};
}

}  // namespace poprun::hostio
