#include "replica/base/random.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace poprun {
namespace {

constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;

constexpr std::size_t kCountersAtOnce = 16;

/// Writes four words for each of kCountersAtOnce consecutive counters.
void philox_lanes(std::uint64_t key, std::uint64_t counter_low, std::uint64_t first_high, std::uint32_t* out) {
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

#if defined(__x86_64__)
using Lanes = std::uint64_t __attribute__((vector_size(32)));

/// Multiplies the low halves of the lanes.
__attribute__((target("avx2"))) inline Lanes product_of(Lanes a, std::uint64_t multiplier) {
  return reinterpret_cast<Lanes>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), _mm256_set1_epi64x(static_cast<std::int64_t>(multiplier))));
}

/// philox_lanes with AVX2. Compilers do not vectorise the loops of the other version well. The words are in the low
/// halves of the lanes; the upper halves are ignored.
__attribute__((target("avx2"))) void philox_lanes_avx2(std::uint64_t key, std::uint64_t counter_low,
                                                       std::uint64_t first_high, std::uint32_t* out) {
  constexpr std::size_t kPerVector = 4;
  constexpr std::size_t kVectors = kCountersAtOnce / kPerVector;
  constexpr std::uint64_t kLow = 0xFFFFFFFF;
  Lanes a[kVectors];
  Lanes b[kVectors];
  Lanes c[kVectors];
  Lanes d[kVectors];
#pragma GCC unroll 4
  for (std::size_t v = 0; v < kVectors; ++v) {
    const Lanes high = Lanes{0, 1, 2, 3} + (first_high + kPerVector * v);
    a[v] = Lanes{} + counter_low;
    b[v] = Lanes{} + (counter_low >> 32);
    c[v] = high;
    d[v] = high >> 32;
  }
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      const Lanes product0 = product_of(a[v], kMultiplier0);
      const Lanes product1 = product_of(c[v], kMultiplier1);
      a[v] = (product1 >> 32) ^ b[v] ^ std::uint64_t{k0};
      b[v] = product1;
      c[v] = (product0 >> 32) ^ d[v] ^ std::uint64_t{k1};
      d[v] = product0;
    }
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
#pragma GCC unroll 4
  for (std::size_t v = 0; v < kVectors; ++v) {
    const Lanes ab = (a[v] & kLow) | b[v] << 32;
    const Lanes cd = (c[v] & kLow) | d[v] << 32;
    const Lanes ordered[2] = {__builtin_shufflevector(ab, cd, 0, 4, 1, 5), __builtin_shufflevector(ab, cd, 2, 6, 3, 7)};
    std::memcpy(out + v * kPerVector * 4, ordered, sizeof(ordered));
  }
}
#endif

/// The fastest version that this processor can run; all give the same words.
auto* fastest_philox_lanes() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    return &philox_lanes_avx2;
  }
#endif
  return &philox_lanes;
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
  static auto* const lanes = fastest_philox_lanes();
  std::uint32_t words[4 * kCountersAtOnce];
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), std::size(words));
    if (count == std::size(words)) {
      lanes(key, counter_low, first_high, out.data());
    } else {
      lanes(key, counter_low, first_high, words);
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
