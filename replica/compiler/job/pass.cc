#include "replica/compiler/job/pass.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun {

std::vector<Place> forward_places(const Job& job) {
  std::vector<Place> places;
  if (job.training) {
    places.push_back(job.training->micro_batch);
  }
  if (job.evaluation) {
    places.push_back(*job.evaluation);
  }
  return places;
}

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

tl::unexpected<Error> pass_bug(std::string_view name, const Graph& graph, TensorId tensor, std::string_view what) {
  return fail(ErrorCode::kBug, fmt::format("pass {}: '{}' {}", name, graph.tensor(tensor).name, what));
}

}  // namespace poprun
