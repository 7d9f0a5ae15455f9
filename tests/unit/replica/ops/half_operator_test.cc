/// Compares every operator in half precision with its definition in double.
///
/// A result must be a float32 computation of the definition on the stored inputs, rounded to float16 once. It therefore
/// lies between the roundings of (exact - error) and (exact + error), where error is that of float32 arithmetic
/// (Case::error). This is tighter than any number of half steps, and determines which results saturate to infinity and
/// which are subnormal.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "case.h"
#include "replica/base/half.h"
#include "replica/ops/half/half_kernel.h"

namespace poprun::testing::half_operator_test {
namespace {

/// Kinds that need no case with half precision, and the reason.
const std::map<std::string, std::string> kNeverHalf = {
    {"accumulate_metrics", "metrics and scalars are float32 in any precision"},
    {"batch_norm_update", "running and batch statistics are float32 in any precision"},
    {"expert_slots", "indices are integers in any precision"},
    {"relative_buckets", "indices are integers in any precision"},
    {"batch_norm_statistics", "statistics are float32 in any precision"},
    {"join_losses", "losses and counts are float32 in any precision"},
    {"join_losses_gradient", "losses and counts are float32 in any precision"},
};

/// A 64-byte aligned operand between bytes that a kernel must not write.
class Buffer {
 public:
  explicit Buffer(Bytes size) : size_(static_cast<std::size_t>(size.count())) {
    const std::size_t lines = size_ / sizeof(Line) + 3;
    lines_.resize(lines);
    std::memset(lines_.data(), kPoison, lines * sizeof(Line));
  }

  [[nodiscard]] std::byte* bytes() { return lines_[1].bytes; }
  [[nodiscard]] std::vector<std::byte> copy() { return {bytes(), bytes() + size_}; }

  [[nodiscard]] bool is_intact_around() {
    const auto* all = reinterpret_cast<const std::byte*>(lines_.data());  // NOLINT: its bytes.
    const std::size_t end = lines_.size() * sizeof(Line);
    return std::all_of(all, all + sizeof(Line), is_poison) &&
           std::all_of(all + sizeof(Line) + size_, all + end, is_poison);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  static constexpr int kPoison = 0xFF;  // A NaN in every type.
  static bool is_poison(std::byte b) { return b == std::byte{kPoison}; }

  std::size_t size_;
  std::vector<Line> lines_;
};

enum class Rounding { kNearest, kDown, kUp };

/// Rounds to float16, by the format's definition.
double to_half_step(double value, Rounding rounding) {
  if (value == 0 || !std::isfinite(value)) {
    return value;
  }
  const double step = std::ldexp(1.0, std::max(std::ilogb(value), -14) - 10);
  const double steps = value / step;
  const double rounded = step * (rounding == Rounding::kDown ? std::floor(steps)
                                 : rounding == Rounding::kUp ? std::ceil(steps)
                                                             : std::nearbyint(steps));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return std::abs(rounded) > 65504 ? std::copysign(kInfinity, value) : rounded;
}

/// The range of allowed stored results.
struct Interval {
  double low;
  double high;

  Interval(double exact, double error, DataType type, bool at_random) : low(exact), high(exact) {
    if (std::isfinite(exact)) {
      low = exact - error;
      high = exact + error;
    }
    if (type == DataType::kF16) {
      low = to_half_step(low, at_random ? Rounding::kDown : Rounding::kNearest);
      high = to_half_step(high, at_random ? Rounding::kUp : Rounding::kNearest);
    } else if (type == DataType::kF32 && std::isfinite(exact)) {
      const double half_a_step = std::abs(exact) * 0x1p-24 + 0x1p-150;
      low -= half_a_step;
      high += half_a_step;
    }
  }

  [[nodiscard]] bool holds(double value) const {
    return std::isnan(low) ? std::isnan(value) : low <= value && value <= high;
  }
};

/// Returns the allowed values of an output, element by element.
std::vector<Interval> intervals(const Array& exact, const Error& error, DataType type, bool at_random) {
  double largest = 0;
  for (const double x : exact.values) {
    largest = std::isfinite(x) ? std::max(largest, std::abs(x)) : largest;
  }
  std::vector<Interval> all;
  for (const double x : exact.values) {
    const double e = error.relative * std::abs(x) + error.terms * 0x1p-24 * largest;
    all.emplace_back(x, e, type, at_random);
  }
  return all;
}

/// One use of a kernel made by prepare_kernel.
class Use {
 public:
  /// Prepares a kernel and its operands. With `wide`, results are float32, as in a float job.
  Use(const Case& c, const Attributes& more, const Arrays& inputs, bool wide = false) : case_(c), wide_(wide) {
    signature_.attributes = c.attributes;
    for (const Input& input : c.inputs) {
      signature_.inputs.push_back(input.type);
    }
    const Operator& op = *find_operator(c.kind);
    signature_.outputs = stored_types(op);
    for (const auto& [name, value] : more.values()) {
      signature_.attributes.set(name, value);
    }
    kernel_ = prepare_kernel(op, signature_);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      put(inputs_.emplace_back(signature_.inputs[i].bytes()).bytes(), signature_.inputs[i], inputs[i]);
    }
    for (const TensorType& type : signature_.outputs) {
      outputs_.emplace_back(type.bytes());
    }
  }

  void run(const Moment& moment = kMoment) {
    Buffer scratch(kernel_->scratch());
    Operands operands;
    for (Buffer& input : inputs_) {
      operands.inputs.push_back(input.bytes());
    }
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      operands.outputs.push_back(output_buffer(k).bytes());
    }
    operands.scratch = scratch.bytes();
    operands.moment = &moment;
    kernel_->run(operands);
    EXPECT_TRUE(scratch.is_intact_around());
    for (Buffer& input : inputs_) {
      EXPECT_TRUE(input.is_intact_around());
    }
    for (Buffer& output : outputs_) {
      EXPECT_TRUE(output.is_intact_around());
    }
  }

  /// Makes output 0 use the bytes of `input` from now on.
  void take(std::size_t input) { taken_ = input; }

  [[nodiscard]] const Signature& signature() const { return signature_; }
  [[nodiscard]] const std::vector<TensorType>& types() const { return signature_.outputs; }
  [[nodiscard]] Array output(std::size_t k) { return get(output_buffer(k).bytes(), signature_.outputs[k]); }
  [[nodiscard]] std::vector<std::byte> input_bytes(std::size_t i) { return inputs_[i].copy(); }
  [[nodiscard]] std::vector<std::byte> output_bytes(std::size_t k) { return output_buffer(k).copy(); }

  /// Returns the inputs as stored.
  [[nodiscard]] Arrays stored_inputs() {
    Arrays stored;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      stored.push_back(get(inputs_[i].bytes(), signature_.inputs[i]));
    }
    return stored;
  }

 private:
  /// Returns the output types by shape inference, in the precision of a half job.
  std::vector<TensorType> stored_types(const Operator& op) {
    Signature wide = signature_;
    for (TensorType& type : wide.inputs) {
      type.data = type.data == DataType::kF16 ? DataType::kF32 : type.data;
    }
    const auto types = op.shape(wide);
    EXPECT_TRUE(types) << types.error().message;
    std::vector<TensorType> stored = types ? *types : std::vector<TensorType>{};
    for (std::size_t k = 0; k < stored.size(); ++k) {
      if (k < case_.in_place.size()) {
        stored[k] = signature_.inputs[case_.in_place[k]];
      } else if (!wide_ && stored[k].data == DataType::kF32 && k < op.statistics_from && !stored[k].shape.empty()) {
        stored[k].data = DataType::kF16;
      }
    }
    return stored;
  }

  Buffer& output_buffer(std::size_t k) {
    if (k == 0 && taken_) {
      return inputs_[*taken_];
    }
    return k < case_.in_place.size() ? inputs_[case_.in_place[k]] : outputs_[k];
  }

  const Case& case_;
  bool wide_;
  Signature signature_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<Buffer> inputs_;
  std::vector<Buffer> outputs_;
  std::optional<std::size_t> taken_;  ///< The input whose bytes output 0 uses.
};

void expect_within(const Array& got, const std::vector<Interval>& wanted, const std::string& what) {
  ASSERT_EQ(got.values.size(), wanted.size()) << what;
  int shown = 0;
  for (std::size_t i = 0; i < wanted.size() && shown < 3; ++i) {
    if (!wanted[i].holds(got.values[i])) {
      ++shown;
      ADD_FAILURE() << what << ", element " << i << ": " << got.values[i] << " is not in [" << wanted[i].low << ", "
                    << wanted[i].high << "]";
    }
  }
}

/// Runs a use whose exact results on these inputs are `exact`. If nothing is updated in place, runs it again, since
/// kernels keep no state.
void check(Use use, const Arrays& exact, const Error& error, bool at_random, bool again) {
  ASSERT_EQ(use.types().size(), exact.size());
  std::vector<std::vector<std::byte>> first;

  use.run();

  for (std::size_t k = 0; k < exact.size(); ++k) {
    EXPECT_EQ(use.types()[k].shape, exact[k].shape);
    expect_within(use.output(k), intervals(exact[k], error, use.types()[k].data, at_random),
                  "output " + std::to_string(k));
    first.push_back(use.output_bytes(k));
  }
  if (again) {
    use.run();
    for (std::size_t k = 0; k < exact.size(); ++k) {
      EXPECT_EQ(use.output_bytes(k), first[k]) << "run again, output " << k;
    }
  }
}

/// Returns the rows [begin, end) of an axis.
Array cut(const Array& whole, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  Shape shape = whole.shape;
  shape[static_cast<std::size_t>(axis)] = end - begin;
  Array part(shape);
  for_each_index(shape, [&](const Shape& index) {
    Shape from = index;
    from[static_cast<std::size_t>(axis)] += begin;
    part(index) = whole(from);
  });
  return part;
}

/// Checks a sum of products in kPartials rounded pieces: takes each piece's definition, rounds both ends of its allowed
/// range, and sums those.
void check_partials(const Case& c, const std::vector<std::int64_t>& axes) {
  Use use(c, {{"partials", std::string{"half"}}}, inputs_of(c, 1));
  const Arrays whole = use.stored_inputs();
  const std::int64_t size = whole[0].shape[static_cast<std::size_t>(axes[0])];
  const std::int64_t pieces = std::clamp<std::int64_t>(size / kLeastPartial, 1, kPartials);
  std::vector<std::vector<Interval>> sums;
  for (std::int64_t p = 0; p < pieces; ++p) {
    Arrays part;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (axes[i] != kNoAxis) {
        part.push_back(cut(whole[i], axes[i], size * p / pieces, size * (p + 1) / pieces));
      } else if (p == 0) {
        part.push_back(whole[i]);
      }
    }
    const Arrays exact = c.definition(part, c.attributes);
    for (std::size_t k = 0; k < exact.size(); ++k) {
      const auto piece = intervals(exact[k], c.error, DataType::kF16, false);
      if (p == 0) {
        sums.push_back(piece);
        continue;
      }
      for (std::size_t i = 0; i < piece.size(); ++i) {
        sums[k][i].low += piece[i].low;
        sums[k][i].high += piece[i].high;
      }
    }
  }

  use.run();

  for (std::size_t k = 0; k < sums.size(); ++k) {
    for (Interval& sum : sums[k]) {
      sum.low = to_half_step(sum.low, Rounding::kNearest);
      sum.high = to_half_step(sum.high, Rounding::kNearest);
    }
    expect_within(use.output(k), sums[k], "partials, output " + std::to_string(k));
  }
}

bool touches_half(const Case& c) {
  return std::ranges::any_of(c.inputs, [](const Input& i) { return i.type.data == DataType::kF16; }) ||
         c.inputs.empty() || c.inputs[0].type.data != DataType::kF32;
}

/// The parameter is the kind.
class HalfOperator : public ::testing::TestWithParam<std::string> {};

TEST_P(HalfOperator, ComputesInFloatAndRoundsOnce) {
  for (const Case& c : all_cases()) {
    if (c.kind != GetParam()) {
      continue;
    }
    EXPECT_TRUE(touches_half(c) || kNeverHalf.contains(c.kind));
    for (const double scale : c.scales) {
      const Arrays inputs = inputs_of(c, scale);
      const Arrays exact = c.definition(Use(c, {}, inputs).stored_inputs(), c.attributes);
      for (const bool at_random : {false, true}) {
        SCOPED_TRACE(c.kind + " " + to_text(c.attributes) + " times " + std::to_string(scale) +
                     (at_random ? " at random" : ""));
        const Attributes how = at_random ? Attributes{{"stochastic", std::string{"t"}}} : Attributes{};
        check(Use(c, how, inputs), exact, c.error, at_random, c.in_place.empty());
      }
    }
  }
}

/// Returns the bytes of every output of a use that runs at `moment`.
std::vector<std::vector<std::byte>> results_at(const Moment& moment, const Case& c, const Attributes& more) {
  Use use(c, more, inputs_of(c, 1));
  use.run(moment);
  std::vector<std::vector<std::byte>> results;
  for (std::size_t k = 0; k < use.types().size(); ++k) {
    results.push_back(use.output_bytes(k));
  }
  return results;
}

/// The results of operators that do not declare reads_moment are identical at any moment.
TEST_P(HalfOperator, DependsOnTheMomentOnlyIfItSaysSo) {
  const Operator& op = *find_operator(GetParam());
  bool depends = false;
  for (const Case& c : all_cases()) {
    if (c.kind != GetParam()) {
      continue;
    }
    const auto results = results_at(kMoment, c, {});
    for (const Moment& other : {Moment{.seed = 1, .step = 2, .micro_batch = 9, .replica = 4},
                                Moment{.seed = 1, .step = 8, .micro_batch = 3, .replica = 4},
                                Moment{.seed = 1, .step = 2, .micro_batch = 3, .replica = 7}}) {
      depends = depends || results_at(other, c, {}) != results;
    }
  }
  EXPECT_EQ(depends, op.reads_moment) << op.kind;
  EXPECT_EQ(reads_moment(op, {}), op.reads_moment);
  EXPECT_TRUE(reads_moment(op, {{"stochastic", std::string{"t"}}}));
}

/// Returns a case unchanged or, with `wide`, with the float32 inputs of a float job.
Case stored_as(Case c, bool wide) {
  for (Input& input : c.inputs) {
    input.type.data = wide && input.type.data == DataType::kF16 ? DataType::kF32 : input.type.data;
  }
  return c;
}

/// If an operator declares that its output may use an input's bytes, its result there is bit-identical.
TEST_P(HalfOperator, GivesTheSameBitsInTheBytesOfAnInput) {
  const Operator& op = *find_operator(GetParam());
  std::set<std::size_t> taken;
  for (const Case& as_given : all_cases()) {
    for (const bool wide : {false, true}) {
      if (as_given.kind != op.kind || !as_given.in_place.empty()) {
        continue;
      }
      const Case c = stored_as(as_given, wide);
      Use apart(c, {}, inputs_of(c, 1), wide);
      apart.run();
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        if (!may_take(op, apart.signature(), i)) {
          continue;
        }
        taken.insert(i);
        Use use(c, {}, inputs_of(c, 1), wide);
        use.take(i);
        use.run();
        EXPECT_EQ(use.output_bytes(0), apart.output_bytes(0))
            << op.kind << " " << to_text(c.attributes) << " in input " << i << (wide ? " in float" : " in half");
      }
    }
  }
  EXPECT_EQ(taken, std::set<std::size_t>(op.in_place.begin(), op.in_place.end()))
      << "each of " << op.kind << "'s inputs in in_place needs a case of the output's type";
}

/// A view has nothing to do if its outputs are at the declared places. On separate buffers, its kernel must therefore
/// move each byte from the place that the view declares.
TEST_P(HalfOperator, HasNothingToDoWhereItIsAView) {
  const Operator& op = *find_operator(GetParam());
  for (const Case& c : all_cases()) {
    if (c.kind != op.kind || op.view == nullptr) {
      continue;
    }
    Use use(c, {}, inputs_of(c, 1));
    use.run();
    for (const Overlay& overlay : op.view(use.signature())) {
      const std::vector<std::byte> input = use.input_bytes(overlay.input);
      const std::vector<std::byte> output = use.output_bytes(overlay.output);
      const auto distance = static_cast<std::ptrdiff_t>(overlay.distance.count());
      const std::ptrdiff_t in = std::max<std::ptrdiff_t>(distance, 0);
      const std::ptrdiff_t out = std::max<std::ptrdiff_t>(-distance, 0);
      const auto size = std::min(input.end() - input.begin() - in, output.end() - output.begin() - out);
      ASSERT_GT(size, 0);
      EXPECT_TRUE(std::equal(input.begin() + in, input.begin() + in + size, output.begin() + out))
          << op.kind << " " << to_text(c.attributes);
    }
  }
}

std::set<std::string> kinds_with_cases() {
  std::set<std::string> kinds;
  for (const Case& c : all_cases()) {
    kinds.insert(c.kind);
  }
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Kinds, HalfOperator, ::testing::ValuesIn(kinds_with_cases()),
                         [](const auto& kind) { return kind.param; });

/// The parameter is the kind of a sum of products.
class HalfProduct : public ::testing::TestWithParam<std::string> {};

TEST_P(HalfProduct, RoundsPartialSumsWhereAsked) {
  const Operator& op = *find_operator(GetParam());
  bool was_cut = false;
  for (const Case& c : all_cases()) {
    if (c.kind != op.kind) {
      continue;
    }
    SCOPED_TRACE(c.kind + " " + to_text(c.attributes));
    Signature signature{{}, {}, c.attributes};
    for (const Input& input : c.inputs) {
      signature.inputs.push_back(input.type);
    }
    if (const auto axes = op.contraction(signature); !axes.empty()) {
      check_partials(c, axes);
      const auto& shape = c.inputs[0].type.shape;
      was_cut = was_cut || shape[static_cast<std::size_t>(axes[0])] >= 2 * kLeastPartial;
    }
  }
  EXPECT_TRUE(was_cut) << "no case of " << op.kind << " is long enough to be cut";
}

std::set<std::string> kinds_of_products() {
  std::set<std::string> kinds;
  for (const Operator& op : all_operators()) {
    if (op.contraction != nullptr) {
      kinds.insert(op.kind);
    }
  }
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Kinds, HalfProduct, ::testing::ValuesIn(kinds_of_products()),
                         [](const auto& kind) { return kind.param; });

TEST(HalfOperators, EveryKindHasACaseOrAReasonForNone) {
  const std::set<std::string> covered = kinds_with_cases();
  for (const Operator& op : all_operators()) {
    EXPECT_TRUE(covered.contains(op.kind) || kNeverHalf.contains(op.kind))
        << op.kind << ": add a Case to tests/unit/replica/ops/cases";
  }
  for (const std::string& kind : covered) {
    EXPECT_NE(find_operator(kind), nullptr) << kind;
  }
  for (const auto& [kind, reason] : kNeverHalf) {
    EXPECT_NE(find_operator(kind), nullptr) << kind << ": " << reason;
  }
}

}  // namespace
}  // namespace poprun::testing::half_operator_test
