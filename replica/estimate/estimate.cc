#include "replica/estimate/estimate.h"

#include <algorithm>
#include <map>
#include <set>

#include "replica/choices/choices.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/passes.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/optimizers/optimizer.h"

namespace poprun {
namespace {

/// Returns the options of a job that has one replica on one IPU and also evaluates.
CompileOptions on_one_ipu(CompileOptions options) {
  options.replicas = 1;
  options.ipus_per_replica = 1;
  options.pipeline = {};
  options.gradient_bucket = Bytes{0};
  options.evaluate = true;
  options.evaluation_batches = 1;
  return options;
}

/// Returns the settings that the estimate ignores because it covers one replica on one chip that recomputes nothing.
std::vector<std::string> settings_not_counted(const CompileOptions& options) {
  std::vector<std::string> keys;
  const auto add = [&keys](bool is_set, const char* key) {
    if (is_set) {
      keys.emplace_back(key);
    }
  };
  const LocationOptions& locations = options.locations;
  const auto moves = [](Storage storage) { return storage != Storage::kOnChip; };
  add(moves(locations.weights), "memory.weights");
  if (in_training(options)) {
    add(moves(locations.optimizer_state), "memory.optimizer-state");
    add(moves(locations.accumulators), "memory.accumulators");
    add(moves(locations.activations), "memory.activations");
    add(options.sharding.any() && options.replicas > 1, "memory.replicated-tensor-sharding");
    add(options.pipeline.recomputation.value_or(Recomputation::kNone) != Recomputation::kNone,
        "pipeline.recomputation");
  }
  add(!locations.overrides.empty(), "memory.location");
  add(options.pipeline.phases > 1, "memory.phases");
  return keys;
}

CompileOptions with_twice_the_batch(CompileOptions options) {
  options.micro_batch_size *= 2;
  for (StreamedTensor& input : options.inputs) {
    input.type.shape[0] *= 2;
  }
  return options;
}

Place forward_of(const Job& job) {
  return job.training ? job.training->micro_batch : *job.evaluation;
}

/// Returns the number of elements in an operation's outputs that count as activations.
std::int64_t activations_of(const Graph& graph, const Operation& operation) {
  const Operator* op = find_operator(operation.kind);
  if (op == nullptr || operation.origin.direction != Direction::kForward || only_moves(operation)) {
    return 0;
  }
  std::int64_t elements = 0;
  for (std::size_t k = 0; k < std::min(operation.outputs.size(), op->statistics_from); ++k) {
    const Tensor& output = graph.tensor(operation.outputs[k]);
    const bool counts = output.role == Role::kActivation && !output.type.shape.empty();
    elements += counts ? output.type.elements() : 0;
  }
  return elements;
}

/// Elements of activations in a batch, for each layer and kind.
using Activations = std::map<std::pair<std::int32_t, BlockKind>, std::int64_t>;

Activations activations_in(const Job& job) {
  Activations found;
  for (const Operation& operation : job.graph.at(forward_of(job)).operations) {
    found[{operation.origin.layer, kind_of(operation)}] += activations_of(job.graph, operation);
  }
  return found;
}

/// Returns the activations per sample, computed as the difference between a batch of twice the size and the batch
/// itself. Activations that do not depend on the batch, such as positions of a sequence, therefore do not count.
Result<Activations> activations_of_a_sample(const CompileOptions& options, const Job& job) {
  Activations found = activations_in(job);
  POPRUN_ASSIGN(const Job twice, run_passes(with_twice_the_batch(options), "forward"));
  const auto batch = static_cast<std::int64_t>(options.micro_batch_size);
  for (const auto& [place, elements] : activations_in(twice)) {
    found[place] = (elements - found[place]) / batch;
  }
  return found;
}

std::set<TensorId> trained_parameters(const Job& job) {
  std::set<TensorId> trained;
  if (!job.training) {
    for (const TensorId id : tensors_by_name(job.graph, {Role::kParameter})) {
      trained.insert(id);
    }
    return trained;
  }
  for (const ParameterGradient& pair : job.training->gradients) {
    trained.insert(pair.parameter);
  }
  return trained;
}

std::vector<KindSum> sums_by_kind(const std::vector<Block>& blocks, const Activations& activations) {
  std::map<BlockKind, KindSum> sums;
  for (const Block& block : blocks) {
    KindSum& sum = sums[block.kind];
    ++sum.blocks;
    sum.weights += block.weights;
    sum.biases += block.biases;
    sum.moving += block.moving;
    sum.frozen_weights += block.frozen_weights;
    sum.frozen_biases += block.frozen_biases;
  }
  for (const auto& [place, elements] : activations) {
    // Group normalisation uses the operator of layer normalisation.
    const BlockKind kind = place.second == BlockKind::kLayerNorm && !sums.contains(BlockKind::kLayerNorm) &&
                                   sums.contains(BlockKind::kGroupNorm)
                               ? BlockKind::kGroupNorm
                               : place.second;
    sums[kind].activations += elements;
  }
  std::vector<KindSum> sorted;
  for (auto& [kind, sum] : sums) {
    sum.kind = kind;
    if (sum.blocks > 0 || sum.activations > 0) {
      sorted.push_back(sum);
    }
  }
  std::ranges::stable_sort(sorted, [](const KindSum& a, const KindSum& b) {
    return std::pair(a.parameters(), a.activations) > std::pair(b.parameters(), b.activations);
  });
  return sorted;
}

/// Returns, for each optimiser state, the parameter with which it is updated.
std::map<TensorId, TensorId> owners_of_state(const Job& job) {
  std::map<TensorId, TensorId> owners;
  if (!job.training) {
    return owners;
  }
  std::vector<Operation> updates = job.graph.at(job.training->update).operations;
  std::ranges::reverse(updates);  // The copy from a master weight comes after the update of that master.
  for (const Operation& operation : updates) {
    std::vector<TensorId> named = operation.inputs;
    named.insert(named.end(), operation.outputs.begin(), operation.outputs.end());
    std::optional<TensorId> owner;
    for (const TensorId id : named) {
      const auto known = owners.find(id);
      owner = job.graph.tensor(id).role == Role::kParameter ? id : known != owners.end() ? known->second : owner;
    }
    for (const TensorId id : named) {
      if (owner && job.graph.tensor(id).role == Role::kOptimizerState) {
        owners.emplace(id, *owner);
      }
    }
  }
  return owners;
}

/// Returns, for each parameter, the bytes of the parameter, its gradient and its optimiser state.
std::map<TensorId, Bytes> held_by_parameter(const Job& job) {
  const Graph& graph = job.graph;
  const std::map<TensorId, TensorId> owners = owners_of_state(job);
  std::map<TensorId, Bytes> held;
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    if (tensor.role == Role::kParameter) {
      held[TensorId{t}] += tensor.type.bytes();
    } else if (tensor.role == Role::kOptimizerState) {
      if (const auto owner = owners.find(TensorId{t}); owner != owners.end()) {
        held[owner->second] += tensor.type.bytes();
      }
    }
  }
  if (job.training) {
    for (const ParameterGradient& pair : job.training->gradients) {
      held[pair.parameter] += graph.tensor(pair.gradient).type.bytes();
    }
  }
  return held;
}

/// Returns, for each parameter, the layer that uses it first.
std::map<TensorId, std::int32_t> layer_of_parameters(const Job& job) {
  std::map<TensorId, std::int32_t> layers;
  for (const Operation& operation : job.graph.at(forward_of(job)).operations) {
    for (const TensorId id : operation.inputs) {
      if (job.graph.tensor(id).role == Role::kParameter && operation.origin.layer != kNoLayer) {
        layers.emplace(id, operation.origin.layer);
      }
    }
  }
  return layers;
}

void add_kept(const Job& job, std::vector<LayerSum>& sums) {
  const std::set<TensorId> kept = kept_activations(job);
  for (const Operation& operation : job.graph.at(job.training->micro_batch).operations) {
    if (operation.origin.layer == kNoLayer || operation.origin.direction != Direction::kForward) {
      continue;
    }
    for (const TensorId id : operation.outputs) {
      if (kept.contains(id)) {
        sums[static_cast<std::size_t>(operation.origin.layer)].kept += job.graph.tensor(id).type.bytes();
      }
    }
  }
}

std::vector<LayerSum> sums_by_layer(const Job& job, const Activations& activations) {
  std::vector<LayerSum> sums;
  for (const Layer& layer : job.graph.layers) {
    sums.push_back({.name = layer.name, .held = {}, .kept = {}});
  }
  const std::map<TensorId, Bytes> held = held_by_parameter(job);
  for (const auto& [parameter, layer] : layer_of_parameters(job)) {
    LayerSum& sum = sums[static_cast<std::size_t>(layer)];
    sum.parameters += job.graph.tensor(parameter).type.elements();
    sum.held += held.at(parameter);
  }
  for (const auto& [place, elements] : activations) {
    if (place.first != kNoLayer) {
      sums[static_cast<std::size_t>(place.first)].activations += elements;
    }
  }
  if (job.training) {
    add_kept(job, sums);
  }
  return sums;
}

/// Returns the inputs of the guide's formulas. In inference, the scale and location of a batch normalisation do not
/// count (table 3.1), since they can be folded into the operation before it.
guide::Counts guide_counts(const Estimate& e, bool training) {
  guide::Counts counts;
  for (const KindSum& sum : e.kinds) {
    counts.non_trainable += sum.moving;
    counts.activations += sum.activations;
    if (training || sum.kind != BlockKind::kBatchNorm) {
      counts.weights += sum.weights;
      counts.biases += sum.biases;
    }
  }
  counts.bytes_per_number = e.half ? 2 : 4;
  return counts;
}

guide::Counts guide_training_counts(const Estimate& e, std::int64_t compute_batch) {
  guide::Counts counts = guide_counts(e, /*training=*/true);
  for (const KindSum& sum : e.kinds) {
    // No optimisation parameters are associated with frozen weights (section 3.4.1 of the guide).
    counts.weights -= sum.frozen_weights;
    counts.biases -= sum.frozen_biases;
    counts.non_trainable += sum.frozen_weights + sum.frozen_biases;
  }
  counts.optimiser_states = e.optimiser_states;
  counts.compute_batch = compute_batch;
  return counts;
}

}  // namespace

std::int64_t ipus_for(Bytes tensors, Bytes capacity) {
  return std::max<std::int64_t>(1, ceil_div(tensors.count(), capacity.count() * kTensorsPercent / 100));
}

Result<Estimate> estimate(CompileOptions options) {
  std::vector<std::string> not_counted = settings_not_counted(options);
  options = on_one_ipu(std::move(options));
  POPRUN_ASSIGN(const Job job, run_passes(options, "precision"));
  POPRUN_ASSIGN(const Activations activations, activations_of_a_sample(options, job));
  Estimate e;
  e.not_counted = std::move(not_counted);
  e.model = options.model;
  e.device = options.device.name;
  e.half = options.precision.half;
  e.capacity = options.device.capacity();
  const std::set<TensorId> trained = trained_parameters(job);
  e.blocks = find_blocks(
      job.graph, {&job.graph.at(*job.evaluation).operations, &job.graph.at(forward_of(job)).operations}, trained);
  e.kinds = sums_by_kind(e.blocks, activations);
  e.layers = sums_by_layer(job, activations);
  for (const TensorId id : tensors_by_name(job.graph, {Role::kParameter})) {
    e.parameters += job.graph.tensor(id).type.elements();
    e.trained += trained.contains(id) ? job.graph.tensor(id).type.elements() : 0;
  }
  e.inference = inference_needs(job);
  e.guide_inference = guide_counts(e, /*training=*/false);
  if (job.training) {
    e.optimizer = options.optimizer.name;
    e.master_weights = options.precision.master_weights;
    for (const TensorId id : tensors_by_name(job.graph, {Role::kOptimizerState})) {
      e.optimiser_states += job.graph.tensor(id).type.elements();
    }
    e.optimiser_states -= e.master_weights ? e.trained : 0;  // Master weights are counted separately.
    e.states = (e.optimiser_states + e.trained / 2) / std::max<std::int64_t>(e.trained, 1);
    e.gradient_accumulation = options.gradient_accumulation;
    e.guide_training = guide_training_counts(e, options.micro_batch_size);
    e.kept = kept_needs(job);
    e.training = training_needs(job);
  }
  return e;
}

}  // namespace poprun
