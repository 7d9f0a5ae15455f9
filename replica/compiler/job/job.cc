#include "replica/compiler/job/job.h"

#include <algorithm>

namespace poprun {

std::vector<TensorId> tensors_by_name(const Graph& graph, const std::set<Role>& roles) {
  std::vector<TensorId> found;
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    if (roles.contains(graph.tensors()[t].role)) {
      found.push_back(TensorId{t});
    }
  }
  std::ranges::sort(found, {}, [&](TensorId id) { return graph.tensor(id).name; });
  return found;
}

}  // namespace poprun
