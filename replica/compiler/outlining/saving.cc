#include "replica/compiler/outlining/saving.h"

#include <algorithm>
#include <optional>

#include "replica/compiler/liveness/liveness.h"
#include "replica/compiler/mapping/plans.h"
#include "replica/compiler/mapping/product_layout.h"
#include "replica/compiler/tiles/demand.h"

namespace poprun {
namespace {

/// On tile 0, which has as much of a product as any other. What operators other than products
/// exchange depends on mappings and is left out, so this is rather too little.
Bytes code_of(const Graph& graph, const Operation& operation, const Device& device) {
  Bytes code = kControlCode;
  const std::optional<PlannedProduct> planned = plan_operation(graph, operation, device);
  if (planned) {
    const TileOperands held = operands_on(*planned->plan, 0);
    code += kVertexState;
    code += Bytes{code_to_receive(held.input) + code_to_receive(held.weights)};
    if (planned->plan->splits.reduction_depth() > 1) {
      code += Bytes{code_to_receive(held.partials)};
    }
  }
  return code;
}

}  // namespace

Saving saving_of(const Graph& graph, const ReadCounts& reads, const EqualRuns& equal,
                 const Device& device) {
  const Run& first = equal.runs.front();
  const std::vector<Operation>& operations = graph.at(first.place).operations;
  Saving saving;
  saving.ipu = graph.tensor(operations[first.begin].outputs.at(0)).ipu;
  saving.operations = static_cast<std::int64_t>(first.size());
  saving.runs = std::ssize(equal.runs);
  Bytes code;
  for (std::size_t o = first.begin; o < first.end; ++o) {
    code += code_of(graph, operations[o], device);
  }
  saving.code = code * (saving.runs - 1);
  std::vector<bool> is_copy;
  for (const std::vector<RunTensor>& run : tensors_of(graph, reads, equal)) {
    bool in = false;
    bool out = false;
    is_copy.resize(run.size());
    for (std::size_t t = 0; t < run.size(); ++t) {
      in = in || (run[t].comes_in && !run[t].is_shared);
      out = out || (run[t].goes_out && !run[t].is_shared);
      is_copy[t] = is_copy[t] || ((run[t].comes_in || run[t].goes_out) && !run[t].is_shared);
    }
    saving.copies += kControlCode * (std::int64_t{in} + std::int64_t{out});
  }
  const std::vector<TensorId> tensors = tensors_of(graph, first);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    saving.copied += is_copy[t] ? graph.tensor(tensors[t]).type.bytes() : Bytes{};
  }
  return saving;
}

std::vector<Bytes> live_peaks(const Graph& graph, std::int64_t ipus) {
  const Liveness liveness = compute_liveness(graph);
  std::vector<std::vector<Bytes>> changes(static_cast<std::size_t>(ipus),
                                          std::vector<Bytes>(liveness.step_count + std::size_t{1}));
  for (std::size_t t = 0; t < liveness.lives.size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    for (const Span& span : liveness.lives[t].spans) {
      changes.at(tensor.ipu)[span.first] += tensor.type.bytes();
      changes.at(tensor.ipu)[span.last + 1] += tensor.type.bytes() * -1;
    }
  }
  std::vector<Bytes> peaks;
  for (const std::vector<Bytes>& steps : changes) {
    Bytes now;
    Bytes& peak = peaks.emplace_back();
    for (const Bytes& change : steps) {
      now += change;
      peak = std::max(peak, now);
    }
  }
  return peaks;
}

}  // namespace poprun
