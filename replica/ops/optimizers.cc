#include "replica/ops/operator.h"
#include "replica/ops/simd.h"

/// Weight updates, in place.
///
///   sgd(w, g, rate f32[])          scale=. weight_decay=.  ->  w
///   momentum(w, g, v, rate f32[])  scale=. weight_decay=. momentum=.  ->  w, v
///
///   G = scale * g + weight_decay * w;  sgd: w -= rate * G;  momentum: v = momentum * v + G,
///   w -= rate * v. This is torch.optim.SGD's rule (dampening 0, no Nesterov).
namespace poprun {
namespace {

const TensorType kScalar{DataType::kF32, {}, Layout::kRowMajor};

/// True where the first `count` inputs share one f32 type and a scalar rate follows.
bool fits(const Signature& s, std::size_t count) {
  if (s.inputs.size() != count + 1 || s.inputs[count] != kScalar ||
      s.inputs[0].data != DataType::kF32 || !s.attributes.has("scale") ||
      !s.attributes.has("weight_decay")) {
    return false;
  }
  for (std::size_t i = 1; i < count; ++i) {
    if (s.inputs[i] != s.inputs[0]) {
      return false;
    }
  }
  return true;
}

Result<std::vector<TensorType>> sgd_shape(const Signature& s) {
  if (!fits(s, 2)) {
    return shape_error("sgd", s, "w and g of one type, rate f32[], scale, weight_decay");
  }
  return std::vector{s.inputs[0]};
}

Result<std::vector<TensorType>> momentum_shape(const Signature& s) {
  if (!fits(s, 3) || !s.attributes.has("momentum")) {
    return shape_error("momentum", s,
                       "w, g and v of one type, rate f32[], scale, weight_decay, momentum");
  }
  return std::vector{s.inputs[0], s.inputs[0]};
}

struct Rule {
  std::int64_t n;
  float scale;
  float weight_decay;
  float momentum;

  explicit Rule(const Signature& s)
      : n(s.inputs[0].elements()),
        scale(static_cast<float>(s.attributes.real("scale"))),
        weight_decay(static_cast<float>(s.attributes.real("weight_decay"))),
        momentum(s.attributes.has("momentum") ? static_cast<float>(s.attributes.real("momentum"))
                                              : 0.0F) {}
};

POPRUN_SIMD void sgd_update(const Rule& rule, float rate, const float* __restrict g,
                            float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    w[i] -= rate * (rule.scale * g[i] + rule.weight_decay * w[i]);
  }
}

POPRUN_SIMD void momentum_update(const Rule& rule, float rate, const float* __restrict g,
                                 float* __restrict v, float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    v[i] = rule.momentum * v[i] + (rule.scale * g[i] + rule.weight_decay * w[i]);
    w[i] -= rate * v[i];
  }
}

std::unique_ptr<Kernel> sgd_numerics(const Signature& s) {
  return make_kernel([rule = Rule(s)](const Operands& t) {
    sgd_update(rule, *t.input_f32(2), t.input_f32(1), t.output_f32(0));
  });
}

std::unique_ptr<Kernel> momentum_numerics(const Signature& s) {
  return make_kernel([rule = Rule(s)](const Operands& t) {
    momentum_update(rule, *t.input_f32(3), t.input_f32(1), t.output_f32(1), t.output_f32(0));
  });
}

Work sgd_work(const Signature& s) {
  return elementwise_work(s, 4);
}

Work momentum_work(const Signature& s) {
  return elementwise_work(s, 3);  // Of two outputs.
}

}  // namespace

std::vector<Operator> optimizers_operators() {
  return {{"sgd", sgd_shape, nullptr, sgd_work, sgd_numerics},
          {"momentum", momentum_shape, nullptr, momentum_work, momentum_numerics}};
}

}  // namespace poprun
