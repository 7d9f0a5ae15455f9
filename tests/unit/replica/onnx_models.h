#pragma once

#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

namespace poprun::testing {

/// Builds ONNX models for tests.
class OnnxBuilder {
 public:
  explicit OnnxBuilder(std::int64_t opset = 13) {
    model.set_ir_version(7);
    auto& import = *model.add_opset_import();
    import.set_domain("");
    import.set_version(opset);
    graph().set_name("test");
  }

  ::onnx::GraphProto& graph() { return *model.mutable_graph(); }

  /// Adds an input; a dimension of -1 is left undetermined.
  OnnxBuilder& input(const std::string& name, const std::vector<std::int64_t>& dims,
                     std::int32_t element = ::onnx::TensorProto::FLOAT) {
    add_info(*graph().add_input(), name, dims, element);
    return *this;
  }
  OnnxBuilder& output(const std::string& name, const std::vector<std::int64_t>& dims,
                      std::int32_t element = ::onnx::TensorProto::FLOAT) {
    add_info(*graph().add_output(), name, dims, element);
    return *this;
  }
  OnnxBuilder& weight(const std::string& name, const std::vector<std::int64_t>& dims,
                      const std::vector<float>& values) {
    auto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(::onnx::TensorProto::FLOAT);
    tensor.mutable_dims()->Add(dims.begin(), dims.end());
    tensor.mutable_float_data()->Add(values.begin(), values.end());
    return *this;
  }
  /// Adds a weight as a Constant node instead of an initializer.
  OnnxBuilder& constant(const std::string& name, const std::vector<std::int64_t>& dims,
                        const std::vector<float>& values) {
    auto& attribute = *node("Constant", {}, {name}).add_attribute();
    attribute.set_name("value");
    attribute.set_type(::onnx::AttributeProto::TENSOR);
    auto& tensor = *attribute.mutable_t();
    tensor.set_data_type(::onnx::TensorProto::FLOAT);
    tensor.mutable_dims()->Add(dims.begin(), dims.end());
    tensor.mutable_float_data()->Add(values.begin(), values.end());
    return *this;
  }
  OnnxBuilder& integers(const std::string& name, const std::vector<std::int64_t>& dims,
                        const std::vector<std::int64_t>& values) {
    auto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(::onnx::TensorProto::INT64);
    tensor.mutable_dims()->Add(dims.begin(), dims.end());
    tensor.mutable_int64_data()->Add(values.begin(), values.end());
    return *this;
  }
  ::onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs,
                          const std::vector<std::string>& outputs) {
    auto& node = *graph().add_node();
    node.set_op_type(op);
    for (const std::string& name : inputs) {
      node.add_input(name);
    }
    for (const std::string& name : outputs) {
      node.add_output(name);
    }
    return node;
  }
  static void set_integer(::onnx::NodeProto& node, const std::string& name, std::int64_t value) {
    auto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(::onnx::AttributeProto::INT);
    attribute.set_i(value);
  }

  static void set_text(::onnx::NodeProto& node, const std::string& name, const std::string& value) {
    auto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(::onnx::AttributeProto::STRING);
    attribute.set_s(value);
  }
  static void set_integers(::onnx::NodeProto& node, const std::string& name, const std::vector<std::int64_t>& values) {
    auto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(::onnx::AttributeProto::INTS);
    attribute.mutable_ints()->Add(values.begin(), values.end());
  }

  [[nodiscard]] std::string bytes() const { return model.SerializeAsString(); }

  ::onnx::ModelProto model;

 private:
  static void add_info(::onnx::ValueInfoProto& info, const std::string& name, const std::vector<std::int64_t>& dims,
                       std::int32_t element) {
    info.set_name(name);
    auto& type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(element);
    type.mutable_shape();
    for (const std::int64_t d : dims) {
      auto& dim = *type.mutable_shape()->add_dim();
      d < 0 ? dim.set_dim_param("N") : dim.set_dim_value(d);
    }
  }
};

/// Returns a model x [N,2] -> [N,2] of two dense layers with a Relu between them, and a Softmax.
inline OnnxBuilder perceptron() {
  OnnxBuilder b;
  b.input("x", {-1, 2}).output("y", {-1, 2});
  b.weight("w1", {2, 3}, {0.5F, -1, 2, 1, 0.25F, -0.5F}).weight("b1", {3}, {0, 0.5F, -1});
  b.weight("w2", {3, 2}, {1, -1, 0.5F, 2, -2, 1}).weight("b2", {2}, {0.1F, -0.1F});
  b.node("Gemm", {"x", "w1", "b1"}, {"h"});
  b.node("Relu", {"h"}, {"r"});
  b.node("Gemm", {"r", "w2", "b2"}, {"z"});
  b.node("Softmax", {"z"}, {"y"});
  return b;
}

}  // namespace poprun::testing
