#include "replica/compiler/precision/precision.h"

#include "replica/compiler/passes/pass.h"

/// Stores weights, activations and gradients in float16.
namespace poprun {
namespace {

constexpr std::string_view kName = "precision";

bool applies(const CompileOptions& options) {
  return options.precision.half;
}

Status run(const CompileOptions& options, Job& job) {
  use_half(job.graph, options.precision);
  return {};
}

/// Parameters are float16 where the model does not keep them; what lives on beside them, scalars
/// and what the host streams carry are as they were; and nothing changed but how floats are stored.
Status verify(const CompileOptions& /*options*/, const Job& before, const Job& after) {
  for (std::uint32_t t = 0; t < after.graph.tensors().size(); ++t) {
    const Tensor& was = before.graph.tensors()[t];
    const Tensor& is = after.graph.tensors()[t];
    const bool rounded = was.type.data == DataType::kF32 && is.type.data == DataType::kF16;
    const bool computed =
        is.role == Role::kParameter || is.role == Role::kActivation || is.role == Role::kGradient;
    if (is.type.shape != was.type.shape || is.type.layout != was.type.layout ||
        (is.type.data != was.type.data && !rounded)) {
      return pass_bug(kName, after.graph, TensorId{t}, "is a different tensor");
    }
    if (rounded && (!computed || (is.type.shape.empty() && is.role != Role::kParameter))) {
      return pass_bug(kName, after.graph, TensorId{t}, "must stay float32");
    }
    if (is.role == Role::kParameter && was.type.data == DataType::kF32 && rounded == is.keeps_f32) {
      return pass_bug(kName, after.graph, TensorId{t}, "is a parameter of the wrong precision");
    }
  }
  return {};
}

}  // namespace

Pass precision_pass() {
  return {kName, applies, run, verify};
}

}  // namespace poprun
