#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ios>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "replica/base/half.h"
#include "replica/base/random.h"
#include "replica/ports/communicator.h"

/// The values that replicas contribute in the contract's sentences, and the expected results by the definition of the
/// canonical tree.
namespace poprun::contract {

/// Returns floats over 40 binades with both signs, so that sums depend on the order. A function of the arguments.
inline float rough_value(std::size_t replica, std::size_t index) {
  const auto words = philox(42, replica, index);
  const float mantissa = unit_float(words[0]) - 0.5F;
  return std::ldexp(mantissa, static_cast<int>(words[1] % 40) - 20);
}

/// Sums along the canonical tree, by its definition (collectives/patterns/canonical_tree.h).
inline float tree_sum(const std::vector<float>& values) {
  if (values.size() == 1) {
    return values[0];
  }
  std::size_t left = 1;
  while (2 * left < values.size()) {
    left *= 2;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(left);
  return tree_sum({values.begin(), middle}) + tree_sum({middle, values.end()});
}

/// Returns the exact result of reducing element `index` of all replicas' rough values.
inline float rough_result(Reduction reduction, std::size_t replicas, std::size_t index) {
  std::vector<float> values;
  for (std::size_t r = 0; r < replicas; ++r) {
    values.push_back(rough_value(r, index));
  }
  if (reduction == Reduction::kMax) {
    return *std::ranges::max_element(values);
  }
  const float sum = tree_sum(values);
  return reduction == Reduction::kMean ? sum / static_cast<float>(replicas) : sum;
}

inline void fill_rough(std::size_t replica, std::span<float> data, std::size_t first = 0) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = rough_value(replica, first + i);
  }
}

/// Compares the bits of up to 500 elements, including both ends.
inline void expect_rough_result(Reduction reduction, std::size_t replicas, std::span<const float> data,
                                std::size_t first = 0) {
  const std::size_t stride = 1 + data.size() / 400;
  for (std::size_t i = 0; i < data.size(); i = i + 1 == data.size() ? i + 1 : std::min(i + stride, data.size() - 1)) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(data[i]),
              std::bit_cast<std::uint32_t>(rough_result(reduction, replicas, first + i)))
        << "element " << i << " of " << data.size() << " is " << data[i];
  }
}
/// Test values of one element type: the contribution of replica r at index i, and the expected reduction, both as bits.
struct TypedValues {
  ElementType type;
  std::uint32_t (*value)(std::size_t replica, std::size_t index);
  std::uint32_t (*reduced)(Reduction reduction, std::span<const std::uint32_t> values);
};

/// Combines two values; any NaN result becomes the one canonical NaN.
inline float combined(Reduction reduction, float a, float b) {
  const float both = reduction == Reduction::kMax ? (a > b ? a : b) : a + b;
  return std::isnan(both) ? std::numeric_limits<float>::quiet_NaN() : both;
}

inline float reduced_floats(Reduction reduction, std::span<const float> values) {
  if (values.size() == 1) {
    return values[0];
  }
  std::size_t left = 1;
  while (2 * left < values.size()) {
    left *= 2;
  }
  return combined(reduction, reduced_floats(reduction, values.first(left)),
                  reduced_floats(reduction, values.subspan(left)));
}

inline float mean_or_sum(Reduction reduction, std::span<const float> values) {
  const float total = reduced_floats(reduction, values);
  return reduction == Reduction::kMean ? total / static_cast<float>(values.size()) : total;
}

/// Returns mostly numbers; at some indices infinities of one sign or both, NaN on one replica, or NaNs with different
/// bits.
inline float special_or(float number, std::size_t replica, std::size_t index) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  switch (index % 31) {
    case 7:
      return replica == 0 ? std::numeric_limits<float>::quiet_NaN() : number;
    case 9:
      return std::bit_cast<float>(replica % 2 == 0 ? 0xffd2'0000U : 0x7fe4'0000U);
    case 11:
      return replica == 1 ? -kInfinity : number;
    case 13:
      return replica % 2 == 0 ? kInfinity : -kInfinity;
    default:
      return number;
  }
}

inline std::uint32_t half_of(float value) {
  std::uint16_t half = 0;
  to_halves(&value, &half, 1);
  return half;
}

inline constexpr std::array<TypedValues, 3> kTypedValues = {{
    {ElementType::kF32,
     [](std::size_t replica, std::size_t index) {
       return std::bit_cast<std::uint32_t>(special_or(rough_value(replica, index), replica, index));
     },
     [](Reduction reduction, std::span<const std::uint32_t> values) {
       std::vector<float> floats;
       for (const std::uint32_t value : values) {
         floats.push_back(std::bit_cast<float>(value));
       }
       return std::bit_cast<std::uint32_t>(mean_or_sum(reduction, floats));
     }},
    // The largest are near 2^15, so that some sums overflow although no value does.
    {ElementType::kF16,
     [](std::size_t replica, std::size_t index) {
       const auto words = philox(43, replica, index);
       const float number =
           std::ldexp(unit_float(words[0]) - 0.25F, index % 31 == 17 ? 15 : static_cast<int>(words[1] % 30) - 20);
       return half_of(special_or(number, replica, index));
     },
     [](Reduction reduction, std::span<const std::uint32_t> values) {
       std::vector<float> floats(values.size());
       for (std::size_t r = 0; r < values.size(); ++r) {
         const auto half = static_cast<std::uint16_t>(values[r]);
         to_floats(&half, &floats[r], 1);
       }
       return half_of(mean_or_sum(reduction, floats));
     }},
    {ElementType::kI32, [](std::size_t replica, std::size_t index) { return philox(44, replica, index)[0]; },
     [](Reduction reduction, std::span<const std::uint32_t> values) {
       const auto largest = [](std::uint32_t a, std::uint32_t b) {
         return static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b);
       };
       return reduction == Reduction::kMax ? *std::ranges::max_element(values, largest)
                                           : std::accumulate(values.begin(), values.end(), std::uint32_t{0});
     }},
}};

inline void fill_typed(const TypedValues& values, std::size_t replica, std::span<std::byte> data,
                       std::size_t first = 0) {
  const std::size_t width = size_of(values.type);
  for (std::size_t i = 0; i < data.size() / width; ++i) {
    const std::uint32_t value = values.value(replica, first + i);
    std::memcpy(data.data() + i * width, &value, width);  // Little-endian.
  }
}

/// Compares the bits of up to 500 elements, including both ends.
inline void expect_typed_result(const TypedValues& values, Reduction reduction, std::size_t replicas,
                                std::span<const std::byte> data, std::size_t first = 0) {
  const std::size_t width = size_of(values.type);
  const std::size_t count = data.size() / width;
  const std::size_t stride = 1 + count / 400;
  for (std::size_t i = 0; i < count; i = i + 1 == count ? i + 1 : std::min(i + stride, count - 1)) {
    std::vector<std::uint32_t> all;
    for (std::size_t r = 0; r < replicas; ++r) {
      all.push_back(values.value(r, first + i));
    }
    const std::uint32_t expected = values.reduced(reduction, all);
    std::uint32_t found = 0;
    std::memcpy(&found, data.data() + i * width, width);
    ASSERT_EQ(found, expected) << std::hex << "element " << i << " of " << count << " is " << found << ", not "
                               << expected;
  }
}

inline std::vector<Reduction> reductions_of(ElementType type) {
  return type == ElementType::kI32 ? std::vector{Reduction::kSum, Reduction::kMax}
                                   : std::vector{Reduction::kSum, Reduction::kMax, Reduction::kMean};
}

}  // namespace poprun::contract
