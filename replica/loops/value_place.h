#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "replica/program/program.h"

namespace poprun {

/// Where a Program writes a value.
struct ValuePlace {
  std::uint32_t tensor = 0;
  std::uint32_t micro_batch = 0;
  std::uint32_t step = 0;  ///< Step.number.
};

/// Returns the value as a phrase: "'fc1.weight.gradient' of linear_grad in micro-batch 2, backward part of stage 1 on
/// IPU 1". `batch` is the word for the samples that a part computes together.
std::string text_of(const Program& program, const ValuePlace& place, std::string_view batch = "micro-batch");

}  // namespace poprun
