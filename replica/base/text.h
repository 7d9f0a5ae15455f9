#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

/// Numbers and names as text for people, spelled the same in all tables, messages and logs.
namespace poprun {

/// Returns `name`. If the name is longer than `width`, its middle is replaced by "..", because both ends of a long name
/// are more informative than one end. Requires width >= 2.
std::string shortened(std::string_view name, std::size_t width);

/// Returns `text` without the blanks, tabs and carriage returns at both ends.
std::string_view trimmed(std::string_view text);

/// Inserts a comma between groups of three `digits`, which may start with a minus sign.
std::string group_digits(std::string digits);

/// Returns `1,234,567`.
template <std::integral Number>
std::string grouped(Number number) {
  return group_digits(std::to_string(number));
}

/// Parses all of `text` as a number. Returns nothing if it is anything else, or too large.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// Returns a host without the brackets around an IPv6 address.
std::string without_brackets(std::string host);

/// Returns `1 replica` or `1,872 steps`.
std::string counted(std::uint64_t number, std::string_view one);

constexpr double to_mebibytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / 0x1p20;
}

/// Returns text such as `12.3 MiB` or `4,321.0 MiB`. The unit is MiB, so that numbers are easy to compare; only small
/// numbers are given as `1.5 KiB` or `12 B`.
std::string mebibytes_text(std::uint64_t bytes);

/// Returns `1.23 s`, `12.340 ms` or `56.7 us`.
std::string duration_text(double seconds);

/// Returns the candidate closest to `typed` by edit distance (insertions, deletions, replacements and swaps of
/// neighbours). Returns the first one on a tie, and an empty string if none is close.
std::string nearest(std::string_view typed, std::span<const std::string> candidates);

/// Returns the end of a message about the unknown name `typed`: "did you mean mk2?" if a candidate is close, otherwise
/// "available: bow, mk1, mk2".
std::string suggestion(std::string_view typed, std::span<const std::string> candidates);

}  // namespace poprun
