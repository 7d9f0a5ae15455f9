#include "replica/compiler/techniques/background_exchange.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/compiler/job/pass.h"
#include "replica/machine/operations.h"

namespace poprun {
namespace {

/// Gradients that are reduced together, after operation `ready`.
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

std::vector<Bucket> fill_buckets(const Graph& graph, const Region& backward, const std::vector<TensorId>& exchanged,
                                 Bytes size) {
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
  const auto exchange =
      std::ranges::find_if(updates, [](const Operation& operation) { return AllReduce::from(operation).has_value(); });
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
    operations.insert(operations.begin() + static_cast<std::ptrdiff_t>(b->ready) + 1, std::move(begins));
  }
}

namespace passes::background_exchange {
namespace {

constexpr std::string_view kName = "background-exchange";

bool applies(const CompileOptions& options) {
  return in_training(options) && options.gradient_bucket > Bytes{0};
}

Note no_effect(std::string_view because) {
  return {"option.no-effect",
          fmt::format("training.gradient-bucket has no effect with {}", because),
          {{"option", "training.gradient-bucket"}}};
}

Status run(const CompileOptions& options, Job& job) {
  if (options.gradient_accumulation > 1) {
    job.notes.push_back(
        no_effect("training.gradient-accumulation: gradients are complete only after the last micro-batch"));
    return {};
  }
  if (job.ipu_of_stage.size() > 1) {
    job.notes.push_back(
        no_effect("several pipeline stages: each IPU exchanges its gradients only when it has all of them"));
    return {};
  }
  exchange_in_background(job.graph, job.training->micro_batch, job.training->update, options.gradient_bucket);
  return {};
}

std::map<std::pair<TensorId, Reduction>, int> reductions(const Job& job) {
  std::map<std::pair<TensorId, Reduction>, int> count;
  for (const Place place : {job.training->micro_batch, job.training->update}) {
    for (const Operation& operation : job.graph.at(place).operations) {
      if (const auto reduction = AllReduce::from(operation)) {
        for (const TensorId id : reduction->tensors) {
          ++count[{id, reduction->reduction}];
        }
      }
    }
  }
  return count;
}

/// Checks that reductions are as before and end before the step does, and that nothing uses a tensor while it is being
/// reduced.
Status verify(const CompileOptions& /*options*/, const Job& before, const Job& after) {
  const Graph& graph = after.graph;
  if (reductions(before) != reductions(after)) {
    return fail(ErrorCode::kBug, "pass background-exchange: a step no longer reduces the same tensors");
  }
  std::set<TensorId> travelling;
  for (const Place place : {after.training->micro_batch, after.training->update}) {
    for (const Operation& operation : graph.at(place).operations) {
      const auto reduction = AllReduce::from(operation);
      if (AwaitAllReduces::is(operation)) {
        for (const TensorId id : operation.inputs) {
          travelling.erase(id);  // The await ends only the reductions of its own tensors.
        }
      }
      for (const auto* ids : {&operation.inputs, &operation.outputs}) {
        for (const TensorId id : *ids) {
          if (travelling.contains(id)) {
            return pass_bug(kName, graph, id, "is used by " + operation.kind + " during its reduction");
          }
        }
      }
      if (reduction && reduction->in_background) {
        travelling.insert(reduction->tensors.begin(), reduction->tensors.end());
      }
    }
  }
  if (!travelling.empty()) {
    return pass_bug(kName, graph, *travelling.begin(), "is still being reduced when the step ends");
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify, true};
}

}  // namespace passes::background_exchange

}  // namespace poprun
