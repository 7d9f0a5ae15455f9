#include "replica/compiler/exchange/background.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace poprun {
namespace {

/// Gradients that travel together, once operation `ready` has run.
struct Bucket {
  std::size_t ready = 0;
  std::vector<TensorId> gradients;
};

std::map<TensorId, std::size_t> last_uses(const Region& region) {
  std::map<TensorId, std::size_t> uses;
  for (std::size_t i = 0; i < region.operations.size(); ++i) {
    for (const auto* tensors : {&region.operations[i].inputs, &region.operations[i].outputs}) {
      for (const TensorId id : *tensors) {
        uses[id] = i;
      }
    }
  }
  return uses;
}

std::vector<Bucket> fill_buckets(const Graph& graph, const Region& backward,
                                 const std::vector<TensorId>& exchanged, Bytes size) {
  const std::map<TensorId, std::size_t> uses = last_uses(backward);
  std::vector<std::pair<std::size_t, TensorId>> ready;
  for (const TensorId id : exchanged) {
    if (graph.tensor(id).role == Role::kGradient && uses.contains(id)) {
      ready.emplace_back(uses.at(id), id);
    }
  }
  std::ranges::stable_sort(ready, {}, [](const auto& pair) { return pair.first; });
  std::vector<Bucket> buckets;
  Bytes filled = size;
  for (const auto& [operation, id] : ready) {
    if (filled >= size) {
      buckets.emplace_back();
      filled = Bytes{0};
    }
    buckets.back().ready = operation;
    buckets.back().gradients.push_back(id);
    filled += graph.tensor(id).type.bytes();
  }
  return buckets;
}

}  // namespace

void exchange_in_background(Graph& graph, Bytes bucket) {
  const auto train = std::ranges::find(graph.functions, "train", &Function::name);
  POPRUN_CHECK(train != graph.functions.end() && train->regions.size() > 1);
  std::vector<Operation>& update = train->regions.back().operations;
  Region& backward = train->regions[train->regions.size() - 2];
  const auto exchange = std::ranges::find(update, "all_reduce", &Operation::kind);
  POPRUN_CHECK(backward.repeat == 1 && exchange != update.end());

  const std::vector<Bucket> buckets = fill_buckets(graph, backward, exchange->inputs, bucket);
  std::vector<TensorId> travelling;
  for (const Bucket& b : buckets) {
    travelling.insert(travelling.end(), b.gradients.begin(), b.gradients.end());
  }
  const std::set<TensorId> away(travelling.begin(), travelling.end());
  for (auto* tensors : {&exchange->inputs, &exchange->outputs}) {
    std::erase_if(*tensors, [&away](TensorId id) { return away.contains(id); });
  }
  Attributes attributes = exchange->attributes;
  attributes.set("background", std::int64_t{1});
  update.insert(exchange, {"await_all_reduces", travelling, travelling, {}});
  for (auto b = buckets.rbegin(); b != buckets.rend(); ++b) {
    backward.operations.insert(
        backward.operations.begin() + static_cast<std::ptrdiff_t>(b->ready) + 1,
        {"all_reduce", b->gradients, b->gradients, attributes});
  }
}

}  // namespace poprun
