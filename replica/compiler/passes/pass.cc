#include "replica/compiler/passes/pass.h"

#include <fmt/format.h>

namespace poprun {

bool streams_weights_one_by_one(const CompileOptions& options) {
  return options.sharding.weights || options.locations.weights == Storage::kOffChip ||
         !options.locations.overrides.empty();
}

Writers::Writers(const Graph& graph, Place place) : writers_(graph.tensors().size()) {
  for (const Operation& operation : graph.at(place).operations) {
    for (const TensorId id : operation.outputs) {
      writers_[index_of(id)].push_back(&operation);
    }
  }
}

tl::unexpected<Error> pass_bug(std::string_view name, const Graph& graph, TensorId tensor,
                               std::string_view what) {
  return fail(ErrorCode::kBug,
              fmt::format("pass {}: '{}' {}", name, graph.tensor(tensor).name, what));
}

}  // namespace poprun
