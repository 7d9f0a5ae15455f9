#pragma once

#include <string>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// That two instances compute the same bits: by their instruction sets, oneDNN and C library. With
/// `cpu_isa`, also that `other` computes with that instruction set.
///
/// Errors
///   kHostResources  names both hosts, what each has, and what to do.
Status check_same_numerics(const proto::JoinRequest& first, const proto::JoinRequest& other,
                           const std::string& cpu_isa);

}  // namespace poprun::launcher
