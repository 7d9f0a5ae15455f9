#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/answers.pb.h"
#include "replica/program/program.h"

namespace poprun {

/// Returns one call of a function as Chakra execution traces, one for each IPU of a replica (ChakraTrace).
///
///   IPU 0   COMP_NODE --> COMM_SEND_NODE --> COMP_NODE --> COMM_COLL_NODE (all-reduce, duration 0) --> COMP_NODE
///   IPU 1   COMM_RECV_NODE --> COMP_NODE ..
///
/// A COMP_NODE contains everything that an IPU does between two exchanges: computing, exchanging between tiles,
/// synchronising, and transfers from and to the host or Streaming Memory, with its device time and its flops (num_ops).
/// Durations are rounded to microseconds so that their sum is the rounded sum. Exchanges have sizes but no durations,
/// because a simulator's network computes these. A collective in the background depends on the node before it, and only
/// the step that awaits it depends on it. Cost: linear in the steps of the call, with all rounds of repeats.
std::vector<proto::ChakraTrace> chakra_traces(const Program& program, const std::string& function,
                                              std::uint32_t replicas);

}  // namespace poprun
