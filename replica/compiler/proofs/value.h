#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

namespace poprun {

/// A value's number, or zero for no value. Identical computations have the same number; others collide with p = 2^-127.
struct Number {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  [[nodiscard]] bool exists() const { return (high | low) != 0; }
  friend auto operator<=>(const Number&, const Number&) = default;
};

/// A hash of all added words, in order. It consists of two 64-bit chains, each a bijection of the word that is added,
/// based on MurmurHash3's finaliser (Austin Appleby, public domain). Cost: about 3 ns per word.
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

  /// Returns the number, which is never zero.
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

/// The point in a run at which an operation executes.
struct Instant {
  std::int64_t index = 0;  ///< Index of the micro-batch.
  bool counts = false;     ///< Whether values are numbered relative to the index.
  std::int64_t round = 0;  ///< Round of the region in the host function.
  std::uint32_t run = 0;   ///< Number of functions that the host ran before this one.
  std::int64_t base = 0;   ///< Added to the micro-batch index of each call.
  std::uint32_t call = 0;  ///< Position among the calls of the running function.
  std::int64_t entry = 0;  ///< Added to the entry numbers of remote buffers.
};

/// The shift of values that do not depend on any micro-batch.
inline constexpr std::int64_t kFixed = std::numeric_limits<std::int64_t>::min();

/// The part of a value that a replica holds. In every form, the number is that of the full value.
enum class Form : std::uint8_t {
  kWhole,
  kShard,       ///< The replica's own elements.
  kPart,        ///< The replica's summand, if the value is a sum over shards.
  kTravelling,  ///< Being reduced in the background: undefined until the await, and then the full value.
};

/// The content of a tensor. Two values are equal if they have the same number, shift, form and group.
///
/// A value that depends on micro-batches is numbered relative to the last of them, which is its shift. The same
/// computation one micro-batch later has the same number and a shift that is higher by one.
///
///   micro-batch            3                4
///   x = stream_in()        (a, 3)           (a, 4)
///   y = relu(x)            (b, 3)           (b, 4)
///   g = accumulate(g, y)   (c, 3): g0       (d, 4): g0
///                          updated by u     updated by u
///                          4 times          5 times
///
/// A tensor that is updated in place holds a chain: a start and a number of updates. Each update is the same as the one
/// before, but one micro-batch later.
struct Value {
  Number number;
  std::int64_t shift = kFixed;

  Number start;
  Number update;
  std::int64_t length = 0;  ///< Number of updates; 0 if the value is not a chain.
  std::uint32_t place = 0;  ///< Index of the value among the outputs of each update.
  Form form = Form::kWhole;
  std::uint32_t group = 0;       ///< Number of replicas that share the value; 0 for all of them, and for a full value.
  std::uint32_t evaluation = 0;  ///< Number of the evaluation in a History that computed the value.

  [[nodiscard]] bool exists() const { return number.exists(); }
  [[nodiscard]] bool equals(const Value& other) const {
    return number == other.number && shift == other.shift && form == other.form && group == other.group;
  }
};

inline Number chain_number(const Value& v) {
  return NumberBuilder(v.start).add(v.update).add(v.length).add(std::uint64_t{v.place}).number();
}

/// The change of a value from one round of a region to the next.
struct Advance {
  std::int64_t shift = 0;
  std::int64_t length = 0;
};

/// Returns how a value has changed, or nothing if no Advance leads from the old value to the new one.
inline std::optional<Advance> advance_of(const Value& before, const Value& now) {
  if (!before.exists() || !now.exists()) {
    return before.exists() == now.exists() ? std::optional(Advance{}) : std::nullopt;
  }
  if (before.form != now.form || before.group != now.group) {
    return std::nullopt;
  }
  const bool chains = before.length > 0 && now.length > 0;
  const bool same = chains ? before.start == now.start && before.update == now.update && before.place == now.place
                           : before.number == now.number;
  if (!same || (before.shift == kFixed) != (now.shift == kFixed)) {
    return std::nullopt;
  }
  return Advance{now.shift == kFixed ? 0 : now.shift - before.shift, chains ? now.length - before.length : 0};
}

inline Value advanced(Value value, const Advance& by, std::int64_t rounds) {
  value.shift += value.shift == kFixed ? 0 : by.shift * rounds;
  if (by.length != 0) {
    value.length += by.length * rounds;
    value.number = chain_number(value);
  }
  return value;
}

/// Adds a value's number and its distance from micro-batch `from`. Both stay the same if the value and `from` are
/// shifted by the same number of micro-batches.
inline void add_seen_from(NumberBuilder& builder, std::int64_t from, const Value& value) {
  builder.add(value.number);
  builder.add(value.shift == kFixed ? kFixed : from - value.shift);
}

}  // namespace poprun
