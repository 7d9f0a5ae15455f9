#include "replica/compiler/passes/pass.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun {

std::vector<const Operation*> writers(const Graph& graph, Place place, TensorId tensor) {
  std::vector<const Operation*> found;
  for (const Operation& operation : graph.at(place).operations) {
    if (std::ranges::find(operation.outputs, tensor) != operation.outputs.end()) {
      found.push_back(&operation);
    }
  }
  return found;
}

tl::unexpected<Error> pass_bug(std::string_view name, const Graph& graph, TensorId tensor,
                               std::string_view what) {
  return fail(ErrorCode::kBug,
              fmt::format("pass {}: '{}' {}", name, graph.tensor(tensor).name, what));
}

}  // namespace poprun
