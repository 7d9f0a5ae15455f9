#include "replica/engine/value_judge.h"

#include <algorithm>
#include <bit>
#include <limits>

#include <fmt/format.h>

#include "replica/base/half.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/simd.h"

namespace poprun {
namespace {

constexpr std::uint32_t kExponent32 = 0x7F800000U;
constexpr std::uint16_t kExponent16 = 0x7C00U;
constexpr Half kLargest16 = 0x7BFFU;

/// Returns the largest exponent field of `n` numbers.
POPRUN_SIMD std::uint32_t largest_exponent(const std::uint32_t* bits, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t exponent = bits[i] & kExponent32;
    largest = exponent > largest ? exponent : largest;
  }
  return largest;
}

POPRUN_SIMD std::uint16_t largest_half_exponent(const Half* bits, std::int64_t n) {
  std::uint16_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto exponent = static_cast<std::uint16_t>(bits[i] & kExponent16);
    largest = exponent > largest ? exponent : largest;
  }
  return largest;
}

/// Returns the largest magnitude of `n` numbers. Without their signs, floats have the same order as their bits.
POPRUN_SIMD std::uint32_t largest_magnitude(const std::uint32_t* bits, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = bits[i] & 0x7FFFFFFFU;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

POPRUN_SIMD std::uint16_t largest_half_magnitude(const Half* bits, std::int64_t n) {
  std::uint16_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<std::uint16_t>(bits[i] & 0x7FFFU);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

template <typename Bits>
std::optional<NotFinite> first(const Bits* bits, std::int64_t n, Bits exponent, Bits fraction) {
  std::optional<NotFinite> infinity;
  for (std::int64_t i = 0; i < n; ++i) {
    if ((bits[i] & exponent) != exponent) {
      continue;
    }
    if ((bits[i] & fraction) != 0) {
      return NotFinite{"NaN", i};
    }
    if (!infinity) {
      infinity = {kInfinity, i};
    }
  }
  return infinity;
}

const std::uint32_t* bits32(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint32_t*>(bytes.data());  // NOLINT: f32 tensor.
}

const Half* bits16(std::span<const std::byte> bytes) {
  return reinterpret_cast<const Half*>(bytes.data());  // NOLINT: f16 tensor.
}

}  // namespace

ValueJudge::Overwritten ValueJudge::look_at(std::optional<std::uint32_t> overwritten) const {
  Overwritten before{.tensor = overwritten};
  if (overwritten) {
    const TensorType& type = types_.at(*overwritten);
    const std::span<const std::byte> bytes = images_.of(*overwritten);
    before.has_extreme = has_extreme(type, bytes, type.data);
    if (before.has_extreme) {
      before.not_finite = find_not_finite(type, bytes);
    }
  }
  return before;
}

std::optional<NotFinite> ValueJudge::fault_of_result(std::uint32_t result, const proto::Execute& step,
                                                     const Overwritten& before) const {
  std::optional<NotFinite> found = not_finite(result);
  const bool passes_on = found && found->what == kInfinity && takes_extremes(step, before, types_.at(result).data);
  return passes_on ? std::nullopt : found;
}

Status ValueJudge::blame(std::uint32_t result, const NotFinite& fault, const proto::Execute& step,
                         const Overwritten& before) const {
  for (const std::uint32_t tensor : step.inputs()) {
    const auto found = tensor == before.tensor ? before.not_finite : not_finite(tensor);
    if (found && !(found->what == kInfinity && may_be_infinite(tensor))) {
      return failure(tensor, *found, "read by " + step.operation());
    }
  }
  const Operator* op = find_operator(step.operation());
  const bool is_explained = op != nullptr && fault.what == kInfinity && result == step.outputs(0);
  return failure(result, fault, "produced by " + step.operation(), is_explained ? op->infinite_because : nullptr);
}

Status ValueJudge::check(std::span<const std::uint32_t> tensors, std::string_view use) const {
  for (const std::uint32_t tensor : tensors) {
    const auto found = not_finite(tensor);
    if (found && !(found->what == kInfinity && may_be_infinite(tensor))) {
      return failure(tensor, *found, use);
    }
  }
  return {};
}

std::string ValueJudge::text_of(const StrayIndex& stray, const proto::Execute& step) const {
  const auto name = [&](int input) {
    const auto id = step.inputs(input);
    return fmt::format("'{}' {}", program_.tensors(static_cast<int>(id)).name(), to_text(types_.at(id)));
  };
  return fmt::format(
      "index {} in element {} of {} is out of range for {} '{}', which accepts indices {} to {} of {}, in step {} on "
      "replica {}",
      stray.index, stray.element, name(1), step.operation(), program_.tensors(static_cast<int>(step.outputs(0))).name(),
      -stray.size, stray.size - 1, name(0), moment_.step + 1, moment_.replica);
}

bool ValueJudge::may_be_infinite(std::uint32_t tensor) const {
  const proto::Role role = program_.tensors(static_cast<int>(tensor)).role();
  return role == proto::ROLE_ACTIVATION || role == proto::ROLE_CONSTANT;
}

bool ValueJudge::takes_extremes(const proto::Execute& step, const Overwritten& before, DataType result) const {
  return std::ranges::any_of(step.inputs(), [&](std::uint32_t tensor) {
    return may_be_infinite(tensor) &&
           (tensor == before.tensor ? before.has_extreme : has_extreme(types_.at(tensor), images_.of(tensor), result));
  });
}

bool ValueJudge::comes_from_data(std::uint32_t tensor) const {
  if (program_.tensors(static_cast<int>(tensor)).role() == proto::ROLE_STREAM) {
    return true;
  }
  const auto found = moved_from_.find(tensor);
  bool is_data = false;
  for (const std::uint32_t source : found == moved_from_.end() ? std::vector<std::uint32_t>{} : found->second) {
    if (types_.at(source).data == DataType::kI32 || source == tensor) {
      continue;
    }
    if (comes_from_data(source)) {
      is_data = true;
    } else if (not_finite(source)) {
      return false;
    }
  }
  return is_data;
}

Status ValueJudge::failure(std::uint32_t tensor, const NotFinite& found, std::string_view what,
                           const char* known_remedy) const {
  const proto::Tensor& named = program_.tensors(static_cast<int>(tensor));
  const char* remedy = known_remedy != nullptr ? known_remedy
                       : comes_from_data(tensor)
                           ? "the value comes from the data; fix data.source"
                           : "lower the learning rate, clip the gradients (training.clip-norm), or"
                             ", with half precision, scale the loss (training.loss-scaling = auto)";
  return fail(ErrorCode::kData,
              fmt::format("{} in element {} of '{}' {}, {} in step {} on replica {}: {}", found.what, found.element,
                          named.name(), to_text(types_.at(tensor)), what, moment_.step + 1, moment_.replica, remedy));
}

std::optional<NotFinite> find_not_finite(const TensorType& type, std::span<const std::byte> bytes) {
  const std::int64_t n = type.elements();
  if (type.data == DataType::kF32) {
    return largest_exponent(bits32(bytes), n) == kExponent32
               ? first<std::uint32_t>(bits32(bytes), n, kExponent32, 0x007FFFFFU)
               : std::nullopt;
  }
  if (type.data == DataType::kF16) {
    return largest_half_exponent(bits16(bytes), n) == kExponent16
               ? first<Half>(bits16(bytes), n, kExponent16, Half{0x03FFU})
               : std::nullopt;
  }
  return std::nullopt;
}

bool has_extreme(const TensorType& type, std::span<const std::byte> bytes, DataType result) {
  const std::int64_t n = type.elements();
  if (type.data == DataType::kF32) {
    const float limit = result == DataType::kF16 ? to_float(kLargest16) : std::numeric_limits<float>::max();
    return largest_magnitude(bits32(bytes), n) >= std::bit_cast<std::uint32_t>(limit);
  }
  return type.data == DataType::kF16 && largest_half_magnitude(bits16(bytes), n) >= kLargest16;
}

}  // namespace poprun
