#include "replica/estimate/needs.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

namespace poprun {
namespace {

using Operations = std::vector<const Operation*>;

bool is_persistent(Role role) {
  return role == Role::kParameter || role == Role::kBuffer || role == Role::kOptimizerState || role == Role::kConstant;
}

/// Returns the bytes of tensors that are always in memory. In inference, the optimiser's tensors do not count.
Needs persistent_needs(const Graph& graph, bool training) {
  Needs needs;
  for (const Tensor& tensor : graph.tensors()) {
    const Bytes bytes = tensor.type.bytes();
    if (tensor.role == Role::kParameter) {
      needs.weights += bytes;
    } else if (tensor.role == Role::kBuffer) {
      needs.moving += bytes;
    } else if (tensor.role == Role::kConstant) {
      needs.constants += bytes;
    } else if (tensor.role == Role::kOptimizerState && training) {
      needs.optimizer_state += bytes;
    }
  }
  return needs;
}

Operations operations_of(const Graph& graph, std::initializer_list<Place> places) {
  Operations all;
  for (const Place place : places) {
    for (const Operation& operation : graph.at(place).operations) {
      all.push_back(&operation);
    }
  }
  return all;
}

/// Live range of a tensor, from its first write to its last use, as indices into the operations.
struct FromTo {
  std::size_t begin;
  std::size_t end;
};

std::map<TensorId, FromTo> lives_of(const Graph& graph, const Operations& operations) {
  std::map<TensorId, FromTo> lives;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    for (const auto* operands : {&operations[i]->inputs, &operations[i]->outputs}) {
      for (const TensorId id : *operands) {
        if (!is_persistent(graph.tensor(id).role)) {
          lives.emplace(id, FromTo{i, i}).first->second.end = i;
        }
      }
    }
  }
  return lives;
}

/// Returns the operation at which the most bytes are live.
std::size_t fullest(const Graph& graph, const std::map<TensorId, FromTo>& lives, std::size_t count) {
  std::vector<Bytes> change(count + 1);
  for (const auto& [id, life] : lives) {
    change[life.begin] += graph.tensor(id).type.bytes();
    change[life.end + 1] += graph.tensor(id).type.bytes() * -1;
  }
  Bytes live;
  Bytes most;
  std::size_t where = 0;
  for (std::size_t i = 0; i < count; ++i) {
    live += change[i];
    if (live > most) {
      most = live;
      where = i;
    }
  }
  return where;
}

/// Returns the outputs of the forward pass of a region.
std::set<TensorId> forward_outputs(const Region& region) {
  std::set<TensorId> outputs;
  for (const Operation& operation : region.operations) {
    if (operation.origin.direction == Direction::kForward) {
      outputs.insert(operation.outputs.begin(), operation.outputs.end());
    }
  }
  return outputs;
}

/// Returns the gradients that the micro-batches pass to the update, one per use of a weight.
std::set<TensorId> weight_gradients(const Job& job) {
  std::set<TensorId> written;
  for (const Place place : {job.training->begin, job.training->micro_batch}) {
    for (const Operation& operation : job.graph.at(place).operations) {
      written.insert(operation.outputs.begin(), operation.outputs.end());
    }
  }
  std::set<TensorId> gradients;
  for (const Operation& operation : job.graph.at(job.training->update).operations) {
    std::ranges::copy_if(operation.inputs, std::inserter(gradients, gradients.end()), [&](TensorId id) {
      return job.graph.tensor(id).role == Role::kGradient && written.contains(id);
    });
  }
  return gradients;
}

void add_tensor(const Graph& graph, TensorId id, const std::set<TensorId>& gradients,
                const std::set<TensorId>& activations, Needs& needs) {
  const Bytes bytes = graph.tensor(id).type.bytes();
  if (gradients.contains(id)) {
    needs.gradients += bytes;
  } else if (activations.contains(id)) {
    needs.activations += bytes;
  } else {
    needs.passing += bytes;
  }
}

void add_fullest(const Graph& graph, const Operations& operations, const std::set<TensorId>& gradients,
                 const std::set<TensorId>& activations, Needs& needs) {
  const std::map<TensorId, FromTo> lives = lives_of(graph, operations);
  const std::size_t moment = fullest(graph, lives, operations.size());
  for (const auto& [id, life] : lives) {
    if (life.begin <= moment && moment <= life.end) {
      add_tensor(graph, id, gradients, activations, needs);
    }
  }
}

}  // namespace

Needs inference_needs(const Job& job) {
  Needs needs = persistent_needs(job.graph, /*training=*/false);
  add_fullest(job.graph, operations_of(job.graph, {*job.evaluation}), {},
              forward_outputs(job.graph.at(*job.evaluation)), needs);
  return needs;
}

Needs kept_needs(const Job& job) {
  Needs needs = persistent_needs(job.graph, /*training=*/true);
  const std::set<TensorId> kept = kept_activations(job);
  const std::set<TensorId> gradients = weight_gradients(job);
  for (const TensorId id : kept) {
    add_tensor(job.graph, id, gradients, kept, needs);
  }
  for (const TensorId id : gradients) {
    add_tensor(job.graph, id, gradients, kept, needs);
  }
  return needs;
}

Needs training_needs(const Job& job) {
  const TrainingStep& step = *job.training;
  Needs needs = persistent_needs(job.graph, /*training=*/true);
  add_fullest(job.graph, operations_of(job.graph, {step.begin, step.micro_batch, step.update}), weight_gradients(job),
              forward_outputs(job.graph.at(step.micro_batch)), needs);
  return needs;
}

std::set<TensorId> kept_activations(const Job& job) {
  const Region& region = job.graph.at(job.training->micro_batch);
  const std::set<TensorId> written = forward_outputs(region);
  std::set<TensorId> kept;
  for (const Operation& operation : region.operations) {
    if (operation.origin.direction == Direction::kBackward) {
      std::ranges::copy_if(operation.inputs, std::inserter(kept, kept.end()), [&](TensorId id) {
        return written.contains(id) && !is_persistent(job.graph.tensor(id).role);
      });
    }
  }
  return kept;
}

}  // namespace poprun
