#pragma once

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/grpcpp.h>

#include "proto/coordinator.grpc.pb.h"
#include "replica/tls/identity.h"

namespace poprun {

/// The channel to the launcher, and what every call on it carries.
struct CoordinatorConnection {
  std::string address;  ///< host:port.
  std::string token;    ///< Empty where the job has none.
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<proto::Coordinator::Stub> stub;

  CoordinatorConnection(const std::string& host_port, const std::string& job_token,
                        const std::optional<TlsIdentity>& identity);

  /// Adds the token and, where `seconds` > 0, a deadline.
  void prepare(grpc::ClientContext& context, double seconds) const;
};

}  // namespace poprun
