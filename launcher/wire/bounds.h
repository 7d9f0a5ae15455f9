#pragma once

#include <cstdint>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

/// Bounds on what the launcher accepts from an instance. Refuses messages of an instance that has the token but is
/// broken, or has another version, so that the rest of the launcher can rely on the sizes and numbers in all other
/// messages.
namespace poprun::launcher {

/// The size of a job.
struct JobSize {
  std::uint32_t instances = 4096;
  std::uint32_t replicas_per_instance = 1;
};

// Check a message. Errors: kUsage, with what is wrong. Texts are limited to 255 B for names and addresses, 4 KiB for a
// replica's activity, and 1 MiB for its last message; lists to what a job of this size can have; tensors to 2^56
// elements; times must be finite and not negative.
Status check_bounds(const proto::JoinRequest& request, const JobSize& job);
Status check_bounds(const proto::Beat& beat, const JobSize& job);
Status check_bounds(const proto::Failure& failure, const JobSize& job);
Status check_bounds(const proto::ReportItem& item);
/// Also checks that the part's slices lie within its variables, of which it has at most 65,536 each.
Status check_bounds(const proto::StatePart& part, const JobSize& job);

}  // namespace poprun::launcher
