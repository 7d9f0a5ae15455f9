#include <numeric>

#include <fmt/format.h>

#include "replica/models/layers/shapes.h"
#include "replica/models/onnx/node.h"

/// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss as values of the graph. A job does not train with them, but
/// with the loss in train.cfg.
///
///   P  positions: the batch and all dimensions after the classes    C  classes
namespace poprun::onnx_import::nodes::loss {
namespace {

using layers::Reduction;

Result<TensorId> reduced(Node& node, Reduction reduction, TensorId x) {
  const TensorId y = layers::reduce(node.builder(), node.free_name(), reduction, x, {0}, false);
  POPRUN_TRY(node.builder().status());
  return y;
}

/// Rearranges x [N,C,...] to rows [P,C]. images_of does the reverse.
Result<TensorId> rows_of(Node& node, TensorId x) {
  const Shape shape = node.type(x).shape;
  std::vector<std::int64_t> perm(shape.size());
  std::iota(perm.begin(), perm.end(), 0);
  perm.erase(perm.begin() + 1);
  perm.push_back(1);
  POPRUN_ASSIGN(x, node.transpose(x, perm));
  return node.reshape(x, {node.type(x).elements() / shape[1], shape[1]});
}

Result<TensorId> images_of(Node& node, TensorId rows, const Shape& shape) {
  Shape last = shape;
  last.erase(last.begin() + 1);
  last.push_back(shape[1]);
  POPRUN_ASSIGN(const TensorId x, node.reshape(rows, last));
  std::vector<std::int64_t> perm(shape.size(), 0);
  perm[1] = static_cast<std::int64_t>(shape.size()) - 1;
  std::iota(perm.begin() + 2, perm.end(), 1);
  return node.transpose(x, perm);
}

/// Returns a table with a 1 for each label that counts and a 0 for the ignored label. A negative label indexes the
/// table from its end, so the table is long enough to hold a 0 there.
Constant counting(std::int64_t C, std::int64_t ignored) {
  const std::int64_t size = ignored < 0 ? C - ignored : C;
  std::vector<float> table(static_cast<std::size_t>(size), 0);
  std::fill_n(table.begin(), C, 1.0F);
  if (ignored >= 0 && ignored < C) {
    table[static_cast<std::size_t>(ignored)] = 0;
  }
  return Constant::of_reals(std::move(table), {size});
}

/// Returns the table's element for each label, or 0 for a label that is not a class and does not count.
Result<TensorId> gathered_by_label(Node& node, TensorId table, TensorId labels) {
  return node.add("gather", {table, labels}, {{"axis", std::int64_t{0}}, {"outside", std::string{"zeros"}}});
}

/// Returns the weights of the positions [P], or nothing if all are 1.
Result<std::optional<TensorId>> weights_of(Node& node, TensorId labels, std::int64_t C) {
  std::optional<TensorId> weights;
  if (node.has(2)) {
    POPRUN_ASSIGN(const TensorId by_class, node.row_major(2));
    POPRUN_ASSIGN(weights, gathered_by_label(node, by_class, labels));
  }
  if (!node.has_attribute("ignore_index")) {
    return weights;
  }
  const std::int64_t ignored = node.integer("ignore_index", 0);
  if (ignored < -kMostFolded || C > kMostFolded) {
    return node.unsupported(fmt::format("ignore_index = {} with {} classes", ignored, C));
  }
  POPRUN_ASSIGN(const TensorId table, node.device_constant(counting(C, ignored), "counting"));
  POPRUN_ASSIGN(const TensorId counts, gathered_by_label(node, table, labels));
  if (!weights) {
    return std::optional(counts);
  }
  POPRUN_ASSIGN(weights, node.add("mul", {*weights, counts}));
  return weights;
}

/// Sets output 0 to the loss, given the log-probabilities in rows [P,C].
Status set_loss(Node& node, TensorId rows) {
  const std::int64_t C = node.type(rows).shape[1];
  const std::int64_t P = node.type(rows).shape[0];
  const Shape shape = node.shape(1);
  if (checked_elements(shape) != P || is_real(node.element(1))) {
    return node.wrong("needs integer labels [N,...] for inputs [N,C,...]");
  }
  POPRUN_ASSIGN(TensorId labels, node.row_major(1));
  POPRUN_ASSIGN(labels, node.reshape(labels, {P}));
  POPRUN_ASSIGN(const TensorId columns, node.reshape(labels, {P, 1}));
  POPRUN_ASSIGN(
      TensorId loss,
      node.add("gather", {rows, columns},
               {{"axis", std::int64_t{1}}, {"batch_dims", std::int64_t{1}}, {"outside", std::string{"zeros"}}}));
  POPRUN_ASSIGN(loss, node.reshape(loss, {P}));
  POPRUN_ASSIGN(loss, node.add("neg", {loss}));
  POPRUN_ASSIGN(const auto weights, weights_of(node, labels, C));
  if (weights) {
    POPRUN_ASSIGN(loss, node.add("mul", {loss, *weights}));
  }
  const std::string reduction = node.text("reduction", "mean");
  if (reduction == "none") {
    POPRUN_ASSIGN(loss, node.reshape(loss, shape));
  } else if (reduction == "sum" || (reduction == "mean" && weights)) {
    POPRUN_ASSIGN(loss, reduced(node, Reduction::kSum, loss));
    if (reduction == "mean") {
      POPRUN_ASSIGN(const TensorId total, reduced(node, Reduction::kSum, *weights));
      POPRUN_ASSIGN(loss, node.add("div", {loss, total}));
    }
  } else if (reduction == "mean") {
    POPRUN_ASSIGN(loss, reduced(node, Reduction::kMean, loss));
  } else {
    return node.wrong(fmt::format("reduction = {}; available: none, sum, mean", reduction));
  }
  node.set(0, loss);
  return {};
}

Result<TensorId> input_rows(Node& node) {
  if (node.shape(0).size() < 2) {
    return node.wrong("needs inputs [N,C,...]");
  }
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  return rows_of(node, x);
}

Status negative_log_likelihood(Node& node) {
  POPRUN_ASSIGN(const TensorId rows, input_rows(node));
  return set_loss(node, rows);
}

Status softmax_cross_entropy(Node& node) {
  const Shape shape = node.shape(0);
  POPRUN_ASSIGN(TensorId rows, input_rows(node));
  POPRUN_ASSIGN(rows, node.add("log_softmax", {rows}));
  if (node.wants_output(1)) {
    POPRUN_ASSIGN(const TensorId logs, images_of(node, rows, shape));
    node.set(1, logs);
  }
  return set_loss(node, rows);
}

}  // namespace

std::vector<Translator> translators() {
  return {{"NegativeLogLikelihoodLoss", 2, negative_log_likelihood},
          {"SoftmaxCrossEntropyLoss", 2, softmax_cross_entropy}};
}

}  // namespace poprun::onnx_import::nodes::loss
