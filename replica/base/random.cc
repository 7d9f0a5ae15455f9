#include "replica/base/random.h"

#include <algorithm>

#include "replica/base/simd.h"

namespace poprun {
namespace {

constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;

constexpr std::size_t kCountersAtOnce = 16;

/// Writes four words for each of kCountersAtOnce consecutive counters.
POPRUN_SIMD void philox_lanes(std::uint64_t key, std::uint64_t counter_low, std::uint64_t first_high,
                              std::uint32_t* out) {
  std::uint32_t a[kCountersAtOnce];
  std::uint32_t b[kCountersAtOnce];
  std::uint32_t c[kCountersAtOnce];
  std::uint32_t d[kCountersAtOnce];
  for (std::size_t i = 0; i < kCountersAtOnce; ++i) {
    a[i] = static_cast<std::uint32_t>(counter_low);
    b[i] = static_cast<std::uint32_t>(counter_low >> 32);
    c[i] = static_cast<std::uint32_t>(first_high + i);
    d[i] = static_cast<std::uint32_t>((first_high + i) >> 32);
  }
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < kCountersAtOnce; ++i) {
      const std::uint64_t product0 = kMultiplier0 * a[i];
      const std::uint64_t product1 = kMultiplier1 * c[i];
      a[i] = static_cast<std::uint32_t>(product1 >> 32) ^ b[i] ^ k0;
      b[i] = static_cast<std::uint32_t>(product1);
      c[i] = static_cast<std::uint32_t>(product0 >> 32) ^ d[i] ^ k1;
      d[i] = static_cast<std::uint32_t>(product0);
    }
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  for (std::size_t i = 0; i < kCountersAtOnce; ++i) {
    out[4 * i] = a[i];
    out[4 * i + 1] = b[i];
    out[4 * i + 2] = c[i];
    out[4 * i + 3] = d[i];
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };

  std::array<std::uint32_t, 4> c = {low(counter_low), high(counter_low), low(counter_high), high(counter_high)};
  std::uint32_t k0 = low(key);
  std::uint32_t k1 = high(key);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * c[0];
    const std::uint64_t product1 = kMultiplier1 * c[2];
    c = {high(product1) ^ c[1] ^ k0, low(product1), high(product0) ^ c[3] ^ k1, low(product0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

void philox_sequence(std::uint64_t key, std::uint64_t counter_low, std::uint64_t first_high,
                     std::span<std::uint32_t> out) {
  std::uint32_t words[4 * kCountersAtOnce];
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), std::size(words));
    if (count == std::size(words)) {
      philox_lanes(key, counter_low, first_high, out.data());
    } else {
      philox_lanes(key, counter_low, first_high, words);
      std::copy_n(words, count, out.data());
    }
    out = out.subspan(count);
    first_high += kCountersAtOnce;
  }
}

std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  }
  const auto mixed = philox(seed, hash, 0);
  return (std::uint64_t{mixed[1]} << 32) | mixed[0];
}

}  // namespace poprun
