#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <vector>

#include "replica/ops/face/operator.h"
#include "replica/ops/optimizers/optimizer.h"

/// Helpers for the operators of optimisers. Each operator takes these inputs and updates those marked * in place:
///
///   (w*, g, state*..., scalars f32[]... [, factor f32[]])
///       scale=. weight_decay=. and the rule's own attributes
///
/// w, g and every state tensor have the same f32 type. The outputs are w and the states. A rule that works element by
/// element is marked with on_shards and then accepts shards of w, g and the states. The state of an unmarked rule is
/// never sharded. If `factor` (clip_factor) is given, the gradient is also multiplied by it; if the factor is kSkip,
/// nothing changes. A rule that needs sums over the full tensor has two operators, so that sums of pieces can be added
/// between them (Optimizer::moments).
namespace poprun::update_rule {

inline const TensorType kScalar{DataType::kF32, {}, Layout::kRowMajor};

/// The factor that leaves everything unchanged. Other factors are never negative, although a small one may round to 0.
inline constexpr float kSkip = -1;

/// Returns whether the inputs are `tensors`, the first of which is f32, then `scalars` scalars, and optionally a
/// factor.
inline bool takes(const Signature& s, std::vector<TensorType> tensors, std::size_t scalars) {
  const std::size_t own = tensors.size() + scalars;
  if ((s.inputs.size() != own && s.inputs.size() != own + 1) || s.inputs[0].data != DataType::kF32) {
    return false;
  }
  tensors.resize(s.inputs.size(), kScalar);
  return s.inputs == tensors;
}

/// Returns whether these attributes are given, as well as those that every rule needs.
inline bool has(const Signature& s, std::initializer_list<const char*> attributes) {
  return std::ranges::all_of(attributes, [&s](const char* name) { return s.attributes.has(name); }) &&
         s.attributes.has("scale") && s.attributes.has("weight_decay");
}

/// Returns whether `takes` holds for w, g and `states` tensors of the same type, and `has` holds for `attributes`.
inline bool fits(const Signature& s, std::size_t states, std::size_t scalars,
                 std::initializer_list<const char*> attributes) {
  const std::size_t tensors = 2 + states;
  return takes(s, std::vector(tensors, s.inputs.empty() ? kScalar : s.inputs[0]), scalars) && has(s, attributes);
}

/// Returns `scale`, multiplied by the factor (input `own`) if there is one, or nothing if the factor is kSkip.
inline std::optional<float> scale_of(float scale, const Operands& t, std::size_t own) {
  if (t.inputs.size() <= own) {
    return scale;
  }
  const float factor = *t.input_f32(own);
  return factor == kSkip ? std::nullopt : std::optional(scale * factor);
}

/// Returns `rule` with the scale for one run (scale_of), or nothing if the factor is kSkip.
template <typename Rule>
std::optional<Rule> for_run(Rule rule, const Operands& t, std::size_t own) {
  const std::optional<float> scale = scale_of(rule.scale, t, own);
  if (!scale) {
    return std::nullopt;
  }
  rule.scale = *scale;
  return rule;
}

/// Returns the work of a rule with `flops` per element that a framework would run as `operations` separate operations
/// per parameter: for example, one scales the gradient, one decays the momentum, and one selects a ratio of norms. Each
/// costs kUpdateOperation, even for a single element.
inline Work work(const Signature& s, std::int64_t flops, std::int64_t operations) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = flops * s.inputs[0].elements();
  work.compute_sets = 0;
  work.update_operations = operations;
  return work;
}

/// The decays of the running means, which more than one optimiser has. `fallback`: the default.
inline HyperParameter beta1(const char* fallback) {
  return {"beta1",
          fallback,
          "Decay of the running mean of the gradient; with lion, the mean's weight in the update",
          {{0, 1, true, false}}};
}
inline HyperParameter beta2(const char* fallback) {
  return {"beta2",
          fallback,
          "Decay of the running mean of the squared gradient; with lion, of the gradient",
          {{0, 1, true, false}}};
}

inline float f32(const Signature& s, const char* attribute) {
  return static_cast<float>(s.attributes.real(attribute));
}

}  // namespace poprun::update_rule
