#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "collectives/local/tree_reduce.h"
#include "collectives/mpi/host_plan.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// The two halves of a reduction over replicas of several hosts: what the replicas of each of a
/// host's subtrees come to (a sum of kSumBytes an element, neither divided nor rounded), and what
/// the sums of all hosts come to, up the canonical tree.
///
/// Threads: belongs to one.
class HostSums {
 public:
  /// `plan` must outlive it.
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

  /// Sums of a host: one a subtree.
  [[nodiscard]] std::size_t count(std::size_t host) const { return plan_->subtrees[host].size(); }

  /// Sums of the hosts before `host`, this one's left out.
  [[nodiscard]] std::size_t others_before(std::size_t host) const {
    std::size_t sums = 0;
    for (std::size_t h = 0; h < host; ++h) {
      sums += h == plan_->self ? 0 : count(h);
    }
    return sums;
  }

  /// sum = what the replicas of this host's subtree `s` come to. source_of(i) is where the elements
  /// of the host's replica i are.
  template <typename SourceOf>
  void reduce(Reduction reduction, ElementType type, std::size_t s, const SourceOf& source_of,
              std::byte* sum, std::size_t elements) {
    const std::vector<Subtree>& mine = plan_->subtrees[plan_->self];
    std::size_t replica = 0;  // Subtrees of a host are in its order.
    for (std::size_t before = 0; before < s; ++before) {
      replica += mine[before].count;
    }
    sources_.clear();
    for (std::size_t i = 0; i < mine[s].count; ++i) {
      sources_.push_back(source_of(replica + i));
    }
    reduce_subtree(reduction, type, sources_, sum, elements);
  }

  /// target = what all replicas come to. sum_at(host, s) is where the sums of a host's subtree are.
  template <typename SumAt>
  void combine(Reduction reduction, ElementType type, const SumAt& sum_at, std::byte* target,
               std::size_t elements) {
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

  [[nodiscard]] const Subtree& subtree(const Leaf& leaf) const {
    return plan_->subtrees[leaf.host][leaf.subtree];
  }

  const HostPlan* plan_;
  std::vector<Leaf> leaves_;               ///< All hosts', in the order of the tree.
  std::vector<std::size_t> counts_;        ///< Replicas of each leaf.
  std::vector<const std::byte*> sources_;  ///< Scratch of a call.
};

}  // namespace poprun::collectives
