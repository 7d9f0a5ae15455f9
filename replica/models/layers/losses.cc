#include "replica/models/layers/losses.h"

#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"

namespace poprun::layers {
namespace {

void refuse_labels(Builder& builder, const std::string& where, const std::string& needed, TensorId logits,
                   TensorId labels) {
  builder.refuse(
      {ErrorCode::kUsage, fmt::format("{}: the model outputs {} and needs labels of {}, but the dataset has {}", where,
                                      to_text(builder.type(logits)), needed, to_text(builder.type(labels)))});
}

/// Adds the operator `kind` and returns its outputs.
ModelOutputs scored(Builder& builder, const std::string& kind, const std::string& name, TensorId logits,
                    TensorId labels, TensorId prediction) {
  const auto y = builder.add(kind, {logits, labels}, {}, {name, name + ".correct", name + ".count"});
  return {.loss = y[0], .correct = y[1], .count = y[2], .prediction = prediction};
}

}  // namespace

void mark_metrics(Graph& graph, std::size_t first) {
  for (std::size_t t = first; t < graph.tensors().size(); ++t) {
    graph.set_role(TensorId{static_cast<std::uint32_t>(t)}, Role::kMetric);
  }
}

ModelOutputs binary_cross_entropy(Builder& builder, const std::string& name, const std::string& where, TensorId logits,
                                  TensorId labels, std::int64_t label_classes) {
  if (!builder.status()) {
    return {};
  }
  const TensorType of_labels = builder.type(labels);
  const TensorType of_logits = builder.type(logits);
  const bool numbers = of_labels.data == DataType::kF32 || of_labels.data == DataType::kI32;
  if (!numbers || of_logits.shape.empty() || of_labels.shape.empty() || of_labels.shape[0] != of_logits.shape[0] ||
      of_labels.elements() != of_logits.elements()) {
    refuse_labels(builder, where, "the same number of elements: f32 from 0 to 1 or i32 0 and 1", logits, labels);
    return {};
  }
  if (of_labels.data == DataType::kI32 && label_classes > 2) {
    builder.refuse(
        {ErrorCode::kUsage, fmt::format("{}: the model needs labels 0 and 1, but the dataset has labels up to {}",
                                        where, label_classes - 1)});
    return {};
  }
  const TensorId rows = of_logits == TensorType{DataType::kF32, of_labels.shape, Layout::kRowMajor}
                            ? logits
                            : reshape(builder, name + ".logits", logits, of_labels.shape);
  return scored(builder, "binary_cross_entropy", name, rows, labels, logits);
}

ModelOutputs ctc_loss(Builder& builder, const std::string& name, const std::string& where, TensorId logits,
                      TensorId labels) {
  if (!builder.status()) {
    return {};
  }
  const TensorType of_labels = builder.type(labels);
  const Shape& frames = builder.type(logits).shape;
  if (frames.size() != 3 || of_labels.shape.size() != 2 || of_labels.data != DataType::kI32 ||
      of_labels.shape[0] != frames[0]) {
    refuse_labels(builder, where, "type i32[N,S] for logits [N,T,C], with class 0 as the blank", logits, labels);
    return {};
  }
  return scored(builder, "ctc_loss", name, logits, labels, logits);
}

ModelOutputs contrastive_loss(Builder& builder, const std::string& name, const std::string& where, TensorId logits,
                              TensorId labels) {
  if (!builder.status()) {
    return {};
  }
  const Shape shape = builder.type(logits).shape;
  if (shape.size() != 2 || shape[0] != shape[1] ||
      builder.type(labels) != TensorType{DataType::kI32, {shape[0]}, Layout::kRowMajor}) {
    refuse_labels(builder, where, "type i32[N] for logits [N,N], the similarities of N pairs", logits, labels);
    return {};
  }
  const std::int64_t N = shape[0];
  std::vector<double> numbers(static_cast<std::size_t>(N));
  std::iota(numbers.begin(), numbers.end(), 0);
  const TensorId diagonal = builder.constant(fmt::format("{}.diagonal.{}", name, N), {N}, std::move(numbers));
  const std::size_t first = builder.graph().tensors().size();
  const auto constant = [&](double value, const std::string& suffix) {
    return builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", value}}, name + suffix);
  };
  const TensorId zero = constant(0, ".zero");
  const TensorId marks = builder.add_one("cast", {labels}, {{"to", std::string{"f32"}}}, name + ".marks");
  const TensorId counts = builder.add_one("greater_equal", {marks, zero}, {}, name + ".counts");
  const TensorId known = builder.add_one("where", {counts, diagonal, constant(-1, ".ignored")}, {}, name + ".own");
  const TensorId targets = builder.add_one("cast", {known}, {{"to", std::string{"i32"}}}, name + ".targets");
  const TensorId mask = builder.add_one("where", {counts, zero, constant(-1e30, ".never")}, {}, name + ".mask");
  const auto one_way = [&](TensorId rows, const std::string& direction) {
    const TensorId masked = builder.add_one("add", {rows, mask}, {}, name + direction);
    return builder.add("softmax_cross_entropy", {masked, targets}, {},
                       {name + direction + ".loss", name + direction + ".correct", name + direction + ".count"});
  };
  const TensorId transposed = builder.add_one("transpose", {logits}, {{"perm", Shape{1, 0}}}, name + ".transposed");
  const std::vector<TensorId> forward = one_way(logits, ".rows");
  const std::vector<TensorId> backward = one_way(transposed, ".columns");
  const TensorId sum = builder.add_one("add", {forward[0], backward[0]}, {}, name + ".sum");
  const TensorId loss = builder.add_one("mul", {sum, constant(0.5, ".half")}, {}, name);
  mark_metrics(builder.graph(), first);
  return {.loss = loss, .correct = forward[1], .count = forward[2], .prediction = logits};
}

}  // namespace poprun::layers
