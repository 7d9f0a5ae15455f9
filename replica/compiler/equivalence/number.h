#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace poprun {

/// The number of a value: equal for equal computations, and for nothing else but with a probability
/// of 2^-128 a pair. Zero: no value.
struct Number {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  [[nodiscard]] bool exists() const { return (high | low) != 0; }
  friend auto operator<=>(const Number&, const Number&) = default;
};

/// Makes a number from everything added, in order. Cost: some 3 ns a word.
///
/// Two chains of 64 bits, each a bijection of every word, with the finalizer of MurmurHash3 (Austin
/// Appleby, public domain).
class NumberBuilder {
 public:
  explicit NumberBuilder(Number begin = {})
      : high_(begin.high ^ 0x9E3779B97F4A7C15U), low_(begin.low ^ 0xC2B2AE3D27D4EB4FU) {}

  NumberBuilder& add(std::uint64_t word) {
    high_ = mix(high_ ^ word);
    low_ = mix(low_ + std::rotl(word, 32)) ^ 0x165667B19E3779F9U;
    return *this;
  }
  NumberBuilder& add(std::int64_t word) { return add(static_cast<std::uint64_t>(word)); }
  NumberBuilder& add(Number number) { return add(number.high).add(number.low); }
  NumberBuilder& add(double number) { return add(std::bit_cast<std::uint64_t>(number)); }
  NumberBuilder& add(std::string_view text) {
    add(std::uint64_t{text.size()});
    for (std::size_t i = 0; i < text.size(); i += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min(text.size() - i, sizeof(word)));
      add(word);
    }
    return *this;
  }

  /// Never zero.
  [[nodiscard]] Number number() const { return {high_ | 1U, low_}; }

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 33U)) * 0xFF51AFD7ED558CCDU;
    x = (x ^ (x >> 33U)) * 0xC4CEB9FE1A85EC53U;
    return x ^ (x >> 33U);
  }

  std::uint64_t high_;
  std::uint64_t low_;
};

}  // namespace poprun
