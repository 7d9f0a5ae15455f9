#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "collectives/local/tree_reduce.h"
#include "collectives/patterns/canonical_tree.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

struct Process {
  int rank = 0;                       ///< Rank in MPI_COMM_WORLD.
  std::size_t host = 0;               ///< From 0 without gaps, in the order of the hosts' first replicas.
  std::vector<std::size_t> replicas;  ///< Job-wide numbers of its replicas in the channel, ascending.
};

/// Locations of a channel's replicas, the same in every process. A replica's index is its position in the channel.
struct HostPlan {
  std::size_t self = 0;                            ///< This host.
  std::vector<Process> processes;                  ///< In the order of their replicas.
  std::vector<std::size_t> numbers;                ///< For each index: number in the job, ascending.
  std::vector<std::vector<std::size_t>> replicas;  ///< For each host: indices, ascending.
  std::vector<std::vector<Subtree>> subtrees;      ///< For each host: subtrees of its replicas.
  std::vector<double> shares;                      ///< For each host: its share of an all-reduce (see `shares_of`).

  /// Creates the plan for all processes of the job; `self` is this host.
  HostPlan(std::vector<Process> processes, std::size_t self);

  /// Returns the plan for a group, without hosts and processes that have none of its members. Requires: `members` are
  /// ascending indices, at least one of them on this host.
  [[nodiscard]] HostPlan among(std::span<const std::size_t> members) const;

  [[nodiscard]] std::size_t total() const { return numbers.size(); }
  [[nodiscard]] std::size_t hosts() const { return replicas.size(); }
};

/// The two halves of a reduction over several hosts: first the sum over each subtree of a host (kSumBytes per element,
/// neither divided nor rounded), then the reduction of all hosts' sums along the canonical tree. Threads: one.
class HostSums {
 public:
  /// `plan` must outlive this object.
  explicit HostSums(const HostPlan& plan) : plan_(&plan) {
    for (std::size_t h = 0; h < plan.hosts(); ++h) {
      for (std::size_t s = 0; s < plan.subtrees[h].size(); ++s) {
        leaves_.push_back({h, s});
      }
    }
    std::ranges::sort(leaves_, {}, [&](const Leaf& leaf) { return subtree(leaf).first; });
    for (const Leaf& leaf : leaves_) {
      counts_.push_back(subtree(leaf).count);
    }
  }

  /// Number of sums of `host`: one per subtree.
  [[nodiscard]] std::size_t count(std::size_t host) const { return plan_->subtrees[host].size(); }

  /// Number of sums of the hosts before `host`, not counting this host's.
  [[nodiscard]] std::size_t others_before(std::size_t host) const {
    std::size_t sums = 0;
    for (std::size_t h = 0; h < host; ++h) {
      sums += h == plan_->self ? 0 : count(h);
    }
    return sums;
  }

  /// sum = the reduction over replicas of this host's subtree `s`. source_of(i) returns the data of the host's replica
  /// i.
  template <typename SourceOf>
  void reduce(Reduction reduction, ElementType type, std::size_t s, const SourceOf& source_of, std::byte* sum,
              std::size_t elements) {
    const std::vector<Subtree>& mine = plan_->subtrees[plan_->self];
    std::size_t replica = 0;  // A host's subtrees are in replica order.
    for (std::size_t before = 0; before < s; ++before) {
      replica += mine[before].count;
    }
    sources_.clear();
    for (std::size_t i = 0; i < mine[s].count; ++i) {
      sources_.push_back(source_of(replica + i));
    }
    reduce_subtree(reduction, type, sources_, sum, elements);
  }

  /// target = the reduction over all replicas. sum_at(host, s) returns the sum of subtree s of a host.
  template <typename SumAt>
  void combine(Reduction reduction, ElementType type, const SumAt& sum_at, std::byte* target, std::size_t elements) {
    sources_.clear();
    for (const Leaf& leaf : leaves_) {
      sources_.push_back(sum_at(leaf.host, leaf.subtree));
    }
    combine_subtrees(reduction, type, sources_, counts_, target, elements);
  }

 private:
  struct Leaf {
    std::size_t host;
    std::size_t subtree;
  };

  [[nodiscard]] const Subtree& subtree(const Leaf& leaf) const { return plan_->subtrees[leaf.host][leaf.subtree]; }

  const HostPlan* plan_;
  std::vector<Leaf> leaves_;               ///< The sums of all hosts, in tree order.
  std::vector<std::size_t> counts_;        ///< Replicas per leaf.
  std::vector<const std::byte*> sources_;  ///< Scratch space of a call.
};

}  // namespace poprun::collectives
