#include "replica/ops/half/half_kernel.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "replica/base/half.h"
#include "replica/base/random.h"
#include "replica/ops/face/random_name.h"
#include "replica/ops/face/simd.h"

namespace poprun {
namespace {

constexpr std::int64_t kScratchAlignment = 64;

/// Rounds stochastically. One random draw serves eight elements: each gets 16 bits and uses 13 of them.
/// `first` is the index of from[0] in the tensor.
void round_at_random(const float* from, Half* to, std::int64_t first, std::int64_t n, std::uint64_t key) {
  const std::int64_t end = first + n;
  for (std::int64_t i = first; i < end;) {
    const auto words = philox(key, static_cast<std::uint64_t>(i / 8), 0);
    const std::int64_t stop = std::min((i / 8 + 1) * 8, end);
    for (; i < stop; ++i) {
      const std::uint32_t word = words[static_cast<std::size_t>(i % 8 / 2)];
      to[i - first] = to_half_at_random(from[i - first], i % 2 == 0 ? word : word << 16U);
    }
  }
}

POPRUN_SIMD void add(const float* __restrict from, float* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] += from[i];
  }
}

/// Rounds `values` to float16 in place and adds them to `sum`.
void add_rounded(float* values, float* sum, std::int64_t n) {
  constexpr std::int64_t kBlock = 1024;
  std::array<Half, kBlock> stored;
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const auto size = static_cast<std::size_t>(std::min(kBlock, n - i));
    to_halves(values + i, stored.data(), size);
    to_floats(stored.data(), values + i, size);
  }
  add(values, sum, n);
}

const Half* halves(const std::byte* bytes) {
  return reinterpret_cast<const Half*>(bytes);  // NOLINT: bytes of an f16 tensor.
}
float* floats(std::byte* bytes) {
  return reinterpret_cast<float*>(bytes);  // NOLINT: 64-byte aligned scratch.
}

TensorType widened(TensorType type) {
  type.data = type.data == DataType::kF16 ? DataType::kF32 : type.data;
  return type;
}

std::size_t count_of(const TensorType& type) {
  return static_cast<std::size_t>(type.elements());
}

bool is_half(const TensorType& type) {
  return type.data == DataType::kF16;
}

/// A range along one dimension of a tensor, in storage order. The tensor has `outer` blocks of `size` rows of `inner`
/// elements, and the range is `length` rows of each block, from `begin` on. The whole tensor is {1, 1, 0, 1, elements}.
struct Slice {
  std::int64_t outer = 1;
  std::int64_t size = 1;
  std::int64_t begin = 0;
  std::int64_t length = 1;
  std::int64_t inner = 1;

  [[nodiscard]] std::int64_t elements() const { return outer * length * inner; }
};

Slice slice_of(const TensorType& type, std::int64_t axis, std::int64_t begin, std::int64_t length) {
  Shape stored = type.shape;
  auto at = static_cast<std::ptrdiff_t>(axis);
  if (type.layout == Layout::kChannelsLast) {
    std::rotate(stored.begin() + 1, stored.begin() + 2, stored.end());
    at = axis == 0 ? 0 : axis == 1 ? 3 : at - 1;
  }
  const auto product = [](auto first, auto last) {
    return std::accumulate(first, last, std::int64_t{1}, std::multiplies<>{});
  };
  return {.outer = product(stored.begin(), stored.begin() + at),
          .size = stored[static_cast<std::size_t>(at)],
          .begin = begin,
          .length = length,
          .inner = product(stored.begin() + at + 1, stored.end())};
}

/// One run of the operator's own kernel, on the full operands or on one piece of the sum.
struct Piece {
  std::vector<std::size_t> inputs;  ///< Indices of the inputs that this run reads.
  std::vector<Slice> slices;        ///< Slices of those inputs.
  std::unique_ptr<Kernel> kernel;
};

constexpr const char* kStochastic = "stochastic";
constexpr const char* kShards = "shards";

/// Replaces the scratch offset of an operand that is not float16, because the kernel uses such an operand directly.
constexpr std::int64_t kInPlace = -1;

class HalfKernel final : public Kernel {
 public:
  HalfKernel(const Operator& op, const Signature& signature) : signature_(signature) {
    if (signature.attributes.has(kStochastic)) {
      stochastic_ = RandomName(signature.attributes.values().at(kStochastic));
    }
    if (signature.attributes.has(kShards)) {
      shards_ = signature.attributes.integer(kShards);
    }
    cut(op);
    for (const TensorType& type : signature.inputs) {
      inputs_.push_back(claim(type, !is_half(type) && pieces_.size() == 1));
    }
    for (const TensorType& type : signature.outputs) {
      outputs_.push_back(claim(type, !is_half(type) && pieces_.size() == 1));
      sums_.push_back(pieces_.size() == 1 ? kInPlace : claim(type, false));
    }
    for (const Piece& piece : pieces_) {
      own_scratch_ = std::max(own_scratch_, piece.kernel->scratch());
    }
  }

  [[nodiscard]] Bytes scratch() const override { return Bytes{claimed_} + own_scratch_; }

  void run(const Operands& operands) override {
    if (pieces_.size() == 1) {
      run_whole(operands);
    } else {
      run_pieces(operands);
    }
  }

 private:
  void cut(const Operator& op) {
    std::vector<std::int64_t> axes;
    if (op.contraction != nullptr && signature_.attributes.has("partials")) {
      axes = op.contraction(signature_);
    }
    const auto contracted = std::ranges::find_if(axes, [](std::int64_t axis) { return axis != kNoAxis; });
    std::int64_t size = 1;
    std::int64_t count = 1;
    if (contracted != axes.end()) {
      size = signature_.inputs[static_cast<std::size_t>(contracted - axes.begin())]
                 .shape[static_cast<std::size_t>(*contracted)];
      count = std::clamp<std::int64_t>(size / kLeastPartial, 1, kPartials);
    }
    for (std::int64_t p = 0; p < count; ++p) {
      pieces_.push_back(piece(op, axes, size * p / count, size * (p + 1) / count, p == 0));
    }
  }

  Piece piece(const Operator& op, const std::vector<std::int64_t>& axes, std::int64_t begin, std::int64_t end,
              bool first) {
    Piece piece;
    Signature own{{}, {}, signature_.attributes};
    for (std::size_t i = 0; i < signature_.inputs.size(); ++i) {
      TensorType type = widened(signature_.inputs[i]);
      const std::int64_t axis = i < axes.size() ? axes[i] : kNoAxis;
      if (axis == kNoAxis && !first) {
        continue;
      }
      Slice slice{1, 1, 0, 1, type.elements()};
      if (axis != kNoAxis) {
        slice = slice_of(type, axis, begin, end - begin);
        type.shape[static_cast<std::size_t>(axis)] = end - begin;
      }
      piece.inputs.push_back(i);
      piece.slices.push_back(slice);
      own.inputs.push_back(type);
    }
    for (const TensorType& type : signature_.outputs) {
      own.outputs.push_back(widened(type));
    }
    piece.kernel = op.numerics(own);
    return piece;
  }

  std::int64_t claim(const TensorType& type, bool in_place) {
    if (in_place) {
      return kInPlace;
    }
    const std::int64_t offset = claimed_;
    claimed_ += ceil_div(widened(type).bytes().count(), kScratchAlignment) * kScratchAlignment;
    return offset;
  }

  Operands own_operands(const Operands& operands) const {
    Operands own;
    own.scratch = operands.scratch + claimed_;
    own.moment = operands.moment;
    own.stray = operands.stray;
    return own;
  }

  void run_whole(const Operands& operands) {
    Operands own = own_operands(operands);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i] == kInPlace) {
        own.inputs.push_back(operands.inputs[i]);
        continue;
      }
      std::byte* wide = operands.scratch + inputs_[i];
      to_floats(halves(operands.inputs[i]), floats(wide), count_of(signature_.inputs[i]));
      own.inputs.push_back(wide);
    }
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      own.outputs.push_back(outputs_[k] == kInPlace ? operands.outputs[k] : wide_output(operands, own, k));
    }
    pieces_[0].kernel->run(own);
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      if (outputs_[k] != kInPlace) {
        store(floats(own.outputs[k]), operands, k);
      }
    }
  }

  /// Returns the float32 buffer of output k. An output that updates an input in place shares the input's buffer.
  std::byte* wide_output(const Operands& operands, const Operands& own, std::size_t k) const {
    const auto same = std::ranges::find(operands.inputs, operands.outputs[k]);
    if (same == operands.inputs.end()) {
      return operands.scratch + outputs_[k];
    }
    const auto i = static_cast<std::size_t>(same - operands.inputs.begin());
    return const_cast<std::byte*>(own.inputs[i]);  // NOLINT: our own scratch.
  }

  void run_pieces(const Operands& operands) {
    Operands own = own_operands(operands);
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      own.outputs.push_back(operands.scratch + outputs_[k]);
      std::fill_n(floats(operands.scratch + sums_[k]), signature_.outputs[k].elements(), 0.0F);
    }
    for (const Piece& piece : pieces_) {
      own.inputs.clear();
      for (std::size_t j = 0; j < piece.inputs.size(); ++j) {
        const std::size_t i = piece.inputs[j];
        copy_slice(operands.inputs[i], i, piece.slices[j], floats(operands.scratch + inputs_[i]));
        own.inputs.push_back(operands.scratch + inputs_[i]);
      }
      piece.kernel->run(own);
      for (std::size_t k = 0; k < outputs_.size(); ++k) {
        add_rounded(floats(own.outputs[k]), floats(operands.scratch + sums_[k]), signature_.outputs[k].elements());
      }
    }
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      store(floats(operands.scratch + sums_[k]), operands, k);
    }
  }

  void copy_slice(const std::byte* tensor, std::size_t input, const Slice& slice, float* to) const {
    const std::int64_t run = slice.length * slice.inner;
    for (std::int64_t o = 0; o < slice.outer; ++o, to += run) {
      const std::int64_t from = (o * slice.size + slice.begin) * slice.inner;
      if (is_half(signature_.inputs[input])) {
        to_floats(halves(tensor) + from, to, static_cast<std::size_t>(run));
      } else {
        std::copy_n(reinterpret_cast<const float*>(tensor) + from, run, to);  // NOLINT: f32 tensor.
      }
    }
  }

  void store(const float* from, const Operands& operands, std::size_t k) const {
    const std::int64_t n = signature_.outputs[k].elements();
    if (!is_half(signature_.outputs[k])) {
      std::copy_n(from, n, operands.output_f32(k));
      return;
    }
    auto* to = reinterpret_cast<Half*>(operands.outputs[k]);  // NOLINT: f16 tensor.
    if (!stochastic_) {
      to_halves(from, to, static_cast<std::size_t>(n));
      return;
    }
    const Moment& now = *operands.moment;
    const std::uint64_t name = random_key(now.seed, stochastic_->at(now));
    const auto words = philox(name, now.step, (std::uint64_t{now.micro_batch} << 32U) | k);
    const std::int64_t first = shards_ > 0 ? now.replica % shards_ * n : 0;
    round_at_random(from, to, first, n, (std::uint64_t{words[1]} << 32U) | words[0]);
  }

  Signature signature_;
  std::optional<RandomName> stochastic_;  ///< If empty, results are rounded to nearest.
  std::int64_t shards_ = 0;               ///< Number of shards per tensor, or 0 if the operands are unsharded.
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> inputs_;   ///< Offsets in scratch, or kInPlace.
  std::vector<std::int64_t> outputs_;  ///< Offsets in scratch, or kInPlace.
  std::vector<std::int64_t> sums_;     ///< Offsets of the sums over all pieces.
  std::int64_t claimed_ = 0;
  Bytes own_scratch_;
};

}  // namespace

bool reads_moment(const Operator& op, const Attributes& attributes) {
  return op.reads_moment || attributes.has(kStochastic);
}

std::unique_ptr<Kernel> prepare_kernel(const Operator& op, const Signature& signature) {
  const bool half = std::ranges::any_of(signature.inputs, is_half) || std::ranges::any_of(signature.outputs, is_half);
  return half ? std::make_unique<HalfKernel>(op, signature) : op.numerics(signature);
}

}  // namespace poprun
