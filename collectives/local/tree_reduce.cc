#include "collectives/local/tree_reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "collectives/patterns/canonical_tree.h"
#include "replica/base/error.h"
#include "replica/base/half.h"

// The build targets generic x86-64. These loops do the arithmetic of an exchange, so they are also compiled for wider
// vectors, and the loader picks one version. This does not work with sanitizers: the loader picks before they start.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define POPRUN_FOR_EACH_VECTOR_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define POPRUN_FOR_EACH_VECTOR_WIDTH
#endif
namespace poprun::collectives {
namespace {

/// Number of elements reduced at a time. A block of 16 sources fits into the level 2 cache.
constexpr std::size_t kBlock = 1024;

/// Number of sources of a subtree that one loop combines.
constexpr std::size_t kFused = 8;

struct Add {
  float operator()(float a, float b) const { return a + b; }
  std::int32_t operator()(std::int32_t a, std::int32_t b) const {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  }
};
struct Larger {
  template <typename Value>
  Value operator()(Value a, Value b) const {
    return a > b ? a : b;
  }
};

/// Replaces any NaN with the same NaN. The bits of a sum of two NaNs are the compiler's choice and differ between full
/// vectors and leftover elements, so they would depend on where the data is cut.
inline float settled(float value) {
  return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
}
inline std::int32_t settled(std::int32_t value) {
  return value;
}

template <typename Combine, typename Value>
[[gnu::always_inline]] inline void combine_2(const Value* a, const Value* b, Value* __restrict out, std::size_t count) {
  const Combine combine;
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = settled(combine(a[i], b[i]));
  }
}

template <typename Combine, typename Value>
[[gnu::always_inline]] inline void combine_8(const Value* const* in, Value* __restrict out, std::size_t count) {
  const Combine combine;
  const Value* a = in[0];
  const Value* b = in[1];
  const Value* c = in[2];
  const Value* d = in[3];
  const Value* e = in[4];
  const Value* f = in[5];
  const Value* g = in[6];
  const Value* h = in[7];
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = settled(
        combine(combine(combine(a[i], b[i]), combine(c[i], d[i])), combine(combine(e[i], f[i]), combine(g[i], h[i]))));
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): types cannot be parenthesised.
#define POPRUN_COMBINERS(name, Combine, Value)                                              \
  POPRUN_FOR_EACH_VECTOR_WIDTH                                                              \
  void name##_2(const Value* a, const Value* b, Value* __restrict out, std::size_t count) { \
    combine_2<Combine>(a, b, out, count);                                                   \
  }                                                                                         \
  POPRUN_FOR_EACH_VECTOR_WIDTH                                                              \
  void name##_8(const Value* const* in, Value* __restrict out, std::size_t count) {         \
    combine_8<Combine>(in, out, count);                                                     \
  }
// NOLINTEND(bugprone-macro-parentheses)
POPRUN_COMBINERS(add_floats, Add, float)
POPRUN_COMBINERS(larger_float, Larger, float)
POPRUN_COMBINERS(add_integers, Add, std::int32_t)
POPRUN_COMBINERS(larger_integer, Larger, std::int32_t)
#undef POPRUN_COMBINERS

POPRUN_FOR_EACH_VECTOR_WIDTH
void divide(const float* in, float divisor, float* __restrict out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = in[i] / divisor;
  }
}

template <typename V>
struct Kernels {
  void (*combine_2)(const V*, const V*, V*, std::size_t);
  void (*combine_8)(const V* const*, V*, std::size_t);
};

// Each of these structs describes an element type: the type in which it is summed (`Value`), and how values are loaded
// from memory and stored. `load` may return the memory itself instead of filling `scratch`.

struct Floats {
  using Value = float;
  static constexpr std::size_t kBytes = sizeof(float);
  static constexpr bool kConverts = false;

  static Kernels<float> kernels(Reduction reduction) {
    return reduction == Reduction::kMax ? Kernels<float>{larger_float_2, larger_float_8}
                                        : Kernels<float>{add_floats_2, add_floats_8};
  }
  static const float* load(const std::byte* from, float*, std::size_t) { return reinterpret_cast<const float*>(from); }
  static void store(const float* from, std::byte* to, std::size_t count) { std::memcpy(to, from, count * kBytes); }
};

struct Halves {
  using Value = float;
  static constexpr std::size_t kBytes = sizeof(std::uint16_t);
  static constexpr bool kConverts = true;

  static Kernels<float> kernels(Reduction reduction) { return Floats::kernels(reduction); }
  static const float* load(const std::byte* from, float* scratch, std::size_t count) {
    to_floats(reinterpret_cast<const std::uint16_t*>(from), scratch, count);
    return scratch;
  }
  static void store(const float* from, std::byte* to, std::size_t count) {
    to_halves(from, reinterpret_cast<std::uint16_t*>(to), count);
  }
};

struct Integers {
  using Value = std::int32_t;
  static constexpr std::size_t kBytes = sizeof(std::int32_t);
  static constexpr bool kConverts = false;

  static Kernels<std::int32_t> kernels(Reduction reduction) {
    return reduction == Reduction::kMax ? Kernels<std::int32_t>{larger_integer_2, larger_integer_8}
                                        : Kernels<std::int32_t>{add_integers_2, add_integers_8};
  }
  static const std::int32_t* load(const std::byte* from, std::int32_t*, std::size_t) {
    return reinterpret_cast<const std::int32_t*>(from);
  }
  static void store(const std::int32_t* from, std::byte* to, std::size_t count) {
    std::memcpy(to, from, count * kBytes);
  }
};

template <typename Value>
struct alignas(64) Block {
  std::array<Value, kBlock> values;
};

/// The inputs of a reduction. `replicas` holds, for each source, the number of replicas whose sum it is. If it is
/// empty, each source comes from one replica.
struct Leaves {
  std::span<const std::byte* const> sources;
  std::span<const std::size_t> replicas;

  /// Returns how many leaves form the left subtree. Requires: at least two leaves.
  [[nodiscard]] std::size_t left() const {
    if (replicas.empty()) {
      return left_subtree(sources.size());
    }
    const std::size_t wanted = left_subtree(std::accumulate(replicas.begin(), replicas.end(), std::size_t{0}));
    std::size_t count = 0;
    for (std::size_t sum = 0; sum < wanted; ++count) {
      sum += replicas[count];
      POPRUN_CHECK(sum <= wanted);
    }
    return count;
  }
  [[nodiscard]] Leaves first(std::size_t count) const {
    return {sources.first(count), replicas.empty() ? replicas : replicas.first(count)};
  }
  [[nodiscard]] Leaves from(std::size_t index) const {
    return {sources.subspan(index), replicas.empty() ? replicas : replicas.subspan(index)};
  }
};

/// Combines elements [begin, begin + count) of eight sources.
template <typename Element>
void reduce_fused(const Kernels<typename Element::Value>& kernels, std::span<const std::byte* const> sources,
                  std::size_t begin, std::size_t count, typename Element::Value* out) {
  using Value = typename Element::Value;
  std::array<Block<Value>, Element::kConverts ? kFused : 1> scratch;
  std::array<const Value*, kFused> in;
  for (std::size_t i = 0; i < kFused; ++i) {
    in[i] =
        Element::load(sources[i] + begin * Element::kBytes, scratch[Element::kConverts ? i : 0].values.data(), count);
  }
  kernels.combine_8(in.data(), out, count);
}

/// Reduces elements [begin, begin + count) of all leaves. Returns the result, which is in `out` or, for a single leaf,
/// may be the source itself.
template <typename Element>
const typename Element::Value* reduce_block(const Kernels<typename Element::Value>& kernels, const Leaves& leaves,
                                            std::size_t begin, std::size_t count, typename Element::Value* out) {
  using Value = typename Element::Value;
  if (leaves.sources.size() == 1) {
    return Element::load(leaves.sources[0] + begin * Element::kBytes, out, count);
  }
  if (leaves.sources.size() == kFused && leaves.replicas.empty()) {
    reduce_fused<Element>(kernels, leaves.sources, begin, count, out);
    return out;
  }
  Block<Value> left;
  Block<Value> right;
  const std::size_t middle = leaves.left();
  const Value* a = reduce_block<Element>(kernels, leaves.first(middle), begin, count, left.values.data());
  const Value* b = reduce_block<Element>(kernels, leaves.from(middle), begin, count, right.values.data());
  kernels.combine_2(a, b, out, count);
  return out;
}

/// Reduces leaves of type `From` into targets of type `To` with the same sum type. Divides by `divisor` unless it is 0.
template <typename From, typename To>
void reduce_elements(Reduction reduction, const Leaves& leaves, std::size_t divisor,
                     std::span<std::byte* const> targets, std::size_t count) {
  using Value = typename From::Value;
  const Kernels<Value> kernels = From::kernels(reduction);
  Block<Value> block;
  Block<Value> quotient;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, count - begin);
    const Value* result = reduce_block<From>(kernels, leaves, begin, size, block.values.data());
    if constexpr (std::is_same_v<Value, float>) {
      if (divisor != 0) {
        divide(result, static_cast<float>(divisor), quotient.values.data(), size);
        result = quotient.values.data();
      }
    }
    for (std::byte* target : targets) {
      std::byte* const to = target + begin * To::kBytes;
      if (static_cast<const void*>(to) != static_cast<const void*>(result)) {
        To::store(result, to, size);
      }
    }
  }
}

/// Does the same as `reduce_elements` for any element type; halves are read as `HalvesFrom` and written as `HalvesTo`.
template <typename HalvesFrom, typename HalvesTo>
void reduce_typed(Reduction reduction, ElementType type, const Leaves& leaves, std::size_t divisor,
                  std::span<std::byte* const> targets, std::size_t count) {
  POPRUN_CHECK(!leaves.sources.empty());
  switch (type) {
    case ElementType::kF32:
      return reduce_elements<Floats, Floats>(reduction, leaves, divisor, targets, count);
    case ElementType::kF16:
      return reduce_elements<HalvesFrom, HalvesTo>(reduction, leaves, divisor, targets, count);
    case ElementType::kI32:
      POPRUN_CHECK(divisor == 0);
      return reduce_elements<Integers, Integers>(reduction, leaves, 0, targets, count);
  }
}

}  // namespace

Pieces::Pieces(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
  std::ranges::stable_sort(pieces_, [](const Piece& a, const Piece& b) {
    return size_of(a.type) != size_of(b.type) ? size_of(a.type) > size_of(b.type) : a.type < b.type;
  });
  for (Piece& piece : pieces_) {
    POPRUN_CHECK(piece.bytes.size() % size_of(piece.type) == 0);
    piece.whole = {size_, size_ + piece.bytes.size()};
    size_ = piece.whole.end;
  }
}

std::size_t Pieces::count() const {
  std::size_t count = 0;
  for (const Piece& piece : pieces_) {
    count += piece.count();
  }
  return count;
}

std::vector<Piece> Pieces::parts(Slice bytes) const {
  POPRUN_CHECK(bytes.end <= size_);
  std::vector<Piece> parts;
  for (const Piece& piece : pieces_) {
    const Slice part = overlap(bytes, piece.whole);
    if (part.size() > 0) {
      const std::size_t offset = part.begin - piece.whole.begin;
      const Place place{piece.place.owner, piece.place.where + static_cast<std::int64_t>(offset)};
      parts.push_back({piece.type, piece.bytes.subspan(offset, part.size()), place, part});
    }
  }
  return parts;
}

std::vector<Piece> Pieces::types() const {
  std::vector<Piece> types;
  for (const Piece& piece : pieces_) {
    if (!types.empty() && types.back().type == piece.type) {
      types.back().whole.end = piece.whole.end;
    } else {
      types.push_back({piece.type, {}, {}, piece.whole});
    }
  }
  return types;
}

bool Pieces::placed(Slice bytes) const {
  return std::ranges::all_of(
      pieces_, [&](const Piece& piece) { return piece.place.owner >= 0 || overlap(bytes, piece.whole).size() == 0; });
}

void Pieces::copy_out(std::size_t begin, std::span<std::byte> to) const {
  for (const Piece& part : parts({begin, begin + to.size()})) {
    std::memcpy(to.data() + (part.whole.begin - begin), part.bytes.data(), part.bytes.size());
  }
}

void Pieces::copy_in(std::size_t begin, std::span<const std::byte> from) const {
  for (const Piece& part : parts({begin, begin + from.size()})) {
    std::memcpy(part.bytes.data(), from.data() + (part.whole.begin - begin), part.bytes.size());
  }
}

void tree_reduce(Reduction reduction, ElementType type, std::span<const std::byte* const> sources,
                 std::span<std::byte* const> targets, std::size_t count) {
  const std::size_t divisor = reduction == Reduction::kMean ? sources.size() : 0;
  reduce_typed<Halves, Halves>(reduction, type, {sources, {}}, divisor, targets, count);
}

void reduce_subtree(Reduction reduction, ElementType type, std::span<const std::byte* const> sources, std::byte* sum,
                    std::size_t count) {
  reduce_typed<Halves, Floats>(reduction, type, {sources, {}}, 0, std::span(&sum, 1), count);
}

void combine_subtrees(Reduction reduction, ElementType type, std::span<const std::byte* const> sums,
                      std::span<const std::size_t> replicas, std::byte* target, std::size_t count) {
  POPRUN_CHECK(sums.size() == replicas.size());
  const std::size_t divisor =
      reduction == Reduction::kMean ? std::accumulate(replicas.begin(), replicas.end(), std::size_t{0}) : 0;
  reduce_typed<Floats, Halves>(reduction, type, {sums, replicas}, divisor, std::span(&target, 1), count);
}

}  // namespace poprun::collectives
