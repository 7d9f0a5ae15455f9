#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launcher/verdict/job_state.h"

/// Functions that describe replicas, their hosts and their activity in words. Facts known only from heartbeats are
/// marked as such, with the age of the heartbeat, and steps known in this way are lower bounds. The state is exact only
/// for a replica that reported its failure. `now` is a time on the launcher's clock.
namespace poprun::launcher {

/// Formats ascending numbers as `0-4, 6`.
std::string number_ranges(std::span<const std::uint32_t> numbers);

/// Formats an instance as `replica 5 (instance 5, host node1, pid 4711)`.
std::string describe(const JobState& state, std::uint32_t instance);

/// Formats several replicas, as whole hosts if possible: `host node1 (replicas 2, 3)`, otherwise `replicas 2, 3 (host
/// node1)`. Requires: `replicas` is ascending and not empty.
std::string describe_replicas(const JobState& state, std::span<const std::uint32_t> replicas);

/// Returns whether `replicas` comprise all replicas on their hosts, and not just one per host, but not the whole job.
bool are_whole_hosts(const JobState& state, std::span<const std::uint32_t> replicas);

std::vector<std::uint32_t> replicas_of(const JobState& state, std::span<const std::uint32_t> instances);

/// Returns the position of the replica that is furthest behind in an instance, such as `at step 8 (conv1)`, `at step 8
/// or later (conv1 at its last heartbeat, 0.4 s ago)`, or `before it joined the job`.
std::string where(const JobState& state, std::uint32_t instance, double now);

/// Groups `replicas` that have the same activity, and returns one line per group, such as `replicas 0-3 were at step
/// 7-9 or later (all-reduce of 8 tensors for 2.0 s at their last heartbeat, 0.4 s ago)`.
std::vector<std::string> what_they_did(const JobState& state, std::span<const std::uint32_t> replicas, double now);

/// Returns a few lines that begin with "  meanwhile" for the replicas of all instances except `except`.
std::vector<std::string> meanwhile(const JobState& state, std::span<const std::uint32_t> except, double now);

}  // namespace poprun::launcher
