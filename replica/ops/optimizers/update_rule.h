#pragma once

#include <cstddef>
#include <initializer_list>

#include "replica/ops/operator.h"

/// Shared by the operators of optimisers. Each takes the following inputs and updates those marked
/// * in place:
///
///   (w*, g, state*..., scalars f32[]... [, factor f32[]])
///       scale=. weight_decay=. and the rule's own attributes
///
/// where w, g and every state tensor have the same f32 type. The outputs are w and the states. If
/// `factor` (clip_factor) is given, the gradient is multiplied by it too; if it is 0, nothing
/// changes.
namespace poprun::update_rule {

inline const TensorType kScalar{DataType::kF32, {}, Layout::kRowMajor};

/// True if the inputs are w, g, `states` more of their type and `scalars` scalars, and all
/// attributes are given.
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

/// What gradients are multiplied by in this run: `scale`, times the factor if one follows the
/// rule's `own` inputs. 0: leave everything unchanged.
inline float scale_of(float scale, const Operands& t, std::size_t own) {
  return t.inputs.size() > own ? scale * *t.input_f32(own) : scale;
}

inline float f32(const Signature& s, const char* attribute) {
  return static_cast<float>(s.attributes.real(attribute));
}

}  // namespace poprun::update_rule
