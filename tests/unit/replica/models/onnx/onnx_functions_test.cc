/// Functions that a model defines: what their calls become, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/onnx/functions.h"
#include "replica/tools/onnx_check/onnx_check.h"
#include "tests/unit/replica/onnx_models.h"

namespace poprun::onnx_functions_test {
namespace {

using onnx_import::Constant;
using onnx_import::OnnxModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OnnxBuilder;

constexpr const char* kDomain = "mine";

/// Adds a function of domain "mine" without nodes.
::onnx::FunctionProto& function(OnnxBuilder& b, const std::string& name, const std::vector<std::string>& inputs,
                                const std::vector<std::string>& outputs) {
  auto& added = *b.model.add_functions();
  added.set_name(name);
  added.set_domain(kDomain);
  for (const std::string& input : inputs) {
    added.add_input(input);
  }
  for (const std::string& output : outputs) {
    added.add_output(output);
  }
  for (const auto& import : b.model.opset_import()) {
    *added.add_opset_import() = import;
  }
  return added;
}

::onnx::NodeProto& node(::onnx::FunctionProto& function, const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& domain = "") {
  auto& added = *function.add_node();
  added.set_op_type(op);
  added.set_domain(domain);
  for (const std::string& input : inputs) {
    added.add_input(input);
  }
  for (const std::string& output : outputs) {
    added.add_output(output);
  }
  return added;
}

/// Returns a model x [2] -> y that imports the domain of the functions.
OnnxBuilder model() {
  OnnxBuilder b;
  b.model.set_ir_version(8);
  auto& import = *b.model.add_opset_import();
  import.set_domain(kDomain);
  import.set_version(1);
  b.input("x", {2}).output("y", {2});
  return b;
}

::onnx::NodeProto& call(OnnxBuilder& b, const std::string& name, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs) {
  auto& node = b.node(name, inputs, outputs);
  node.set_domain(kDomain);
  return node;
}

std::string refusal(const OnnxBuilder& b) {
  const auto parsed = OnnxModel::parse(b.bytes());
  return parsed ? "accepted" : parsed.error().message;
}

std::vector<float> run(const OnnxBuilder& b, const std::vector<float>& x) {
  const auto parsed = OnnxModel::parse(b.bytes());
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  const auto outputs = run_onnx(*parsed, {Constant::of_reals(x, {2})}, "mk2");
  EXPECT_TRUE(outputs) << (outputs ? "" : outputs.error().message);
  return outputs ? outputs->at(0).reals : std::vector<float>{};
}

void refer(::onnx::NodeProto& node, const std::string& name, const std::string& to) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(::onnx::AttributeProto::FLOAT);
  attribute.set_ref_attr_name(to);
}

TEST(OnnxFunctions, ACallIsItsFunctionsNodesWithTheCallsAttributes) {
  OnnxBuilder b = model();
  auto& leaky = function(b, "Leaky", {"a"}, {"b"});
  leaky.add_attribute("slope");
  node(leaky, "Neg", {"a"}, {"t"});
  refer(node(leaky, "LeakyRelu", {"t"}, {"b"}), "alpha", "slope");
  auto& given = *call(b, "Leaky", {"x"}, {"h"}).add_attribute();
  given.set_name("slope");
  given.set_type(::onnx::AttributeProto::FLOAT);
  given.set_f(0.5F);
  call(b, "Leaky", {"h"}, {"y"});  // Without the attribute: LeakyRelu's own default, 0.01.

  EXPECT_THAT(run(b, {2, -3}), ElementsAre(1, -0.03F));
}

TEST(OnnxFunctions, FunctionsCallFunctionsAndNamesStayApart) {
  OnnxBuilder b = model();
  auto& inner = function(b, "Twice", {"a"}, {"b"});
  node(inner, "Add", {"a", "a"}, {"t"});
  node(inner, "Identity", {"t"}, {"b"});
  auto& outer = function(b, "Fourfold", {"a"}, {"b"});
  node(outer, "Twice", {"a"}, {"t"}, kDomain);
  node(outer, "Twice", {"t"}, {"b"}, kDomain);
  b.node("Neg", {"x"}, {"t"});
  call(b, "Fourfold", {"t"}, {"y"});

  EXPECT_THAT(run(b, {1, -2}), ElementsAre(-4, 8));
}

TEST(OnnxFunctions, NodesWithinACallAreNamedAfterIt) {
  OnnxBuilder b = model();
  node(function(b, "Block", {"a"}, {"b"}), "Neg", {"a"}, {"b"}).set_name("negate");
  call(b, "Block", {"x"}, {"h"}).set_name("first");
  call(b, "Block", {"h"}, {"y"}).set_name("first");

  ASSERT_TRUE(onnx_import::expand_functions(b.model));

  ASSERT_EQ(b.graph().node_size(), 2);
  EXPECT_EQ(b.graph().node(0).name(), "first/negate");
  EXPECT_EQ(b.graph().node(1).name(), "first~2/negate");
  EXPECT_TRUE(b.model.functions().empty());
}

TEST(OnnxFunctions, WhatIsPassedOnAndWhatIsLeftOutStaysSo) {
  OnnxBuilder b = model();
  auto& clip = function(b, "Cap", {"a", "low", "high"}, {"b", "a"});
  node(clip, "Clip", {"a", "low", "high"}, {"b"});
  b.weight("one", {}, {1});
  call(b, "Cap", {"x", "", "one"}, {"capped", "same"});
  b.node("Sub", {"same", "capped"}, {"y"});

  EXPECT_THAT(run(b, {3, -5}), ElementsAre(2, 0));
}

TEST(OnnxFunctions, BranchesOfAnIfAreExpandedToo) {
  OnnxBuilder b = model();
  auto& pick = function(b, "Pick", {"a", "c"}, {"b"});
  auto& branches = node(pick, "If", {"c"}, {"b"});
  for (const auto& [name, op] : {std::pair{"then_branch", "Neg"}, std::pair{"else_branch", "Abs"}}) {
    auto& attribute = *branches.add_attribute();
    attribute.set_name(name);
    attribute.set_type(::onnx::AttributeProto::GRAPH);
    auto& graph = *attribute.mutable_g();
    graph.set_name(name);
    auto& only = *graph.add_node();
    only.set_op_type(op);
    only.add_input("a");
    only.add_output("r");
    auto& output = *graph.add_output();
    output.set_name("r");
    output.mutable_type()->mutable_tensor_type()->set_elem_type(::onnx::TensorProto::FLOAT);
  }
  auto& condition = *b.graph().add_initializer();
  condition.set_name("yes");
  condition.set_data_type(::onnx::TensorProto::BOOL);
  condition.add_int32_data(1);
  call(b, "Pick", {"x", "yes"}, {"y"});

  EXPECT_THAT(run(b, {2, -3}), ElementsAre(-2, 3));
}

TEST(OnnxFunctions, AFunctionThatCallsItselfIsRefused) {
  OnnxBuilder b = model();
  node(function(b, "Ping", {"a"}, {"b"}), "Pong", {"a"}, {"b"}, kDomain);
  node(function(b, "Pong", {"a"}, {"b"}), "Ping", {"a"}, {"b"}, kDomain);
  call(b, "Ping", {"x"}, {"y"});
  EXPECT_EQ(refusal(b), "function 'Ping' calls itself");
}

TEST(OnnxFunctions, CallsThatMultiplyBeyondAnyModelAreRefused) {
  OnnxBuilder b = model();
  node(function(b, "f0", {"a"}, {"b"}), "Neg", {"a"}, {"b"});
  for (int depth = 1; depth < 40; ++depth) {
    auto& twice = function(b, "f" + std::to_string(depth), {"a"}, {"b"});
    const std::string below = "f" + std::to_string(depth - 1);
    node(twice, below, {"a"}, {"t"}, kDomain);
    node(twice, below, {"t"}, {"b"}, kDomain);
  }
  call(b, "f39", {"x"}, {"y"});
  EXPECT_THAT(refusal(b), HasSubstr("more than 262144 nodes"));
}

TEST(OnnxFunctions, CallsThatMultiplyAndMakeNoNodesAreRefusedToo) {
  OnnxBuilder b = model();
  function(b, "f0", {"a"}, {"a"});
  for (int depth = 1; depth < 40; ++depth) {
    auto& twice = function(b, "f" + std::to_string(depth), {"a"}, {"a"});
    const std::string below = "f" + std::to_string(depth - 1);
    node(twice, below, {"a"}, {}, kDomain);
    node(twice, below, {"a"}, {}, kDomain);
  }
  call(b, "f39", {"x"}, {"y"});
  EXPECT_THAT(refusal(b), HasSubstr("more than 262144 nodes and calls"));
}

TEST(OnnxFunctions, WhatLaterVersionsOfOnnxGiveAFunctionIsNotDropped) {
  for (const auto& [number, what] :
       {std::pair{11, "attribute defaults"}, std::pair{12, "accepted"}, std::pair{13, "an overload"}}) {
    OnnxBuilder b = model();
    auto& later = function(b, "Later", {"a"}, {"b"});
    node(later, "Neg", {"a"}, {"b"});
    later.mutable_unknown_fields()->AddLengthDelimited(number, "x");
    call(b, "Later", {"x"}, {"y"});
    EXPECT_THAT(refusal(b), HasSubstr(what));
  }
}

TEST(OnnxFunctions, TooManyInputsAreRefusedByTheFunctionsName) {
  OnnxBuilder b = model();
  node(function(b, "One", {"a"}, {"b"}), "Neg", {"a"}, {"b"});
  call(b, "One", {"x", "x"}, {"y"});
  EXPECT_EQ(refusal(b), "function 'One' has 1 input and 1 output, but is called with 2 inputs and 1 output");
}

TEST(OnnxFunctions, AnOperatorOfAnotherOpsetThanTheModelsIsRefused) {
  OnnxBuilder b = model();
  auto& old = function(b, "Old", {"a"}, {"b"});
  old.mutable_opset_import(0)->set_version(6);
  node(old, "Neg", {"a"}, {"t"});
  node(old, "Dropout", {"t"}, {"b"});
  call(b, "Old", {"x"}, {"y"});
  EXPECT_THAT(refusal(b), HasSubstr("a function of opset 6 in a model of opset 13, which "
                                    "defines Neg differently"));
}

}  // namespace
}  // namespace poprun::onnx_functions_test
