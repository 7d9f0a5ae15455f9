/// Every operator that may work on shards (Operator::on_shards): its results on the shards of its operands, put
/// together, are bit-identical to its results on the full operands.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "case.h"
#include "replica/ops/half/half_kernel.h"
#include "replica/ops/optimizers/square_sum.h"

namespace poprun::testing {
namespace {

/// The bytes of a tensor, aligned to 64 bytes.
class Stored {
 public:
  explicit Stored(TensorType of_type)
      : type(std::move(of_type)), lines_(static_cast<std::size_t>(type.bytes().count()) / 64 + 1) {}

  [[nodiscard]] std::byte* data() { return lines_[0].bytes; }
  [[nodiscard]] std::span<std::byte> bytes() { return {data(), static_cast<std::size_t>(type.bytes().count())}; }

  TensorType type;

 private:
  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  std::vector<Line> lines_;
};

TensorType with_elements(TensorType type, std::int64_t n) {
  type.shape = {n};
  type.layout = Layout::kRowMajor;
  return type;
}

std::size_t width(const TensorType& type) {
  return static_cast<std::size_t>(type.bytes().count() / type.elements());
}

/// Returns a case's inputs. Of the inputs that the operator shards, returns the first `n` elements in one dimension.
std::vector<Stored> flat_inputs(const Operator& op, const Case& c, std::int64_t n) {
  const Arrays given = inputs_of(c, 1);
  std::vector<Stored> inputs;
  for (std::size_t i = 0; i < given.size(); ++i) {
    Stored whole(c.inputs[i].type);
    put(whole.data(), whole.type, given[i]);
    if (i >= op.on_shards.inputs) {
      inputs.push_back(std::move(whole));
      continue;
    }
    Stored& flat = inputs.emplace_back(with_elements(whole.type, n));
    std::ranges::copy(whole.bytes().first(flat.bytes().size()), flat.data());
  }
  return inputs;
}

/// Returns shard `self` of `count`, padded with zeros.
Stored shard_of(Stored& whole, std::int64_t count, std::int64_t self) {
  const std::int64_t size = ceil_div(whole.type.elements(), count);
  Stored shard(with_elements(whole.type, size));
  const std::size_t begin = std::min(static_cast<std::size_t>(self) * shard.bytes().size(), whole.bytes().size());
  const std::size_t bytes = std::min(shard.bytes().size(), whole.bytes().size() - begin);
  std::ranges::copy(whole.bytes().subspan(begin, bytes), shard.data());
  return shard;
}

/// Runs the operator; returns its outputs. An in-place update changes `inputs`.
std::vector<Stored> run(const Operator& op, const Case& c, const Attributes& attributes, std::vector<Stored>& inputs,
                        std::uint32_t replica) {
  Signature signature{{}, {}, attributes};
  Signature wide = signature;
  for (const Stored& input : inputs) {
    signature.inputs.push_back(input.type);
    wide.inputs.push_back(input.type);
    wide.inputs.back().data = input.type.data == DataType::kF16 ? DataType::kF32 : input.type.data;
  }
  const auto types = op.shape(wide);
  EXPECT_TRUE(types) << types.error().message;
  std::vector<Stored> outputs;
  Operands operands;
  for (Stored& input : inputs) {
    operands.inputs.push_back(input.data());
  }
  for (std::size_t k = 0; k < types->size(); ++k) {
    const bool in_place = k < c.in_place.size();
    outputs.emplace_back(in_place ? inputs[c.in_place[k]].type : (*types)[k]);
    signature.outputs.push_back(outputs[k].type);
    operands.outputs.push_back(in_place ? inputs[c.in_place[k]].data() : outputs[k].data());
  }
  const auto kernel = prepare_kernel(op, signature);
  Stored scratch({DataType::kU8, {kernel->scratch().count() + 1}, Layout::kRowMajor});
  Moment moment = kMoment;
  moment.replica = replica;
  operands.scratch = scratch.data();
  operands.moment = &moment;
  kernel->run(operands);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    std::memcpy(outputs[k].data(), operands.outputs[k], outputs[k].bytes().size());
  }
  return outputs;
}

/// Adds sums of squares with carries, so that equal sums have identical limbs.
void add_sums(Stored& sums, Stored& more) {
  auto* to = reinterpret_cast<std::int32_t*>(sums.data());          // NOLINT: an i32 tensor.
  const auto* from = reinterpret_cast<std::int32_t*>(more.data());  // NOLINT: an i32 tensor.
  for (std::int64_t k = 0; k < sums.type.elements(); k += SquareSum::kLimbs) {
    SquareSum sum;
    sum.add(to + k);
    sum.add(from + k);
    sum.store(to + k);
  }
}

/// Returns the first difference between the results on `count` shards of `n` elements and on all elements, or "".
std::string difference(const Operator& op, const Case& c, std::int64_t n, std::int64_t count, bool at_random) {
  const Cut cut = op.on_shards;
  Attributes attributes = c.attributes;
  if (at_random) {
    attributes.set("stochastic", std::string{"t"});
  }
  std::vector<Stored> given = flat_inputs(op, c, n);
  std::vector<Stored> inputs = given;
  std::vector<Stored> whole = run(op, c, attributes, inputs, 0);
  std::vector<Stored> sums;
  if (at_random) {
    attributes.set("shards", count);
  }
  for (std::int64_t self = 0; self < count; ++self) {
    std::vector<Stored> parts;
    for (std::size_t i = 0; i < given.size(); ++i) {
      parts.push_back(i < cut.inputs ? shard_of(given[i], count, self) : given[i]);
    }
    std::vector<Stored> made = run(op, c, attributes, parts, static_cast<std::uint32_t>(self));
    for (std::size_t k = 0; k < made.size(); ++k) {
      if (k >= cut.outputs) {
        const std::size_t s = k - cut.outputs;
        self == 0 ? sums.push_back(made[k]) : add_sums(sums[s], made[k]);
        continue;
      }
      const std::int64_t begin = self * made[k].type.elements();
      const std::int64_t here = std::clamp<std::int64_t>(n - begin, 0, made[k].type.elements());
      const std::size_t bytes = static_cast<std::size_t>(here) * width(made[k].type);
      const std::size_t at = static_cast<std::size_t>(begin) * width(made[k].type);
      if (bytes > 0 && std::memcmp(made[k].data(), whole[k].data() + at, bytes) != 0) {
        return fmt::format("shard {} of {} of output {}", self, count, k);
      }
    }
  }
  for (std::size_t s = 0; s < sums.size(); ++s) {
    Stored& wanted = whole[cut.outputs + s];
    Stored zero(wanted.type);
    add_sums(wanted, zero);
    add_sums(sums[s], zero);
    if (!std::ranges::equal(sums[s].bytes(), wanted.bytes())) {
      return fmt::format("the sum of {} shards of output {}", count, cut.outputs + s);
    }
  }
  return {};
}

std::set<std::string> kinds_on_shards() {
  std::set<std::string> kinds;
  for (const Operator& op : all_operators()) {
    if (op.on_shards) {
      kinds.insert(op.kind);
    }
  }
  return kinds;
}

class OnShards : public ::testing::TestWithParam<std::string> {};

/// The sizes give full shards, a padded last shard, empty shards, and a single element.
TEST_P(OnShards, MakesOfPartsTheBitsOfTheWhole) {
  const Operator& op = *find_operator(GetParam());
  std::size_t tried = 0;
  for (const Case& c : all_cases()) {
    if (c.kind != op.kind) {
      continue;
    }
    const std::int64_t most = c.inputs.at(0).type.elements();
    if (most < 4) {
      continue;  // Too few elements to be sharded.
    }
    for (const std::int64_t n : {most, most - most % 4, std::int64_t{3}, std::int64_t{1}}) {
      for (const std::int64_t count : {2, 3, 4, 7}) {
        for (const bool at_random : {false, true}) {
          ++tried;
          EXPECT_EQ(difference(op, c, n, count, at_random), "") << op.kind << " " << to_text(c.attributes) << " of "
                                                                << n << " elements" << (at_random ? " at random" : "");
        }
      }
    }
  }
  EXPECT_GT(tried, 0U) << op.kind << ": add a Case to tests/unit/replica/ops/cases";
}

INSTANTIATE_TEST_SUITE_P(Kinds, OnShards, ::testing::ValuesIn(kinds_on_shards()),
                         [](const auto& kind) { return kind.param; });

/// Returns normalised(w*, g), which computes w -= g / |g|. The norm is over all elements, so it cannot work on shards.
Operator normalised() {
  return {.kind = "normalised",
          .shape = [](const Signature& s) -> Result<std::vector<TensorType>> { return std::vector{s.inputs[0]}; },
          .numerics = [](const Signature& s) -> std::unique_ptr<Kernel> {
            return make_kernel([n = s.inputs[0].elements()](const Operands& t) {
              float squares = 0;
              for (std::int64_t i = 0; i < n; ++i) {
                squares += t.input_f32(1)[i] * t.input_f32(1)[i];
              }
              for (std::int64_t i = 0; i < n; ++i) {
                t.output_f32(0)[i] -= t.input_f32(1)[i] / std::sqrt(squares);
              }
            });
          }};
}

TEST(OnShardsTest, FindsARuleThatNeedsTheNormOfTheWhole) {
  const Operator op = on_shards(normalised(), {.inputs = 2, .outputs = 1});
  const Case c{
      .kind = op.kind, .inputs = {single({43}), single({43})}, .attributes = {}, .definition = {}, .in_place = {0}};
  EXPECT_EQ(difference(op, c, 43, 2, false), "shard 0 of 2 of output 0");
  EXPECT_EQ(difference(op, c, 1, 1, false), "");
}

TEST(OnShardsTest, IsNothingThatAnOperatorHasByDefault) {
  EXPECT_FALSE(Operator{}.on_shards);
}

}  // namespace
}  // namespace poprun::testing
