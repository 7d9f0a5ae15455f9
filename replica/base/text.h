#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// Numbers and names as people read them: the one spelling of all tables, messages and logs.
namespace poprun {

/// With ".." in its middle where it is longer than `width`, at least 2: the beginning or end of long names says less
/// than both.
std::string shortened(std::string_view name, std::size_t width);

/// Puts a comma between each three of `digits`, which may begin with a minus.
std::string group_digits(std::string digits);

/// `1,234,567`.
template <std::integral Number>
std::string grouped(Number number) {
  return group_digits(std::to_string(number));
}

/// `1 replica`, `1,872 steps`.
std::string counted(std::uint64_t number, std::string_view one);

constexpr double to_mebibytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / 0x1p20;
}

/// `12.3 MiB`, `4,321.0 MiB`: always MiB, so that figures compare; small ones `1.5 KiB` or `12 B`.
std::string mebibytes_text(std::uint64_t bytes);

/// `1.23 s`, `12.340 ms` or `56.7 us`.
std::string duration_text(double seconds);

/// The candidate that `typed` was most likely meant to be, by edit distance (insert, delete, replace, swap neighbours);
/// empty when none is close. Ties go to the first.
std::string nearest(std::string_view typed, std::span<const std::string> candidates);

/// How a message about the unknown name `typed` ends: "did you mean mk2?" where a candidate is close, otherwise
/// "available: bow, mk1, mk2".
std::string suggestion(std::string_view typed, std::span<const std::string> candidates);

}  // namespace poprun
