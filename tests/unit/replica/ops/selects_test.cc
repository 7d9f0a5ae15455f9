/// Every use that an operator declares to select (Operator::selects): each element of its results is one of an input,
/// or 0.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "case.h"
#include "tests/unit/replica/graph_runner.h"

namespace poprun::selects_test {
namespace {

using testing::all_cases;
using testing::Case;

/// Returns the use of a case in single precision.
Signature signature_of(const Case& c) {
  Signature signature{{}, {}, c.attributes};
  for (const testing::Input& input : c.inputs) {
    TensorType type = input.type;
    type.data = type.data == DataType::kF16 ? DataType::kF32 : type.data;
    signature.inputs.push_back(type);
  }
  signature.outputs = *find_operator(c.kind)->shape(signature);
  return signature;
}

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

/// Returns the results' elements that are neither 0 nor an element of an input.
std::size_t strangers(const Case& c, const Signature& signature) {
  Graph graph;
  Operation operation{.kind = c.kind, .inputs = {}, .outputs = {}, .attributes = c.attributes};
  const auto add = [&graph](const TensorType& type) {
    return graph.add_tensor({"t" + std::to_string(graph.tensors().size()), type, Role::kActivation});
  };
  std::ranges::transform(signature.inputs, std::back_inserter(operation.inputs), add);
  std::ranges::transform(signature.outputs, std::back_inserter(operation.outputs), add);
  testing::GraphRunner runner(graph);
  std::set<std::uint32_t> known = {bits_of(0.0F)};
  const testing::Arrays arrays = testing::inputs_of(c, 1);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    testing::put(runner.bytes(operation.inputs[i]), signature.inputs[i], arrays[i]);
    if (signature.inputs[i].data == DataType::kF32) {
      std::ranges::transform(runner.floats(operation.inputs[i]), std::inserter(known, known.end()), bits_of);
    }
  }
  runner.run(operation);
  std::ptrdiff_t count = 0;
  for (const TensorId output : operation.outputs) {
    count += std::ranges::count_if(runner.floats(output), [&](float value) { return !known.contains(bits_of(value)); });
  }
  return static_cast<std::size_t>(count);
}

TEST(Selects, GivesOnlyElementsOfTheInputs) {
  std::set<std::string> tried;
  for (const Case& c : all_cases()) {
    const Operator& op = *find_operator(c.kind);
    if (op.selects == nullptr) {
      continue;
    }
    const Signature signature = signature_of(c);
    if (op.selects(signature)) {
      tried.insert(c.kind);
      EXPECT_EQ(strangers(c, signature), 0U) << c.kind << " " << to_text(c.attributes);
    }
  }
  for (const Operator& op : all_operators()) {
    EXPECT_TRUE(op.selects == nullptr || tried.contains(op.kind))
        << op.kind << ": add a Case to tests/unit/replica/ops/cases";
  }
}

TEST(Selects, DoesNotHoldForSums) {
  const auto overlapping = std::ranges::find_if(all_cases(), [](const Case& c) {
    return c.kind == "maxpool2d_gradient" && c.attributes.integers("stride")[0] < c.attributes.integers("window")[0];
  });
  ASSERT_NE(overlapping, all_cases().end());
  const Signature signature = signature_of(*overlapping);
  EXPECT_FALSE(find_operator("maxpool2d_gradient")->selects(signature));
  EXPECT_GT(strangers(*overlapping, signature), 0U);
}

}  // namespace
}  // namespace poprun::selects_test
