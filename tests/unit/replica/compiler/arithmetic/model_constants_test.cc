/// Tables of constants that a model brings, and tensors that it keeps in float32.

#include <algorithm>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "replica/compiler/arithmetic/half_storage.h"
#include "replica/models/layers/layers.h"
#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/training_job.h"

namespace poprun {
namespace {

using testing::GraphRunner;

constexpr std::int64_t kPositions = 2048;
constexpr std::int64_t kPairs = 32;

double frequency(std::int64_t pair) {
  return std::pow(10'000, -static_cast<double>(pair) / kPairs);
}

/// Compares the angles of a rotary embedding (Su et al., "RoFormer", arXiv:2104.09864), position times frequency, in a
/// half-precision job with those in float64.
class RotaryAngles : public ::testing::Test {
 protected:
  RotaryAngles() { graph_.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}}; }

  TensorId product() {
    std::vector<double> positions;
    for (std::int64_t p = 0; p < kPositions; ++p) {
      positions.push_back(static_cast<double>(p));
    }
    std::vector<double> frequencies;
    for (std::int64_t k = 0; k < kPairs; ++k) {
      frequencies.push_back(frequency(k));
    }
    return builder_.add_one("mul",
                            {builder_.constant("positions", {kPositions, 1}, positions),
                             builder_.constant("frequencies", {1, kPairs}, frequencies)},
                            {}, "angles");
  }

  /// Returns the largest error of the tensor `angles`, in radians.
  double largest_error(TensorId angles) {
    EXPECT_TRUE(builder_.status()) << builder_.status().error().message;
    use_half(graph_, {.half = true});
    GraphRunner runner(graph_);
    runner.run(graph_.functions[0].regions[0].operations);
    runner.run(graph_.functions[1].regions[0].operations);
    double largest = 0;
    for (std::int64_t p = 0; p < kPositions; ++p) {
      for (std::int64_t k = 0; k < kPairs; ++k) {
        const double exact = static_cast<double>(p) * frequency(k);
        const double had = value(runner, angles, p * kPairs + k);
        largest = std::max(largest, std::abs(had - exact));
      }
    }
    return largest;
  }

  double value(GraphRunner& runner, TensorId id, std::int64_t element) {
    const auto i = static_cast<std::size_t>(element);
    if (graph_.tensor(id).type.data == DataType::kF32) {
      return static_cast<double>(runner.floats(id)[i]);
    }
    Half half{};
    std::memcpy(&half, runner.bytes(id) + i * sizeof(Half), sizeof(Half));
    return static_cast<double>(to_float(half));
  }

  Graph graph_;
  Builder builder_{graph_, {1, 0}, ""};
};

TEST_F(RotaryAngles, AreExactAsATable) {
  std::vector<double> angles;
  for (std::int64_t p = 0; p < kPositions; ++p) {
    for (std::int64_t k = 0; k < kPairs; ++k) {
      angles.push_back(static_cast<double>(p) * frequency(k));
    }
  }
  EXPECT_LT(largest_error(builder_.constant("angles", {kPositions, kPairs}, angles)), 1e-3);
}

TEST_F(RotaryAngles, AreExactWhereTheModelKeepsThemInFloat32) {
  const TensorId angles = product();
  builder_.keep_f32(angles);

  EXPECT_LT(largest_error(angles), 1e-3);
}

TEST_F(RotaryAngles, AreOffByMoreThanATenthOtherwise) {
  EXPECT_GT(largest_error(product()), 0.1);
}

/// Returns a linear classifier whose logits are multiplied by `factors` f32[10].
testing::Forward scaled_by(TensorId (*factors)(Builder&)) {
  return [factors](Builder& builder, const std::vector<TensorId>& in, bool /*training*/) {
    const TensorId x = layers::flatten(builder, "x",
                                       layers::normalize(builder, in[0], static_cast<double>(testing::kMean),
                                                         static_cast<double>(testing::kDeviation)));
    const TensorId logits =
        builder.add_one("mul", {layers::linear(builder, "fc", x, 10), factors(builder)}, {}, "logits");
    const auto outputs = builder.add("softmax_cross_entropy", {logits, in[1]}, {}, {"loss", "correct", "count"});
    return ModelOutputs{outputs[0], outputs[1], outputs[2], logits};
  };
}

TensorId table(Builder& builder) {
  return builder.constant("factors", {10}, std::vector<double>(10, 1.5));
}
TensorId filled(Builder& builder) {
  return builder.add_one("fill", {}, {{"shape", Shape{10}}, {"value", 1.5}}, "factors");
}

TEST(AJob, TrainsAndEvaluatesWithTheModelsConstants) {
  const proto::RunConfig job = testing::config(2, 4);

  const auto brought = testing::run(job, {}, testing::kToTheEnd, scaled_by(table));
  const auto made = testing::run(job, {}, testing::kToTheEnd, scaled_by(filled));

  const auto& records = brought.records[0];
  EXPECT_EQ(records.tensors, made.records[0].tensors);
  EXPECT_EQ(records.evaluations.at(0).loss, made.records[0].evaluations.at(0).loss);
  EXPECT_FALSE(records.tensors.contains("factors")) << "is no weight";
}

TEST(AJob, ThatStartsFromAFileOfWeightsHasTheModelsConstantsToo) {
  const proto::RunConfig job = testing::config(2, 4);
  const auto first = testing::run(job, {}, testing::kToTheEnd, scaled_by(table));
  HostWeights file;
  for (const auto& [name, values] : first.records[0].tensors) {
    const auto bytes = std::as_bytes(std::span(values));
    file[name].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());  // NOLINT: bytes.
  }

  const auto brought = testing::run(job, file, testing::kToTheEnd, scaled_by(table));
  const auto made = testing::run(job, file, testing::kToTheEnd, scaled_by(filled));

  EXPECT_EQ(brought.records[0].tensors, made.records[0].tensors);
  EXPECT_NE(brought.records[0].tensors, first.records[0].tensors);
}

}  // namespace
}  // namespace poprun
