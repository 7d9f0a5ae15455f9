#include "replica/base/random.h"

namespace poprun {

std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
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

std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  }
  const auto mixed = philox(seed, hash, 0);
  return (std::uint64_t{mixed[1]} << 32) | mixed[0];
}

}  // namespace poprun
