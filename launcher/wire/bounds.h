#pragma once

#include <cstdint>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

/// What the launcher takes from an instance. One that has the token and is broken, or another
/// version, is refused here: what comes through is of a size, and of numbers, that the rest of the
/// launcher counts on.
namespace poprun::launcher {

/// How large a job is.
struct JobSize {
  std::uint32_t instances = 4096;
  std::uint32_t replicas_per_instance = 1;
};

// Each: kUsage, with what is wrong. Texts are limited to 255 B for names and addresses, 4 KiB for
// what a replica does, 1 MiB for what it ends with; lists to what a job of this size can have;
// tensors have 2^56 elements at most; times are finite and not below 0.
Status check_bounds(const proto::JoinRequest& request, const JobSize& job);
Status check_bounds(const proto::Beat& beat, const JobSize& job);
Status check_bounds(const proto::Failure& failure, const JobSize& job);
Status check_bounds(const proto::ReportItem& item);
/// Also that the part's slices lie within its variables, of which it has at most 65,536 each.
Status check_bounds(const proto::StatePart& part, const JobSize& job);

}  // namespace poprun::launcher
