#include <cmath>

#include "replica/ops/simd.h"
#include "replica/ops/update_rule.h"

/// clip_factor(g0, g1, ..., each f32)  scale=. max_norm=.  ->  factor f32[]
///
/// factor = min(1, max_norm / (norm + 1e-6)), norm = scale * |all elements of all g|: the rule of
/// torch.nn.utils.clip_grad_norm_. Added in double: each tensor in kLanes interleaved sums, the
/// tensors in order, whatever the instruction set.
namespace poprun {
namespace {

constexpr std::int64_t kLanes = 8;

Result<std::vector<TensorType>> shape(const Signature& s) {
  bool fits = !s.inputs.empty() && s.attributes.has("scale") && s.attributes.has("max_norm") &&
              s.attributes.real("max_norm") > 0;
  for (const TensorType& input : s.inputs) {
    fits = fits && input.data == DataType::kF32;
  }
  if (!fits) {
    return shape_error("clip_factor", s, "f32 tensors, at least one, scale and max_norm > 0");
  }
  return std::vector{update_rule::kScalar};
}

POPRUN_SIMD double sum_of_squares(const float* g, std::int64_t n) {
  double lanes[kLanes] = {};
  const std::int64_t whole = n / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto x = static_cast<double>(g[i + lane]);
      lanes[lane] += x * x;
    }
  }
  for (std::int64_t i = whole; i < n; ++i) {
    const auto x = static_cast<double>(g[i]);
    lanes[i - whole] += x * x;
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  std::vector<std::int64_t> elements;
  for (const TensorType& input : s.inputs) {
    elements.push_back(input.elements());
  }
  return make_kernel([elements, scale = s.attributes.real("scale"),
                      max_norm = s.attributes.real("max_norm")](const Operands& t) {
    double sum = 0;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      sum += sum_of_squares(t.input_f32(i), elements[i]);
    }
    const double factor = max_norm / (scale * std::sqrt(sum) + 1e-6);
    *t.output_f32(0) = factor < 1 ? static_cast<float>(factor) : 1.0F;
  });
}

/// Sums on every tile, then one over all tiles.
Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  for (const TensorType& input : s.inputs) {
    work.vector_flops += 2 * input.elements();
  }
  work.compute_sets = 2;
  return work;
}

}  // namespace

std::vector<Operator> clip_factor_operators() {
  return {{"clip_factor", shape, nullptr, work, numerics}};
}

}  // namespace poprun
