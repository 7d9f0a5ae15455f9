#include "replica/compiler/arithmetic/half_storage.h"

#include <set>

#include "replica/compiler/job/pass.h"
#include "replica/compiler/planner/product_options.h"
#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

template <typename Visit>
void for_each_operation(Graph& graph, Visit visit) {
  for (Function& function : graph.functions) {
    for (Region& region : function.regions) {
      for (Operation& operation : region.operations) {
        visit(operation, find_operator(operation.kind));
      }
    }
  }
}

std::set<TensorId> statistics_of(Graph& graph) {
  std::set<TensorId> found;
  for_each_operation(graph, [&](const Operation& operation, const Operator* op) {
    for (std::size_t k = 0; op != nullptr && k < operation.outputs.size(); ++k) {
      if (k >= op->statistics_from) {
        found.insert(operation.outputs[k]);
      }
    }
  });
  return found;
}

bool becomes_half(const Tensor& tensor, const PrecisionOptions& options) {
  return tensor.type.data == DataType::kF32 && !tensor.keeps_f32 &&
         (tensor.role == Role::kParameter || (tensor.role == Role::kOptimizerState && options.half_optimizer_state) ||
          (!tensor.type.shape.empty() && (tensor.role == Role::kActivation || tensor.role == Role::kGradient)));
}

}  // namespace

void use_half(Graph& graph, const PrecisionOptions& options) {
  const std::set<TensorId> statistics = statistics_of(graph);
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    const TensorId id{t};
    if (becomes_half(graph.tensor(id), options) && !statistics.contains(id)) {
      graph.set_data_type(id, DataType::kF16);
    }
  }
  for_each_operation(graph, [&](Operation& operation, const Operator* op) {
    if (op == nullptr) {
      return;
    }
    const bool stores_half = graph.tensor(operation.outputs[0]).type.data == DataType::kF16;
    // Operators that only move numbers round none: every number that they read is a float16 already.
    const auto is_half = [&](TensorId input) { return graph.tensor(input).type.data == DataType::kF16; };
    const bool moves = op->view != nullptr && std::ranges::all_of(operation.inputs, is_half);
    if (stores_half && options.stochastic_rounding && !moves) {
      operation.attributes.set("stochastic", graph.tensor(operation.outputs[0]).name);
    }
    if (!stores_half && partials_of(operation.attributes) == Precision::kHalf) {
      set_options(operation.attributes, {.permille = permille_of(operation.attributes), .partials = Precision::kFloat});
    }
  });
}

namespace passes::precision {
namespace {

constexpr std::string_view kName = "precision";

bool applies(const CompileOptions& options) {
  return options.precision.half;
}

Status run(const CompileOptions& options, Job& job) {
  use_half(job.graph, options.precision);
  return {};
}

/// Checks that parameters, and the optimiser's state if the options request this, are float16 unless they must stay
/// float32; that all other tensors that became float16 are activations or gradients, but not scalars; and that nothing
/// else about tensors changed.
Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  for (std::uint32_t t = 0; t < after.graph.tensors().size(); ++t) {
    const Tensor& was = before.graph.tensors()[t];
    const Tensor& is = after.graph.tensors()[t];
    const bool rounded = was.type.data == DataType::kF32 && is.type.data == DataType::kF16;
    const bool is_state = is.role == Role::kOptimizerState && options.precision.half_optimizer_state;
    const bool is_kept = is.role == Role::kParameter || is_state;
    const bool computed = is_kept || is.role == Role::kActivation || is.role == Role::kGradient;
    if (is.type.shape != was.type.shape || is.type.layout != was.type.layout ||
        (is.type.data != was.type.data && !rounded)) {
      return pass_bug(kName, after.graph, TensorId{t}, "has changed in more than its precision");
    }
    if (rounded && (!computed || (is.type.shape.empty() && !is_kept))) {
      return pass_bug(kName, after.graph, TensorId{t}, "must stay float32");
    }
    if (is_kept && was.type.data == DataType::kF32 && rounded == is.keeps_f32) {
      return pass_bug(kName, after.graph, TensorId{t}, "is stored in the wrong precision");
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify};
}

}  // namespace passes::precision

}  // namespace poprun
