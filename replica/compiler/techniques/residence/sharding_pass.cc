#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/techniques/residence/locations.h"
#include "replica/compiler/techniques/residence/sharding.h"
#include "replica/machine/exchange.h"
#include "replica/machine/operations.h"
#include "replica/ops/face/operator.h"

/// Replicated tensor sharding: divides weights, optimiser state and accumulators among replicas, as the options
/// request.
namespace poprun::passes::sharding {
namespace {

constexpr std::string_view kName = "sharding";
constexpr const char* kOption = "memory.replicated-tensor-sharding";

bool applies(const CompileOptions& options) {
  return options.sharding.any();
}

/// Returns the number of replicas that share a tensor; 0 for all.
std::int64_t group_of(const CompileOptions& options) {
  return options.sharding.group == options.replicas ? 0 : options.sharding.group;
}

bool is_asked_for(const ShardingOptions& options, Kept kept) {
  switch (kept) {
    case Kept::kWeight:
      return options.weights;
    case Kept::kOptimizerState:
      return options.optimizer_state;
    case Kept::kAccumulator:
      return options.accumulators;
    case Kept::kActivation:
      break;
  }
  return false;
}

/// Returns the optimiser state that an operator updates unsharded, with the kind of that operator.
std::map<TensorId, std::string> updated_whole(const Graph& graph) {
  std::map<TensorId, std::string> found;
  for (const Function& function : graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        const Operator* op = find_operator(operation.kind);
        const std::size_t cut = op != nullptr ? op->on_shards.inputs : 0;
        for (std::size_t i = cut; op != nullptr && i < operation.inputs.size(); ++i) {
          const TensorId id = operation.inputs[i];
          if (graph.tensor(id).role == Role::kOptimizerState &&
              std::ranges::find(operation.outputs, id) != operation.outputs.end()) {
            found[id] = operation.kind;
          }
        }
      }
    }
  }
  return found;
}

/// Returns the reason why a tensor cannot be sharded; empty if it can.
std::string obstacle(const CompileOptions& options, const Tensor& tensor, const std::string& updated_by) {
  if (!updated_by.empty()) {
    return fmt::format("{} updates the full tensor", updated_by);
  }
  if (tensor.copy_of) {
    return "it is a copy for another IPU";
  }
  if (tensor.type.elements() < options.sharding.elements_min) {
    return fmt::format("fewer than {} elements (memory.sharding-min-elements)", options.sharding.elements_min);
  }
  return {};
}

Note no_effect(const std::string& why) {
  return {"option.no-effect", fmt::format("{} has no effect: {}", kOption, why), {{"option", kOption}}};
}

Status run(const CompileOptions& options, Job& job) {
  const std::int64_t group = group_of(options);
  const std::int64_t count = group > 0 ? group : options.replicas;
  if (count == 1) {
    job.notes.push_back(no_effect("there is only one replica per group"));
    return {};
  }
  if (options.replicas % count != 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("memory.sharding-group = {}: {} cannot be divided into groups of {}; use "
                            "a divisor of the number of replicas",
                            count, counted(static_cast<std::uint64_t>(options.replicas), "replica"), count));
  }
  std::set<TensorId> sharded;
  Bytes saved;
  std::uint64_t whole = 0;
  std::map<TensorId, std::string> whole_for = updated_whole(job.graph);
  std::set<std::string> rules;  // Update rules that need unsharded state.
  for (const auto& [id, kept] : kept_tensors(job.graph)) {
    if (!is_asked_for(options.sharding, kept)) {
      continue;
    }
    const Tensor& tensor = job.graph.tensor(id);
    if (whole_for.contains(id)) {
      rules.insert(whole_for[id]);
    }
    const std::string why = obstacle(options, tensor, whole_for[id]);
    job.locations.push_back(why.empty() ? fmt::format("{}: sharded over {} replicas", tensor.name, count)
                                        : fmt::format("{}: not sharded, {}", tensor.name, why));
    if (!why.empty()) {
      ++whole;
      continue;
    }
    sharded.insert(id);
    saved += tensor.type.bytes() - shard_type(tensor.type, count).bytes();
  }
  if (!rules.empty()) {
    const std::string optimisers = fmt::format("{}", fmt::join(rules, ", "));
    job.notes.push_back({"sharding.optimiser",
                         fmt::format("{}: the state of {} is not sharded, because the update does not work on shards",
                                     kOption, optimisers),
                         {{"optimisers", optimisers}}});
  }
  if (sharded.empty() && rules.empty()) {
    job.notes.push_back(no_effect(whole == 0
                                      ? "the job has no tensors of the given kinds"
                                      : fmt::format("{} cannot be sharded: each has fewer than {} elements "
                                                    "(memory.sharding-min-elements) or is a copy for another IPU",
                                                    counted(whole, "tensor"), options.sharding.elements_min)));
  }
  if (sharded.empty()) {
    return {};
  }
  shard_variables(job.graph, sharded, group, options.replicas,
                  job.training ? std::optional(job.training->update) : std::nullopt,
                  job.training ? job.training->phases : std::vector<Place>{});
  job.notes.push_back({"sharding.sharded",
                       fmt::format("{} sharded over {} replicas, which saves {}{}", counted(sharded.size(), "tensor"),
                                   count, mebibytes_text(static_cast<std::uint64_t>(saved.count())),
                                   whole == 0 ? "" : fmt::format("; {} not sharded", counted(whole, "tensor"))),
                       {{"tensors", sharded.size()}, {"replicas", count}, {"saved", saved}, {"not-sharded", whole}}});
  return {};
}

/// Checks that each shard has its tensor's type and one replica's share of the elements, and that all exchanges of
/// shards use the same groups.
Status verify(const CompileOptions& options, const Job& /*before*/, const Job& after) {
  const Graph& graph = after.graph;
  const std::int64_t group = group_of(options);
  const std::int64_t count = group > 0 ? group : options.replicas;
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    if (tensor.shard_of && tensor.type.elements() != ceil_div(tensor.shard_of->elements(), count)) {
      return pass_bug(kName, graph, TensorId{t}, "has the wrong size for a shard across that many replicas");
    }
    if (tensor.residence && graph.tensor(tensor.residence->tensor).shard_of != tensor.type) {
      return pass_bug(kName, graph, TensorId{t}, "resides in a shard of another tensor");
    }
  }
  for (const Function& function : graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        const bool exchanges = Shard::is(operation) || ReduceScatter::is(operation) || AllGather::is(operation);
        if (exchanges && poprun::group_of(operation) != group) {
          return pass_bug(kName, graph, operation.outputs[0], "is exchanged in a different group");
        }
      }
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify, true};
}

}  // namespace poprun::passes::sharding
