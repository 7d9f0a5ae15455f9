// DEPS: poprun::replica_models_onnx
#include <string_view>

#include "replica/models/onnx/job_model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/replica/onnx_models.h"

using namespace poprun;  // NOLINT: a program of one function.

/// Imports a model that parses as a job's model: the only failure allowed is a refusal in one line.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);  // NOLINT: its bytes.
  const auto model = onnx_import::OnnxModel::parse(bytes);
  if (!model) {
    POPRUN_CHECK(model.error().message.find('\n') == std::string::npos);
    return 0;
  }
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"run", {{1, {}}}}};
  Builder builder(graph, {1, 0}, "");
  onnx_import::ImportOptions options;
  for (std::size_t i = 0; i < model->inputs().size(); ++i) {
    const auto& input = model->inputs()[i];
    Shape shape = input.dims;
    std::int64_t elements = 1;
    for (std::int64_t& d : shape) {
      d = d < 1 || d > 64 ? 2 : d;
      elements *= d;
    }
    if (elements > (1 << 16)) {
      return 0;
    }
    const DataType type = onnx_import::is_integer(input.element) ? DataType::kI32 : DataType::kF32;
    options.inputs.push_back(
        graph.add_tensor({"input" + std::to_string(i), {type, shape, Layout::kRowMajor}, Role::kStream}));
  }
  options.training = size % 2 == 0;
  const auto imported = onnx_import::import_model(builder, *model, options);
  if (!imported) {
    POPRUN_CHECK(imported.error().code == ErrorCode::kUsage || imported.error().code == ErrorCode::kData);
    POPRUN_CHECK(imported.error().message.find('\n') == std::string::npos);
  } else {
    POPRUN_CHECK(!imported->outputs.empty());
  }
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using poprun::testing::OnnxBuilder;
  std::vector<std::vector<std::uint8_t>> seeds;
  const auto add = [&seeds](const OnnxBuilder& b) {
    const std::string bytes = b.bytes();
    seeds.emplace_back(bytes.begin(), bytes.end());
  };
  add(poprun::testing::perceptron());
  for (const char* op : {"Conv", "ConvTranspose"}) {
    OnnxBuilder b;
    b.input("x", {1, 2, 4, 4}).output("y", {1, 2, 2, 2});
    b.weight("w", {2, 2, 3, 3}, std::vector<float>(36, 0.5F));
    OnnxBuilder::set_integer(b.node(op, {"x", "w"}, {"y"}), "group", 1);
    add(b);
  }
  for (const char* op : {"Relu", "Softmax", "GlobalAveragePool", "Transpose", "Flatten", "Shape", "ReduceSum",
                         "Squeeze", "ArgMax", "Cast", "Split"}) {
    OnnxBuilder b;
    b.input("x", {1, 2, 4, 4}).output("y", {1, 2, 4, 4});
    OnnxBuilder::set_integer(b.node(op, {"x"}, {"y"}), "axis", 1);
    add(b);
  }
  for (const char* op :
       {"Reshape", "Expand", "Tile", "Unsqueeze", "Gather", "Pad", "Concat", "ReduceSum", "ConstantOfShape", "Slice"}) {
    OnnxBuilder b;
    b.input("x", {2, 2}).output("y", {2, 2}).integers("s", {2}, {1, 2});
    b.node(op, {"x", "s", "s"}, {"y"});
    add(b);
  }
  for (const char* op : {"GatherElements", "GatherND", "ScatterElements", "ScatterND", "Dropout"}) {
    OnnxBuilder b;
    b.input("x", {2, 2}).output("y", {2, 2}).integers("i", {2, 2}, {0, 1, 1, 0});
    b.weight("u", {2, 2}, {1, 2, 3, 4});
    b.node(op, {"x", "i", "u"}, {"y"});
    add(b);
  }
  for (const char* equation : {"ij,jk->ik", "i...,...j", "ij,ij->", "ab,cd->dcba"}) {
    OnnxBuilder b;
    b.input("x", {2, 2}).output("y", {2, 2}).weight("w", {2, 2}, {1, 2, 3, 4});
    auto& attribute = *b.node("Einsum", {"x", "w"}, {"y"}).add_attribute();
    attribute.set_name("equation");
    attribute.set_type(::onnx::AttributeProto::STRING);
    attribute.set_s(equation);
    add(b);
  }
  OnnxBuilder branches;
  branches.input("x", {2, 2}).output("y", {2, 2}).integers("c", {}, {1});
  branches.graph().mutable_initializer(0)->set_data_type(::onnx::TensorProto::BOOL);
  branches.graph().mutable_initializer(0)->clear_int64_data();
  branches.graph().mutable_initializer(0)->add_int32_data(1);
  auto& node = branches.node("If", {"c"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    OnnxBuilder branch;
    branch.output("z", {2, 2}).node("Relu", {"x"}, {"z"});
    auto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(::onnx::AttributeProto::GRAPH);
    *attribute.mutable_g() = branch.graph();
  }
  add(branches);
  OnnxBuilder calls;
  calls.input("x", {2, 2}).output("y", {2, 2});
  auto& function = *calls.model.add_functions();
  function.set_name("f");
  function.add_input("a");
  function.add_output("b");
  auto& body = *function.add_node();
  body.set_op_type("Relu");
  body.add_input("a");
  body.add_output("b");
  calls.node("f", {"x"}, {"h"});
  calls.node("f", {"h"}, {"y"});
  add(calls);
  return seeds;
}
