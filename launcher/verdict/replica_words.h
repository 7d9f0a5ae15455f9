#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launcher/verdict/job_state.h"

/// Which replicas, where, and what they did, in words. What is known from heartbeats alone is told
/// so, with its age: steps that were done at least. Only a replica that said why it failed is known
/// exactly. Pure functions of what the launcher knows; `now` is of its clock.
namespace poprun::launcher {

/// `0-4, 6` from rising numbers.
std::string number_ranges(std::span<const std::uint32_t> numbers);

/// `replica 5 (instance 5, host node1, pid 4711)`.
std::string describe(const JobState& state, std::uint32_t instance);

/// The same of several, as whole hosts where they are: `host node1 (replicas 2, 3)`, else
/// `replicas 2, 3 (host node1)`. Requires: rising, not empty.
std::string describe_replicas(const JobState& state, std::span<const std::uint32_t> replicas);

/// Whether these are all replicas of their hosts, several on each, and not all of the job.
bool are_whole_hosts(const JobState& state, std::span<const std::uint32_t> replicas);

/// All replicas of these instances.
std::vector<std::uint32_t> replicas_of(const JobState& state,
                                       std::span<const std::uint32_t> instances);

/// Where the replica of an instance was that is furthest behind: `at step 8 (conv1)`, `at step 8 or
/// later (conv1 at its last heartbeat, 0.4 s ago)`, `before it joined the job`.
std::string where(const JobState& state, std::uint32_t instance, double now);

/// A line for each group of these replicas that did the same: `replicas 0-3 were at step 7-9 or
/// later (all-reduce of 8 tensors for 2.0 s at their last heartbeat, 0.4 s ago)`.
std::vector<std::string> what_they_did(const JobState& state,
                                       std::span<const std::uint32_t> replicas, double now);

/// `  meanwhile ...` for the replicas of all instances but some, in a few lines.
std::vector<std::string> meanwhile(const JobState& state, std::span<const std::uint32_t> except,
                                   double now);

}  // namespace poprun::launcher
