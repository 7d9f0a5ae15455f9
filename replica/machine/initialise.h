#pragma once

#include <cstdint>

#include "replica/graph/graph.h"

namespace poprun {

enum class Distribution : std::uint8_t {
  kConstant,  ///< Every element is the value.
  kUniform,   ///< In [-value, value).
  kNormal,    ///< Mean 0; the value is the standard deviation.
};

/// How a variable's elements are set before the first step. Random element i is a pure function of
/// (job seed, tensor name, i).
struct Initialiser {
  Distribution distribution = Distribution::kConstant;
  double value = 0;
};

/// `w = initialise() uniform=0.1`: sets a float tensor up, on the host, which sends it.
struct Initialise {
  TensorId tensor;
  Initialiser initialiser;

  [[nodiscard]] Operation operation() const;
};

}  // namespace poprun
