#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/patterns/subtrees.h"

namespace poprun::collectives {

/// A process of a channel.
struct Process {
  int rank = 0;                       ///< In MPI_COMM_WORLD.
  std::size_t host = 0;               ///< From 0 without gaps, in the order of first replicas.
  std::vector<std::size_t> replicas;  ///< Its replicas of the channel, by job number, ascending.
};

/// Which replicas of a channel are where; every process computes the same plan. A replica's index
/// is its position among the channel's replicas.
struct HostPlan {
  std::size_t self = 0;                            ///< This host.
  std::vector<Process> processes;                  ///< In the order of their replicas.
  std::vector<std::size_t> numbers;                ///< By index: number in the job, ascending.
  std::vector<std::vector<std::size_t>> replicas;  ///< By host: indices, ascending.
  std::vector<std::vector<Subtree>> subtrees;      ///< By host: subtrees of its replicas.
  std::vector<double> shares;  ///< By host: its share of an all-reduce, see `shares_of`.

  /// The plan for all processes of the job; `self` is this host.
  HostPlan(std::vector<Process> processes, std::size_t self);

  /// The plan for a group, without the hosts and processes that have none of its members.
  /// Requires: `members` are ascending indices, some of them on this host.
  [[nodiscard]] HostPlan among(std::span<const std::size_t> members) const;

  [[nodiscard]] std::size_t total() const { return numbers.size(); }
  [[nodiscard]] std::size_t hosts() const { return replicas.size(); }
};

}  // namespace poprun::collectives
