/// Errors that Builder reports for mistakes in a model's source file, with the tensor that they concern.

#include "replica/ops/builder/builder.h"

#include <gtest/gtest.h>

namespace poprun {
namespace {

/// A graph with the beginning of a model.
class Model : public ::testing::Test {
 protected:
  Model() {
    graph_.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
    x_ = graph_.add_tensor({"x", {DataType::kF32, {2, 3}, {}}, Role::kStream});
  }

  void expect_bug(const std::string& message) const {
    ASSERT_FALSE(builder_.status());
    EXPECT_EQ(builder_.status().error().code, ErrorCode::kBug);
    EXPECT_EQ(builder_.status().error().message, message);
  }

  Graph graph_;
  TensorId x_{};
  Builder builder_{graph_, {1, 0}, "net/", Naming::kModel};
};

TEST_F(Model, WithAMisspeltOperatorIsToldTheTensorAndTheNearestOperator) {
  builder_.add_one("gelo", {x_}, {}, "block.act");

  expect_bug("net/block.act: operator 'gelo' is not supported; did you mean gelu?");
}

TEST_F(Model, WithAMisspeltUpdateIsToldToo) {
  builder_.update("assing", {x_, x_}, {}, {x_});

  expect_bug("x: operator 'assing' is not supported; did you mean assign?");
}

TEST_F(Model, ThatNamesTooFewOutputsIsToldTheirNumber) {
  builder_.add("split", {x_}, {{"axis", std::int64_t{1}}, {"sizes", Shape{1, 2}}}, {"left"});

  expect_bug("net/left: operator 'split' has 2 outputs, but the model names 1");
}

TEST_F(Model, WithTwoTensorsOfOneNameIsToldIt) {
  builder_.add_one("relu", {x_}, {}, "y");
  builder_.add_one("neg", {x_}, {}, "y");

  expect_bug("net/y: this name is taken; operator 'neg' would create a second tensor with this name");
}

TEST_F(Model, GivesWayToNamesThatAFileGives) {
  graph_.reserve({"net/y", "w"});

  const TensorId y = builder_.add_one("relu", {x_}, {}, "y");
  const TensorId w = builder_.variable("w", {DataType::kF32, {3}, {}}, Role::kParameter, {});

  EXPECT_TRUE(builder_.status());
  EXPECT_EQ(graph_.tensor(y).name, "net/y.1");
  EXPECT_EQ(graph_.tensor(w).name, "w") << "the variable that the file calls so";
}

TEST_F(Model, NeedNotKnowWhatTheCompilerCallsItsTensors) {
  Builder compiler(graph_, {1, 0}, "");
  const TensorId first = compiler.add_one("relu", {x_}, {}, "x");
  const TensorId second = compiler.add_one("relu", {x_}, {}, "x");
  const std::vector<TensorId> streamed = compiler.stream_in("control", {"x"}, {TensorType{DataType::kF32, {}, {}}});

  EXPECT_TRUE(compiler.status());
  EXPECT_EQ(graph_.tensor(first).name, "x.1");
  EXPECT_EQ(graph_.tensor(second).name, "x.2");
  EXPECT_EQ(graph_.tensor(streamed[0]).name, "x.3");
}

TEST_F(Model, WithOneNameForTwoKindsOfVariableIsToldBoth) {
  builder_.variable("w", {DataType::kF32, {3}, {}}, Role::kParameter, {});
  builder_.variable("w", {DataType::kF32, {4}, {}}, Role::kParameter, {});

  expect_bug("w: already exists as f32[3] parameter; cannot redefine it as f32[4] parameter");
}

TEST_F(Model, WithAConstantOfTooFewValuesIsTold) {
  builder_.constant("table", {2, 2}, {1, 2, 3});

  ASSERT_FALSE(builder_.status());
  EXPECT_EQ(builder_.status().error().message,
            "table: constant needs shape=[..] and values=[..], one per element, and takes no input; "
            "given: () shape=[2,2] values=[1.0,2.0,3.0]");
}

TEST_F(Model, GetsOnlyItsFirstErrorAndNoOperationBehindIt) {
  builder_.add_one("gelo", {x_}, {}, "y");
  builder_.add_one("rellu", {x_}, {}, "z");
  builder_.keep_f32(builder_.constant("table", {1}, {0.5}));

  expect_bug("net/y: operator 'gelo' is not supported; did you mean gelu?");
  EXPECT_TRUE(builder_.operations().empty());
  EXPECT_FALSE(graph_.has("table"));
}

TEST_F(Model, GivesOperationsTheLayerThatWasNamedLast) {
  builder_.layer("embeddings", /*counted=*/false);
  builder_.add_one("relu", {x_}, {}, "a");
  builder_.layer("block");
  builder_.add_one("relu", {x_}, {}, "b");
  Builder again(graph_, {1, 0}, "again/");
  again.layer("block");
  again.add_one("relu", {x_}, {}, "b");

  EXPECT_EQ(graph_.layers, (std::vector<Layer>{{"embeddings", false}, {"block", true}}));
  std::vector<std::int32_t> layers;
  for (const Operation& operation : builder_.operations()) {
    layers.push_back(operation.origin.layer);
  }
  EXPECT_EQ(layers, (std::vector<std::int32_t>{0, 1, 1}));
}

TEST_F(Model, WithALayerThatIsCountedInPlacesIsToldIt) {
  builder_.layer("block");
  builder_.layer("block", /*counted=*/false);

  expect_bug("block: is a counted layer in one place and an uncounted one in another");
}

}  // namespace
}  // namespace poprun
