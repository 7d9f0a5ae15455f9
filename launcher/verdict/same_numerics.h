#pragma once

#include <string>

#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Checks that two instances compute bit-identical results, judging by their instruction sets, oneDNN versions and C
/// libraries. If `cpu_isa` is not empty, also checks that `other` uses that instruction set. Errors: kHostResources if
/// the results would differ; the message names the hosts, what differs, and what to do.
Status check_same_numerics(const proto::JoinRequest& first, const proto::JoinRequest& other,
                           const std::string& cpu_isa);

/// Records in a checkpoint's manifest the numerics of the instance that sent `request`.
void add_numerics(const proto::JoinRequest& request, proto::CheckpointManifest& manifest);

/// Checks that an instance can continue a checkpoint with bit-identical results. Errors: kHostResources if the results
/// would differ; the message names the host, what differs, and what to do.
Status check_numerics_of_checkpoint(const proto::CheckpointManifest& manifest, const proto::JoinRequest& request);

}  // namespace poprun::launcher
