#include "collectives/mpi/host_plan.h"

#include <utility>

#include "collectives/patterns/shares.h"
#include "replica/base/error.h"

namespace poprun::collectives {

HostPlan::HostPlan(std::vector<Process> all, std::size_t host) : self(host), processes(std::move(all)) {
  for (const Process& process : processes) {
    replicas.resize(std::max(replicas.size(), process.host + 1));
    for (const std::size_t number : process.replicas) {
      replicas[process.host].push_back(numbers.size());
      numbers.push_back(number);
    }
  }
  std::vector<std::size_t> sums;
  for (const std::vector<std::size_t>& here : replicas) {
    subtrees.push_back(subtrees_of(here, total()));
    sums.push_back(subtrees.back().size());
  }
  shares = shares_of(sums);
}

HostPlan HostPlan::among(std::span<const std::size_t> members) const {
  std::vector<Process> some;
  std::vector<std::size_t> hosts_of_some;
  std::size_t index = 0;
  for (const Process& process : processes) {
    Process part{.rank = process.rank, .host = 0, .replicas = {}};
    for (const std::size_t number : process.replicas) {
      if (std::ranges::binary_search(members, index++)) {
        part.replicas.push_back(number);
      }
    }
    if (part.replicas.empty()) {
      continue;
    }
    const auto known = std::ranges::find(hosts_of_some, process.host);
    part.host = static_cast<std::size_t>(known - hosts_of_some.begin());
    if (known == hosts_of_some.end()) {
      hosts_of_some.push_back(process.host);
    }
    some.push_back(std::move(part));
  }
  const auto mine = std::ranges::find(hosts_of_some, self);
  POPRUN_CHECK(mine != hosts_of_some.end());
  return {std::move(some), static_cast<std::size_t>(mine - hosts_of_some.begin())};
}

}  // namespace poprun::collectives
