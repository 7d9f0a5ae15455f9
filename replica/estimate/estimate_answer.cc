#include "replica/estimate/estimate_answer.h"

#include <algorithm>
#include <string>

#include "replica/compiler/addresses/tile_plan.h"
#include "replica/report/tile_contents.h"

namespace poprun {
namespace {

std::uint64_t of(std::int64_t count) {
  return static_cast<std::uint64_t>(count);
}

std::uint64_t of(Bytes bytes) {
  return of(bytes.count());
}

proto::KindEstimate to_proto(const KindSum& sum) {
  proto::KindEstimate kind;
  kind.set_kind(std::string{name_of(sum.kind)});
  kind.set_folds(sum.kind == BlockKind::kBatchNorm);
  kind.set_blocks(of(sum.blocks));
  kind.set_trained_weights(of(sum.weights - sum.frozen_weights));
  kind.set_trained_biases(of(sum.biases - sum.frozen_biases));
  kind.set_frozen(of(sum.frozen_weights + sum.frozen_biases));
  kind.set_moving(of(sum.moving));
  kind.set_activations(sum.activations);
  return kind;
}

proto::LayerEstimate to_proto(const LayerSum& sum) {
  proto::LayerEstimate layer;
  layer.set_name(sum.name);
  layer.set_parameters(of(sum.parameters));
  layer.set_activations(sum.activations);
  layer.set_held(of(sum.held));
  layer.set_kept(of(sum.kept));
  return layer;
}

proto::BlockEstimate to_proto(const Block& block) {
  proto::BlockEstimate estimate;
  estimate.set_name(block.name);
  estimate.set_kind(std::string{name_of(block.kind)});
  estimate.set_parameters(of(block.parameters()));
  estimate.set_formula(block.formula);
  return estimate;
}

proto::GuideEstimate inference_guide(const guide::Counts& counts) {
  proto::GuideEstimate guide;
  guide.set_weights(of(counts.weights));
  guide.set_biases(of(counts.biases));
  guide.set_non_trainable(of(counts.non_trainable));
  guide.set_bytes_per_number(of(counts.bytes_per_number));
  guide.set_total(of(counts.inference_total()));
  return guide;
}

proto::GuideEstimate training_guide(const guide::Counts& counts) {
  proto::GuideEstimate guide = inference_guide(counts);
  guide.set_optimiser_states(of(counts.optimiser_states));
  guide.set_activations(counts.activations);
  guide.set_compute_batch(of(counts.compute_batch));
  guide.set_gradients(counts.gradients());
  guide.set_backprop_vars(of(counts.backprop_vars()));
  guide.set_total(of(counts.training_total()));
  guide.set_total_states_once(of(counts.training_total_states_once()));
  return guide;
}

proto::NeedsEstimate to_proto(const Needs& needs, Bytes capacity) {
  proto::NeedsEstimate estimate;
  estimate.set_weights(of(needs.weights));
  estimate.set_moving(of(needs.moving));
  estimate.set_constants(of(needs.constants));
  estimate.set_optimizer_state(of(needs.optimizer_state));
  estimate.set_gradients(of(needs.gradients));
  estimate.set_activations(of(needs.activations));
  estimate.set_passing(of(needs.passing));
  estimate.set_total(of(needs.total()));
  estimate.set_ipus(of(ipus_for(needs.total(), capacity)));
  return estimate;
}

/// Adds the memory that an IPU uses for each purpose at its fullest step.
void add_purposes(const proto::IpuMemory& memory, proto::CompiledEstimate& estimate) {
  for (const HeldBytes& held : held_on_ipu(memory, memory.worst_step())) {
    const auto is = [&held](Category category) { return held.category == to_text(category); };
    const bool exchanges = is(Category::kExchangeCode) || is(Category::kLinkBuffer) || is(Category::kHostBuffer);
    if (is(Category::kVertexCode) || is(Category::kVertexState)) {
      estimate.set_vertices(estimate.vertices() + of(held.bytes));
    } else if (is(Category::kControlCode)) {
      estimate.set_control(estimate.control() + of(held.bytes));
    } else if (exchanges && held.always_live) {
      estimate.set_exchange(estimate.exchange() + of(held.bytes));
    } else {
      estimate.set_data(estimate.data() + of(held.bytes));
    }
  }
}

}  // namespace

proto::JobEstimate to_proto(const Estimate& e) {
  proto::JobEstimate job;
  job.set_model(e.model);
  job.set_device(e.device);
  job.set_optimizer(e.optimizer);
  job.set_states(of(e.states));
  job.set_half(e.half);
  job.set_master_weights(e.master_weights);
  job.set_gradient_accumulation(of(e.gradient_accumulation));
  for (const KindSum& kind : e.kinds) {
    *job.add_kinds() = to_proto(kind);
  }
  for (const LayerSum& layer : e.layers) {
    *job.add_layers() = to_proto(layer);
  }
  for (const Block& block : e.blocks) {
    if (block.layer != kNoLayer) {
      *job.mutable_layers(block.layer)->add_blocks() = to_proto(block);
    }
  }
  job.set_parameters(of(e.parameters));
  job.set_trained(of(e.trained));
  *job.mutable_guide_inference() = inference_guide(e.guide_inference);
  *job.mutable_inference() = to_proto(e.inference, e.capacity);
  if (e.training) {
    *job.mutable_guide_training() = training_guide(*e.guide_training);
    *job.mutable_kept() = to_proto(*e.kept, e.capacity);
    *job.mutable_training() = to_proto(*e.training, e.capacity);
  }
  job.set_capacity(of(e.capacity));
  job.set_tensors_percent(kTensorsPercent);
  job.mutable_not_counted()->Assign(e.not_counted.begin(), e.not_counted.end());
  return job;
}

proto::CompiledEstimate compiled_estimate(const Program& program) {
  proto::CompiledEstimate estimate;
  for (const proto::IpuMemory& memory : program.memory()) {
    add_purposes(memory, estimate);
    *estimate.add_memory() = without_layout(memory);
  }
  estimate.set_fits(std::ranges::all_of(program.memory(), fits));
  *estimate.mutable_notes() = program.notes();
  return estimate;
}

}  // namespace poprun
