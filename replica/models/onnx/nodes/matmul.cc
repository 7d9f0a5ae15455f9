
#include "replica/models/onnx/node.h"

/// Products of matrices: MatMul and Gemm.
namespace poprun::onnx_import::nodes::matmul {
namespace {

Status matmul(Node& node) {
  POPRUN_ASSIGN(TensorId a, node.shape(0).size() >= 2 ? node.row_major(0) : node.tensor(0));
  POPRUN_ASSIGN(TensorId b, node.weight(1));
  POPRUN_ASSIGN(b, node.row_major_of(b));
  const Shape x = node.type(a).shape;
  const Shape y = node.type(b).shape;
  if (x.empty() || y.empty()) {
    return node.wrong("a matrix product of scalars is not defined");
  }
  // A vector on the left is a row, and one on the right is a column. The result does not have the added dimension.
  if (x.size() == 1) {
    POPRUN_ASSIGN(a, node.reshape(a, {1, x[0]}));
  }
  if (y.size() == 1) {
    POPRUN_ASSIGN(b, node.reshape(b, {y[0], 1}));
  }
  POPRUN_ASSIGN(TensorId c, node.add_as_reals("matmul", {a, b},
                                              {{"transpose_a", std::int64_t{0}}, {"transpose_b", std::int64_t{0}}}));
  Shape shape = node.type(c).shape;
  if (y.size() == 1) {
    shape.pop_back();
  }
  if (x.size() == 1) {
    shape.erase(shape.end() - (y.size() == 1 ? 1 : 2));
  }
  POPRUN_ASSIGN(c, node.reshape(c, shape));
  node.set(0, c, node.element(0));
  return {};
}

/// Returns whether the Gemm is a dense layer: y = x w + b, where b has one dimension.
bool is_dense(Node& node) {
  return node.integer("transA", 0) == 0 && node.real("alpha", 1) == 1 && node.real("beta", 1) == 1 &&
         node.shape(0).size() == 2 && node.shape(1).size() == 2 &&
         (!node.has(2) || node.shape(2) == Shape{node.shape(1)[node.integer("transB", 0) != 0 ? 0 : 1]});
}

Status dense(Node& node) {
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  POPRUN_ASSIGN(TensorId w, node.weight(1));
  POPRUN_ASSIGN(w, node.row_major_of(w));
  std::vector<TensorId> inputs = {x, w};
  if (node.has(2)) {
    POPRUN_ASSIGN(const TensorId b, node.weight(2));
    inputs.push_back(b);
  }
  return node.set_result(
      node.add("linear", inputs, {{"input_major", std::int64_t{node.integer("transB", 0) != 0 ? 0 : 1}}}));
}

/// Computes y = alpha a b + beta c, with a and b transposed if requested.
Status gemm(Node& node) {
  if (is_dense(node)) {
    return dense(node);
  }
  POPRUN_ASSIGN(const TensorId a, node.row_major(0));
  POPRUN_ASSIGN(TensorId b, node.weight(1));
  POPRUN_ASSIGN(b, node.row_major_of(b));
  POPRUN_ASSIGN(TensorId y, node.add("matmul", {a, b},
                                     {{"transpose_a", std::int64_t{node.integer("transA", 0) != 0 ? 1 : 0}},
                                      {"transpose_b", std::int64_t{node.integer("transB", 0) != 0 ? 1 : 0}},
                                      {"scale", node.real("alpha", 1)}}));
  if (node.has(2)) {
    POPRUN_ASSIGN(TensorId c, node.weight(2));
    if (node.real("beta", 1) != 1) {
      POPRUN_ASSIGN(const TensorId beta, node.fill({}, node.real("beta", 1)));
      POPRUN_ASSIGN(c, node.add("mul", {c, beta}));
    }
    POPRUN_ASSIGN(y, node.add("add", {y, c}));
  }
  node.set(0, y);
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"MatMul", 2, matmul}, {"Gemm", 2, gemm}};
}

}  // namespace poprun::onnx_import::nodes::matmul
