#include "collectives/local/tree_reduce.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/patterns/canonical_tree.h"
#include "replica/base/error.h"

// The build is for generic x86-64. These loops carry the whole exchange, so they are compiled for
// wider vectors too and chosen at load time. Sanitizers cannot run before their own start-up, where
// the choice would be made.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define POPRUN_FOR_EACH_VECTOR_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define POPRUN_FOR_EACH_VECTOR_WIDTH
#endif

namespace poprun::collectives {
namespace {

/// Floats that are reduced at a time: 16 sources of a block fit the second cache.
constexpr std::size_t kBlock = 1024;

struct Add {
  float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  float operator()(float a, float b) const { return a > b ? a : b; }
};

template <typename Combine>
[[gnu::always_inline]] inline void combine_2(const float* a, const float* b, float* __restrict out,
                                             std::size_t count) {
  const Combine combine;
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = combine(a[i], b[i]);
  }
}

template <typename Combine>
[[gnu::always_inline]] inline void combine_8(const float* const* in, std::size_t begin,
                                             float* __restrict out, std::size_t count) {
  const Combine combine;
  const float* a = in[0] + begin;
  const float* b = in[1] + begin;
  const float* c = in[2] + begin;
  const float* d = in[3] + begin;
  const float* e = in[4] + begin;
  const float* f = in[5] + begin;
  const float* g = in[6] + begin;
  const float* h = in[7] + begin;
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = combine(combine(combine(a[i], b[i]), combine(c[i], d[i])),
                     combine(combine(e[i], f[i]), combine(g[i], h[i])));
  }
}

POPRUN_FOR_EACH_VECTOR_WIDTH
void add_2(const float* a, const float* b, float* __restrict out, std::size_t count) {
  combine_2<Add>(a, b, out, count);
}
POPRUN_FOR_EACH_VECTOR_WIDTH
void add_8(const float* const* in, std::size_t begin, float* __restrict out, std::size_t count) {
  combine_8<Add>(in, begin, out, count);
}
POPRUN_FOR_EACH_VECTOR_WIDTH
void larger_2(const float* a, const float* b, float* __restrict out, std::size_t count) {
  combine_2<Larger>(a, b, out, count);
}
POPRUN_FOR_EACH_VECTOR_WIDTH
void larger_8(const float* const* in, std::size_t begin, float* __restrict out, std::size_t count) {
  combine_8<Larger>(in, begin, out, count);
}
POPRUN_FOR_EACH_VECTOR_WIDTH
void divide(const float* in, float divisor, float* __restrict out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = in[i] / divisor;
  }
}

struct Kernels {
  decltype(&add_2) combine_2;
  decltype(&add_8) combine_8;
};

/// The reduction of elements [begin, begin + count) of all sources; `out` holds it, or for a single
/// source the source itself.
const float* reduce_block(const Kernels& kernels, std::span<const float* const> sources,
                          std::size_t begin, std::size_t count, float* out) {
  if (sources.size() == 1) {
    return sources[0] + begin;
  }
  if (sources.size() == 8) {
    kernels.combine_8(sources.data(), begin, out, count);
    return out;
  }
  alignas(64) std::array<float, kBlock> left;
  alignas(64) std::array<float, kBlock> right;
  const std::size_t middle = left_subtree(sources.size());
  const float* a = reduce_block(kernels, sources.first(middle), begin, count, left.data());
  const float* b = reduce_block(kernels, sources.subspan(middle), begin, count, right.data());
  kernels.combine_2(a, b, out, count);
  return out;
}

}  // namespace

void tree_reduce(Reduction reduction, std::span<const float* const> sources,
                 std::span<float* const> targets, std::size_t count) {
  POPRUN_CHECK(!sources.empty());
  const Kernels kernels =
      reduction == Reduction::kMax ? Kernels{larger_2, larger_8} : Kernels{add_2, add_8};
  const auto divisor = static_cast<float>(sources.size());
  alignas(64) std::array<float, kBlock> block;
  alignas(64) std::array<float, kBlock> quotient;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, count - begin);
    const float* result = reduce_block(kernels, sources, begin, size, block.data());
    if (reduction == Reduction::kMean) {
      divide(result, divisor, quotient.data(), size);
      result = quotient.data();
    }
    for (float* target : targets) {
      if (target + begin != result) {
        std::memcpy(target + begin, result, size * sizeof(float));
      }
    }
  }
}

}  // namespace poprun::collectives
