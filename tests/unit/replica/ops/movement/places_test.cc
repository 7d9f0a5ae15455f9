/// Gathering and scattering by places: values against ONNX's published examples and hand-made ones, gradients against
/// central differences.

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using testing::f32;
using testing::GraphRunner;
using testing::Probe;

struct PlacesCase {
  std::string way;  ///< "elements" or "nd".
  Shape x, indices;
  std::int64_t number;  ///< axis, or batch_dims.
  std::vector<std::int32_t> index_values;
  Shape y;
  std::vector<float> gathered;   ///< For x = 1, 2, 3, ...
  std::vector<float> scattered;  ///< For -1, -2, -3, ... scattered into x.
  std::vector<float> added;      ///< For -1, -2, -3, ... added to x.
};

class PlacesTest : public ::testing::TestWithParam<PlacesCase> {
 protected:
  static Probe probe(const std::string& what, const std::string& reduction) {
    const PlacesCase& c = GetParam();
    std::vector<TensorType> inputs = {f32(c.x), {DataType::kI32, c.indices, {}}};
    Attributes attributes{{c.way == "nd" ? "batch_dims" : "axis", c.number}};
    if (what == "scatter") {
      inputs.push_back(f32(c.y));
      attributes.set("reduction", reduction);
    }
    return {what + "_" + c.way, inputs, attributes, 1};
  }

  /// Fills x, indices and updates from the case, and dy at random.
  static void fill(Probe& probe, GraphRunner& runner) {
    probe.randomise(runner, 1.0F, 121);
    const auto& inputs = probe.operation().inputs;
    std::memcpy(runner.bytes(inputs[1]), GetParam().index_values.data(),
                GetParam().index_values.size() * sizeof(std::int32_t));
    float next = 0;
    for (float& x : runner.floats(inputs[0])) {
      x = ++next;
    }
    if (inputs.size() == 3) {
      next = 0;
      for (float& x : runner.floats(inputs[2])) {
        x = --next;
      }
    }
  }

  static void expect(const std::string& what, const std::string& reduction, const std::vector<float>& expected) {
    Probe places = probe(what, reduction);
    GraphRunner runner(places.graph());
    fill(places, runner);
    runner.run(places.operation());
    EXPECT_THAT(runner.floats(places.operation().outputs[0]), ::testing::ElementsAreArray(expected))
        << what << " " << reduction;
    if (what == "gather") {
      EXPECT_EQ(places.type(places.operation().outputs[0]).shape, GetParam().y);
    }
    places.expect_gradients(runner, 0.5F, 1e-4);
  }
};

TEST_P(PlacesTest, Gather) {
  expect("gather", "", GetParam().gathered);
}
TEST_P(PlacesTest, ScatterReplaces) {
  expect("scatter", "none", GetParam().scattered);
}
TEST_P(PlacesTest, ScatterAdds) {
  expect("scatter", "add", GetParam().added);
}

INSTANTIATE_TEST_SUITE_P(Cases, PlacesTest,
                         ::testing::Values(PlacesCase{.way = "elements",
                                                      .x = {2, 3},
                                                      .indices = {2, 2},
                                                      .number = 1,
                                                      .index_values = {1, 0, 0, -1},
                                                      .y = {2, 2},
                                                      .gathered = {2, 1, 4, 6},
                                                      .scattered = {-2, -1, 3, -3, 5, -4},
                                                      .added = {-1, 1, 3, 1, 5, 2}},
                                           // The indices have fewer columns than x, and one row is out of range.
                                           PlacesCase{.way = "elements",
                                                      .x = {3, 3},
                                                      .indices = {2, 2},
                                                      .number = 0,
                                                      .index_values = {1, 2, 3, 0},
                                                      .y = {2, 2},
                                                      .gathered = {4, 8, 0, 2},
                                                      .scattered = {1, -4, 3, -1, 5, 6, 7, -2, 9},
                                                      .added = {1, -2, 3, 3, 5, 6, 7, 6, 9}},
                                           PlacesCase{.way = "nd",
                                                      .x = {2, 2},
                                                      .indices = {2, 2},
                                                      .number = 0,
                                                      .index_values = {0, 0, 1, 1},
                                                      .y = {2},
                                                      .gathered = {1, 4},
                                                      .scattered = {-1, 2, 3, -2},
                                                      .added = {0, 2, 3, 2}},
                                           PlacesCase{.way = "nd",
                                                      .x = {3, 2},
                                                      .indices = {2, 1},
                                                      .number = 0,
                                                      .index_values = {-1, 0},
                                                      .y = {2, 2},
                                                      .gathered = {5, 6, 1, 2},
                                                      .scattered = {-3, -4, 3, 4, -1, -2},
                                                      .added = {-2, -2, 3, 4, 4, 4}},
                                           PlacesCase{.way = "nd",
                                                      .x = {2, 2, 2},
                                                      .indices = {2, 1},
                                                      .number = 1,
                                                      .index_values = {1, 0},
                                                      .y = {2, 2},
                                                      .gathered = {3, 4, 5, 6},
                                                      .scattered = {1, 2, -1, -2, -3, -4, 7, 8},
                                                      .added = {1, 2, 2, 2, 2, 2, 7, 8}}));

TEST(ScatterElements, AddsToAPlaceThatIsNamedTwice) {
  Probe probe("scatter_elements", {f32({3}), {DataType::kI32, {3}, {}}, f32({3})},
              {{"axis", std::int64_t{0}}, {"reduction", std::string{"add"}}}, 1);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 122);
  const std::vector<std::int32_t> indices = {1, 1, 2};
  std::memcpy(runner.bytes(probe.operation().inputs[1]), indices.data(), 12);
  probe.expect_gradients(runner, 0.5F, 1e-4);
}

TEST(PlacesShape, RefusesWhatDoesNotFit) {
  const TensorType indices{DataType::kI32, {2, 3}, {}};
  const auto elements = [&](const Shape& x, std::int64_t axis) {
    return find_operator("gather_elements")->shape({{f32(x), indices}, {}, {{"axis", axis}}});
  };
  EXPECT_TRUE(elements({2, 1}, 1));
  EXPECT_FALSE(elements({1, 3}, 1));
  EXPECT_FALSE(elements({2, 3, 1}, 1));
  const auto nd = [&](const Shape& x, std::int64_t batch_dims) {
    return find_operator("gather_nd")->shape({{f32(x), indices}, {}, {{"batch_dims", batch_dims}}});
  };
  EXPECT_TRUE(nd({4, 4, 4}, 0));
  EXPECT_FALSE(nd({4, 4}, 0));
  EXPECT_TRUE(nd({2, 4, 4, 4}, 1));
  EXPECT_FALSE(nd({3, 4, 4, 4}, 1));
  EXPECT_FALSE(nd({2, 3, 4, 4, 4}, 2));
}

}  // namespace
}  // namespace poprun
