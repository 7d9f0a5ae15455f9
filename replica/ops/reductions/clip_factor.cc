#include <algorithm>
#include <cmath>

#include "replica/ops/optimizers/update_rule.h"
#include "replica/ops/simd.h"

/// The factor by which all gradients of a step are multiplied.
///
///   clip_factor(g0, g1, ..., each f32)  scale=. max_norm=.  ->  factor f32[]
///   loss_scale_factor(g0, g1, ..., loss_scale f32[])  the same; max_norm=0: no limit  ->  factor
///   f32[]
///
/// factor = min(1, max_norm / (norm + 1e-6)), norm = scale * |all elements of all g|: the rule of
/// torch.nn.utils.clip_grad_norm_. For gradients of a scaled loss both norm and factor are divided
/// by loss_scale, and the factor is 0, which means leave the weights alone, if an element is
/// infinite or NaN. Summed in double: each tensor in kLanes interleaved sums, the tensors in order,
/// whatever the instruction set.
namespace poprun {
namespace {

constexpr std::int64_t kLanes = 8;

bool fits(const Signature& s) {
  return s.attributes.has("scale") && s.attributes.has("max_norm") &&
         std::ranges::all_of(s.inputs,
                             [](const TensorType& t) { return t.data == DataType::kF32; });
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.empty() || !fits(s) || !(s.attributes.real("max_norm") > 0)) {
    return shape_error("clip_factor", s, "f32 tensors, at least one, scale and max_norm > 0");
  }
  return std::vector{update_rule::kScalar};
}

Result<std::vector<TensorType>> loss_scale_shape(const Signature& s) {
  if (s.inputs.size() < 2 || !fits(s) || s.inputs.back() != update_rule::kScalar ||
      s.attributes.real("max_norm") < 0) {
    return shape_error("loss_scale_factor", s,
                       "f32 tensors, at least one, loss_scale f32[], scale and max_norm >= 0");
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

/// The sizes of the first `count` inputs.
std::vector<std::int64_t> elements_of(const Signature& s, std::size_t count) {
  std::vector<std::int64_t> elements;
  for (std::size_t i = 0; i < count; ++i) {
    elements.push_back(s.inputs[i].elements());
  }
  return elements;
}

/// The norm of the first inputs, taken as one vector.
double norm_of(const std::vector<std::int64_t>& elements, const Operands& t) {
  double sum = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    sum += sum_of_squares(t.input_f32(i), elements[i]);
  }
  return std::sqrt(sum);
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([elements = elements_of(s, s.inputs.size()),
                      scale = s.attributes.real("scale"),
                      max_norm = s.attributes.real("max_norm")](const Operands& t) {
    const double factor = max_norm / (scale * norm_of(elements, t) + 1e-6);
    *t.output_f32(0) = factor < 1 ? static_cast<float>(factor) : 1.0F;
  });
}

std::unique_ptr<Kernel> loss_scale_numerics(const Signature& s) {
  return make_kernel([elements = elements_of(s, s.inputs.size() - 1),
                      scale = s.attributes.real("scale"),
                      max_norm = s.attributes.real("max_norm")](const Operands& t) {
    const auto unscale = 1 / static_cast<double>(*t.input_f32(elements.size()));
    const double norm = scale * unscale * norm_of(elements, t);
    const double clip = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
    *t.output_f32(0) = std::isfinite(norm) ? static_cast<float>(clip * unscale) : 0.0F;
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
  return {{"clip_factor", shape, nullptr, work, numerics},
          {"loss_scale_factor", loss_scale_shape, nullptr, work, loss_scale_numerics}};
}

}  // namespace poprun
