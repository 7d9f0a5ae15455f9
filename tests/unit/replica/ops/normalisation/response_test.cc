/// Local response and group normalisation: forward against the definition in double, gradients against central
/// differences.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/layers/layers.h"
#include "tests/unit/replica/composition.h"
#include "tests/unit/replica/probe.h"

namespace poprun::response_test {
namespace {

using testing::Composition;
using testing::f32;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct LrnCase {
  std::int64_t C, size;
  double alpha, beta, bias;
};

/// The parameter is the case.
class Lrn : public ::testing::TestWithParam<LrnCase> {
 protected:
  Lrn()
      : probe_("lrn", {image({2, GetParam().C, 1, 2})},
               {{"size", GetParam().size},
                {"alpha", GetParam().alpha},
                {"beta", GetParam().beta},
                {"bias", GetParam().bias}},
               1),
        runner_(probe_.graph()) {
    probe_.randomise(runner_, 2.0F, 91);
  }
  Probe probe_;
  GraphRunner runner_;
};

TEST_P(Lrn, ForwardAgreesWithTheDefinition) {
  const LrnCase& c = GetParam();
  runner_.run(probe_.operation());
  const auto x = runner_.floats(probe_.operation().inputs[0]);
  const auto y = runner_.floats(probe_.operation().outputs[0]);
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(y.size()); ++k) {
    const std::int64_t channel = k % c.C;
    double squares = 0;
    for (std::int64_t i = 0; i < c.C; ++i) {
      // In ONNX, a window is from channel - floor((size - 1) / 2) to channel + ceil((size - 1) / 2).
      if (i >= channel - (c.size - 1) / 2 && i <= channel + (c.size - 1 + 1) / 2) {
        const auto value = static_cast<double>(x[at(k - channel + i)]);
        squares += value * value;
      }
    }
    const double s = c.bias + c.alpha / static_cast<double>(c.size) * squares;
    EXPECT_NEAR(y[at(k)], static_cast<double>(x[at(k)]) / std::pow(s, c.beta), 2e-6);
  }
}

TEST_P(Lrn, GradientAgreesWithDifferences) {
  probe_.expect_gradients(runner_, 0.01F, 2e-3);
}

INSTANTIATE_TEST_SUITE_P(Windows, Lrn,
                         ::testing::Values(LrnCase{7, 5, 0.9, 0.75, 1.0}, LrnCase{6, 3, 0.5, 0.5, 2.0},
                                           LrnCase{6, 4, 2.0, 0.75, 1.0}, LrnCase{5, 2, 2.0, 1.3, 0.7},
                                           LrnCase{3, 1, 1.0, 0.75, 1.0},
                                           // The first window is wider than the number of channels.
                                           LrnCase{3, 9, 1.0, 0.75, 1.0}, LrnCase{40, 5, 1e-4, 0.75, 1.0}));

struct GroupCase {
  TensorType x;
  std::int64_t groups;
};

/// The parameter is the case.
class GroupNorm : public ::testing::TestWithParam<GroupCase> {
 protected:
  GroupNorm()
      : C_(GetParam().x.shape[1]),
        norm_({GetParam().x, f32({C_}), f32({C_})},
              [](Builder& builder, const std::vector<TensorId>& x) {
                return layers::group_norm(builder, "y", x[0], x[1], x[2], GetParam().groups, 1e-2);
              }),
        runner_(norm_.graph()) {
    norm_.randomise(runner_, 1.0F, 92);
  }

  /// Returns the image and channel of the element at memory position k of x.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> place(std::int64_t k) const {
    const TensorType& x = GetParam().x;
    const std::int64_t pixels = x.elements() / x.shape[0] / C_;
    return {k / (C_ * pixels), x.layout == Layout::kChannelsLast ? k % C_ : k / pixels % C_};
  }

  std::int64_t C_;
  Composition norm_;
  GraphRunner runner_;
};

TEST_P(GroupNorm, ForwardAgreesWithTheDefinition) {
  norm_.run_forward(runner_);
  EXPECT_EQ(norm_.graph().tensor(norm_.y()).type, GetParam().x);
  const auto x = runner_.floats(norm_.input(0));
  const auto y = runner_.floats(norm_.y());
  const auto n = static_cast<std::int64_t>(x.size());
  const std::int64_t per_group = C_ / GetParam().groups;
  for (std::int64_t k = 0; k < n; ++k) {
    const auto [picture, channel] = place(k);
    double sum = 0, squares = 0, count = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto [other_picture, other_channel] = place(i);
      if (other_picture == picture && other_channel / per_group == channel / per_group) {
        const auto value = static_cast<double>(x[at(i)]);
        sum += value;
        squares += value * value;
        ++count;
      }
    }
    const double mean = sum / count;
    const double normalised = (static_cast<double>(x[at(k)]) - mean) / std::sqrt(squares / count - mean * mean + 1e-2);
    EXPECT_NEAR(y[at(k)],
                normalised * static_cast<double>(runner_.floats(norm_.input(1))[at(channel)]) +
                    static_cast<double>(runner_.floats(norm_.input(2))[at(channel)]),
                1e-5);
  }
}

TEST_P(GroupNorm, GradientAgreesWithDifferences) {
  norm_.expect_gradients(runner_, 0.01F, 3e-3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, GroupNorm,
                         ::testing::Values(GroupCase{image({2, 6, 2, 3}), 3}, GroupCase{image({2, 4, 3, 2}), 1},
                                           GroupCase{image({2, 3, 2, 2}), 3}, GroupCase{f32({2, 4, 5}), 2},
                                           GroupCase{f32({2, 3, 2, 2}), 3}));

TEST(GroupNormLayer, RefusesGroupsThatDoNotDivideByName) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  const TensorId x = graph.add_tensor({"x", image({1, 6, 2, 2}), Role::kActivation});

  layers::group_norm(builder, "norm", x, 4);

  ASSERT_FALSE(builder.status());
  EXPECT_EQ(builder.status().error().message,
            "norm: group normalisation needs f32[N,C,...] and a number of groups that divides C; given: "
            "f32[1,6,2,2]{nhwc} and 4 groups");
}

}  // namespace
}  // namespace poprun::response_test
