#include <functional>
#include <numeric>

#include "replica/models/onnx/node.h"

/// Softmax, LogSoftmax and Hardmax along an axis. Before opset 13, they treat it and all later dimensions as one.
namespace poprun::onnx_import::nodes::softmax {
namespace {

/// Returns a tensor of the shape of x with a 1 at the maximum of each row and 0 elsewhere.
Result<TensorId> hardmax_rows(Node& node, TensorId x) {
  const Shape shape = node.type(x).shape;
  const auto last = static_cast<std::int64_t>(shape.size()) - 1;
  POPRUN_ASSIGN(TensorId at, node.add("arg_max", {x}, {{"axis", last}, {"last", std::int64_t{0}}}));
  POPRUN_ASSIGN(at, node.reshape(at, Shape(shape.begin(), shape.end() - 1)));
  return node.add("one_hot", {at}, {{"depth", shape.back()}, {"on", 1.0}, {"off", 0.0}});
}

Result<TensorId> rows(Node& node, const std::string& kind, TensorId x) {
  return kind == "hardmax" ? hardmax_rows(node, x) : node.add(kind, {x});
}

Status along_axis(Node& node, const std::string& kind) {
  const Shape shape = node.shape(0);
  const bool joined = node.opset() < 13;
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", joined ? 1 : -1), shape.size()));
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  if (joined) {
    const auto outer = std::accumulate(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis),
                                       std::int64_t{1}, std::multiplies<>{});
    POPRUN_ASSIGN(x, node.reshape(x, {outer, node.type(x).elements() / outer}));
    POPRUN_ASSIGN(x, rows(node, kind, x));
    POPRUN_ASSIGN(x, node.reshape(x, shape));
  } else {
    std::vector<std::int64_t> perm(shape.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[axis], perm.back());
    POPRUN_ASSIGN(x, node.transpose(x, perm));
    POPRUN_ASSIGN(x, rows(node, kind, x));
    POPRUN_ASSIGN(x, node.transpose(x, perm));
  }
  node.set(0, x);
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"Softmax", 1, [](Node& node) { return along_axis(node, "softmax"); }},
          {"LogSoftmax", 1, [](Node& node) { return along_axis(node, "log_softmax"); }},
          {"Hardmax", 1, [](Node& node) { return along_axis(node, "hardmax"); }}};
}

}  // namespace poprun::onnx_import::nodes::softmax
