#include "replica/compiler/exchange/background.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "replica/machine/operations.h"

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

void exchange_in_background(Graph& graph, Place backward, Place update, Bytes bucket) {
  std::vector<Operation>& updates = graph.at(update).operations;
  const auto exchange = std::ranges::find_if(
      updates, [](const Operation& operation) { return AllReduce::from(operation).has_value(); });
  POPRUN_CHECK(graph.at(backward).repeat == 1 && exchange != updates.end());

  AllReduce rest = *AllReduce::from(*exchange);
  const std::vector<Bucket> buckets = fill_buckets(graph, graph.at(backward), rest.tensors, bucket);
  AwaitAllReduces travelling;
  for (const Bucket& b : buckets) {
    travelling.tensors.insert(travelling.tensors.end(), b.gradients.begin(), b.gradients.end());
  }
  const std::set<TensorId> away(travelling.tensors.begin(), travelling.tensors.end());
  std::erase_if(rest.tensors, [&away](TensorId id) { return away.contains(id); });
  *exchange = rest.operation();
  updates.insert(rest.tensors.empty() ? updates.erase(exchange) : exchange, travelling.operation());
  std::vector<Operation>& operations = graph.at(backward).operations;
  for (auto b = buckets.rbegin(); b != buckets.rend(); ++b) {
    Operation begins = AllReduce{rest.reduction, true, b->gradients}.operation();
    begins.origin = operations[b->ready].origin;
    operations.insert(operations.begin() + static_cast<std::ptrdiff_t>(b->ready) + 1,
                      std::move(begins));
  }
}

}  // namespace poprun
