#pragma once

#include <cstddef>
#include <initializer_list>

#include "replica/ops/operator.h"

/// What the operators of optimisers share. Each takes, and changes in place where marked *,
///
///   (w*, g, state*..., scalars f32[]... [, factor f32[]])
///       scale=. weight_decay=. and the rule's own attributes
///
/// where w, g and every state tensor have one f32 type, and gives back w and the states. With
/// `factor` (clip_factor) the gradient is multiplied by it too; where the factor is 0 nothing
/// changes.
namespace poprun::update_rule {

inline const TensorType kScalar{DataType::kF32, {}, Layout::kRowMajor};

/// True where the inputs are w, g, `states` more of their type and `scalars` scalars, and all
/// attributes are there.
inline bool fits(const Signature& s, std::size_t states, std::size_t scalars,
                 std::initializer_list<const char*> attributes) {
  const std::size_t tensors = 2 + states;
  if ((s.inputs.size() != tensors + scalars && s.inputs.size() != tensors + scalars + 1) ||
      s.inputs[0].data != DataType::kF32) {
    return false;
  }
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    if (s.inputs[i] != (i < tensors ? s.inputs[0] : kScalar)) {
      return false;
    }
  }
  for (const char* name : attributes) {
    if (!s.attributes.has(name)) {
      return false;
    }
  }
  return s.attributes.has("scale") && s.attributes.has("weight_decay");
}

/// What gradients are multiplied by in this run: `scale`, and the factor where there is one behind
/// the `own` inputs of the rule. 0: leave everything as it is.
inline float scale_of(float scale, const Operands& t, std::size_t own) {
  return t.inputs.size() > own ? scale * *t.input_f32(own) : scale;
}

inline float f32(const Signature& s, const char* attribute) {
  return static_cast<float>(s.attributes.real(attribute));
}

}  // namespace poprun::update_rule
