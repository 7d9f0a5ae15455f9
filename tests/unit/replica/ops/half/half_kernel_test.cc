/// Kernels on float16 tensors compute in float and round once.

#include "replica/ops/half/half_kernel.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/base/half.h"
#include "tests/unit/replica/compiled.h"

namespace poprun::half_kernel_test {
namespace {

/// One use of an operator, on its own tensors.
class Use {
 public:
  Use(std::string kind, std::vector<TensorType> inputs, std::vector<TensorType> outputs, Attributes attributes)
      : signature_{std::move(inputs), std::move(outputs), std::move(attributes)},
        kernel_(prepare_kernel(*find_operator(kind), signature_)) {
    for (const TensorType& type : signature_.inputs) {
      inputs_.push_back(buffer(type.bytes()));
      operands_.inputs.push_back(inputs_.back().get()->bytes);
    }
    for (const TensorType& type : signature_.outputs) {
      outputs_.push_back(buffer(type.bytes()));
      operands_.outputs.push_back(outputs_.back().get()->bytes);
    }
    scratch_ = buffer(kernel_->scratch());
    operands_.scratch = scratch_.get()->bytes;
    operands_.moment = &moment;
  }

  /// Makes output `k` an in-place update of input `i`.
  void update_in_place(std::size_t k, std::size_t i) { operands_.outputs[k] = inputs_[i].get()->bytes; }

  void run() { kernel_->run(operands_); }

  void set_input(std::size_t i, const std::vector<float>& values) {
    for (std::size_t e = 0; e < values.size(); ++e) {
      put(inputs_[i].get()->bytes, signature_.inputs[i].data, e, values[e]);
    }
  }
  [[nodiscard]] double output(std::size_t k, std::size_t e) const {
    return get(operands_.outputs[k], signature_.outputs[k].data, e);
  }
  [[nodiscard]] double input(std::size_t i, std::size_t e) const {
    return get(operands_.inputs[i], signature_.inputs[i].data, e);
  }

  Moment moment{.seed = 1, .step = 2, .micro_batch = 3, .replica = 4};

 private:
  struct Lines {
    std::byte* bytes;
    ~Lines() { ::operator delete (bytes, std::align_val_t{64}); }
  };
  static std::unique_ptr<Lines> buffer(Bytes size) {
    const auto bytes = static_cast<std::size_t>(size.count()) + 64;
    return std::make_unique<Lines>(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
  }
  static void put(std::byte* to, DataType type, std::size_t e, float value) {
    if (type == DataType::kF16) {
      const Half half = to_half(value);
      std::memcpy(to + 2 * e, &half, 2);
    } else {
      std::memcpy(to + 4 * e, &value, 4);
    }
  }
  static double get(const std::byte* from, DataType type, std::size_t e) {
    Half half = 0;
    float value = 0;
    std::memcpy(&half, from + 2 * e, 2);
    if (type != DataType::kF16) {
      std::memcpy(&value, from + 4 * e, 4);
    }
    return static_cast<double>(type == DataType::kF16 ? to_float(half) : value);
  }

  Signature signature_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<std::unique_ptr<Lines>> inputs_;
  std::vector<std::unique_ptr<Lines>> outputs_;
  std::unique_ptr<Lines> scratch_;
  Operands operands_;
};

TensorType f16(Shape shape, Layout layout = Layout::kRowMajor) {
  return {DataType::kF16, std::move(shape), layout};
}
TensorType f32(Shape shape) {
  return {DataType::kF32, std::move(shape), Layout::kRowMajor};
}

std::vector<float> random_halves(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return to_float(to_half(uniform(random))); });
  return values;
}

/// Rounds a double to half through float. The second rounding matters only halfway between two halves.
double rounded(double value) {
  return static_cast<double>(to_float(to_half(static_cast<float>(value))));
}

/// Returns the distance between neighbouring halves at a value.
double step_at(double value) {
  return std::ldexp(1.0, std::max(std::ilogb(std::max(std::abs(value), 1e-9)), -14) - 10);
}

TEST(HalfKernel, ComputesInFloatAndRoundsOnce) {
  constexpr std::size_t kRows = 3;
  constexpr std::size_t kIn = 96;
  constexpr std::size_t kOut = 5;
  Use use("linear", {f16({kRows, kIn}), f16({kOut, kIn}), f16({kOut})}, {f16({kRows, kOut})}, {});
  const auto x = random_halves(kRows * kIn, 1);
  const auto w = random_halves(kOut * kIn, 2);
  const auto b = random_halves(kOut, 3);
  use.set_input(0, x);
  use.set_input(1, w);
  use.set_input(2, b);

  use.run();

  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t o = 0; o < kOut; ++o) {
      double sum = static_cast<double>(b[o]);
      for (std::size_t i = 0; i < kIn; ++i) {
        sum += static_cast<double>(x[r * kIn + i]) * static_cast<double>(w[o * kIn + i]);
      }
      EXPECT_NEAR(use.output(0, r * kOut + o), sum, 0.51 * step_at(sum));
    }
  }
}

/// Returns a sum over channels in kPartials pieces: each piece is rounded, and so is their sum.
double sum_of_rounded_pieces(const std::vector<double>& products, double once) {
  const auto size = static_cast<std::int64_t>(products.size());
  double sum = 0;
  for (std::int64_t p = 0; p < kPartials; ++p) {
    double piece = p == 0 ? once : 0;
    for (std::int64_t i = size * p / kPartials; i < size * (p + 1) / kPartials; ++i) {
      piece += products[static_cast<std::size_t>(i)];
    }
    sum += rounded(piece);
  }
  return rounded(sum);
}

TEST(HalfKernel, RoundsPartialSumsOfTheInputChannelsWhereAsked) {
  constexpr std::size_t kIn = 99;
  const auto x = random_halves(kIn, 4);
  const auto w = random_halves(kIn, 5);
  std::vector<double> products;
  for (std::size_t i = 0; i < kIn; ++i) {
    // Large pieces nearly cancel, so that their rounding is visible.
    const double sign = i < kIn / 2 ? 1 : -1;
    products.push_back(40 * sign * std::abs(static_cast<double>(x[i])) * std::abs(static_cast<double>(w[i])));
  }
  const auto run = [&](const Attributes& attributes) {
    Use use("linear", {f16({1, kIn}), f16({1, kIn}), f16({1})}, {f16({1, 1})}, attributes);
    std::vector<float> xs(kIn);
    std::vector<float> ws(kIn);
    for (std::size_t i = 0; i < kIn; ++i) {
      xs[i] = std::abs(x[i]) * (i < kIn / 2 ? 1.0F : -1.0F);
      ws[i] = 40 * std::abs(w[i]);
    }
    use.set_input(0, xs);
    use.set_input(1, ws);
    use.set_input(2, {0.5F});
    for (std::size_t i = 0; i < kIn; ++i) {
      products[i] = use.input(0, i) * use.input(1, i);
    }
    use.run();
    return use.output(0, 0);
  };

  const double whole = run({});
  const double pieces = run({{"partials", std::string{"half"}}});

  EXPECT_EQ(pieces, sum_of_rounded_pieces(products, 0.5));
  EXPECT_NE(pieces, whole);
  EXPECT_NEAR(pieces, whole, kPartials * step_at(40.0 * kIn / 4));
}

TEST(HalfKernel, CutsTheChannelsOfImages) {
  // With one pixel, a channels-last image is just its channels, and a convolution is a dense layer.
  constexpr std::int64_t kIn = 70;
  const TensorType image = f16({1, kIn, 1, 1}, Layout::kChannelsLast);
  const TensorType out = f16({1, 2, 1, 1}, Layout::kChannelsLast);
  Attributes attributes{{"stride", std::vector<std::int64_t>{1, 1}},
                        {"pad", std::vector<std::int64_t>{0, 0, 0, 0}},
                        {"dilation", std::vector<std::int64_t>{1, 1}},
                        {"groups", std::int64_t{1}},
                        {"partials", std::string{"half"}}};
  Use use("conv2d", {image, f16({2, kIn, 1, 1}), f16({2})}, {out}, attributes);
  const auto x = random_halves(kIn, 6);
  const auto w = random_halves(2 * kIn, 7);
  use.set_input(0, x);
  use.set_input(1, w);
  use.set_input(2, {0.25F, -3});

  use.run();

  for (std::size_t o = 0; o < 2; ++o) {
    std::vector<double> products;
    for (std::size_t i = 0; i < kIn; ++i) {
      products.push_back(static_cast<double>(x[i]) * static_cast<double>(w[o * kIn + i]));
    }
    EXPECT_EQ(use.output(0, o), sum_of_rounded_pieces(products, o == 0 ? 0.25 : -3.0)) << o;
  }
}

TEST(HalfKernel, UpdatesInPlace) {
  Use use("sgd", {f16({3}), f16({3}), f32({})}, {f16({3})}, {{"scale", 0.5}, {"weight_decay", 0.0}});
  use.update_in_place(0, 0);
  use.set_input(0, {1, 2, -3});
  use.set_input(1, {0.5F, -1, 4});
  use.set_input(2, {0.25F});

  use.run();

  EXPECT_EQ(use.input(0, 0), 1 - 0.25 * 0.5 * 0.5);
  EXPECT_EQ(use.input(0, 1), 2 + 0.25 * 0.5);
  EXPECT_EQ(use.input(0, 2), -3.5);
}

TEST(HalfKernel, RoundsAtRandomByNameStepAndElement) {
  constexpr std::int64_t kCount = 4000;
  const auto draw = [](std::uint64_t step, std::uint32_t replica, const std::string& name) {
    Use use("assign", {f16({kCount}), f32({kCount})}, {f16({kCount})}, {{"stochastic", name}});
    use.update_in_place(0, 0);
    use.set_input(1, std::vector<float>(kCount, 1.0F + 0.25F * 0x1p-10F));
    use.moment.step = step;
    use.moment.replica = replica;
    use.run();
    std::vector<double> drawn;
    for (std::size_t e = 0; e < kCount; ++e) {
      drawn.push_back(use.output(0, e));
    }
    return drawn;
  };

  const auto first = draw(7, 0, "w");

  double mean = 0;
  for (const double value : first) {
    EXPECT_TRUE(value == 1 || value == 1 + 0x1p-10);
    mean += value / kCount;
  }
  // A quarter of the values is rounded up: 1,000 of 4,000, with a standard deviation of 27.
  EXPECT_NEAR((mean - 1) / 0x1p-10, 0.25, 0.03);
  EXPECT_EQ(first, draw(7, 5, "w")) << "the same on every replica";
  EXPECT_NE(first, draw(8, 0, "w"));
  EXPECT_NE(first, draw(7, 0, "v"));
}

}  // namespace
}  // namespace poprun::half_kernel_test
