#include "replica/models/layers/losses.h"

#include <numeric>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"

namespace poprun::layers {
namespace {

constexpr std::string_view kLossOption = "model.loss";

void refuse_labels(Builder& builder, const std::string& where, const std::string& needed, TensorId logits,
                   TensorId labels) {
  builder.refuse({ErrorCode::kUsage,
                  fmt::format("{}: the model outputs {} and needs labels of {}, but the dataset has {}; save labels of "
                              "that type and shape{}",
                              where, to_text(builder.type(logits)), needed, to_text(builder.type(labels)),
                              where.starts_with(kLossOption) ? ", or set another model.loss" : "")});
}

/// Adds the operator `kind` and returns its outputs.
ModelOutputs scored(Builder& builder, const std::string& kind, const std::string& name, TensorId logits,
                    TensorId labels, TensorId prediction) {
  const auto y = builder.add(kind, {logits, labels}, {}, {name, name + ".correct", name + ".count"});
  return {.loss = y[0], .correct = y[1], .count = y[2], .prediction = prediction};
}

bool marks_pairs(const Builder& builder, TensorId labels, std::int64_t pairs) {
  return builder.type(labels) == TensorType{DataType::kI32, {pairs}, Layout::kRowMajor};
}

/// Returns the constant 0, 1, ..., count - 1.
TensorId positions(Builder& builder, const std::string& name, std::int64_t count) {
  std::vector<double> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return builder.constant(fmt::format("{}.diagonal.{}", name, count), {count}, std::move(numbers));
}

/// Adds the mean of two cross-entropies of N pairs, out of M: logits `rows` and `columns` [N,M], whose correct classes
/// are `own` [N]. `labels` [N] and `all_labels` [M] are negative for pairs that do not count, as rows and as classes.
ModelOutputs both_ways(Builder& builder, const std::string& name, TensorId rows, TensorId columns, TensorId own,
                       TensorId labels, TensorId all_labels) {
  const auto constant = [&](double value, const std::string& suffix) {
    return builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", value}}, name + suffix);
  };
  const TensorId zero = constant(0, ".zero");
  const auto counting = [&](TensorId of, const std::string& suffix) {
    const TensorId marks = builder.add_one("cast", {of}, {{"to", std::string{"f32"}}}, name + suffix + ".marks");
    return builder.add_one("greater_equal", {marks, zero}, {}, name + suffix + ".counts");
  };
  const TensorId counts = counting(labels, "");
  const TensorId all_counts = all_labels == labels ? counts : counting(all_labels, ".all");
  const TensorId known = builder.add_one("where", {counts, own, constant(-1, ".ignored")}, {}, name + ".own");
  const TensorId targets = builder.add_one("cast", {known}, {{"to", std::string{"i32"}}}, name + ".targets");
  const TensorId mask = builder.add_one("where", {all_counts, zero, constant(-1e30, ".never")}, {}, name + ".mask");
  const auto one_way = [&](TensorId logits, const std::string& direction) {
    const TensorId masked = builder.add_one("add", {logits, mask}, {}, name + direction);
    return builder.add("softmax_cross_entropy", {masked, targets}, {},
                       {name + direction + ".loss", name + direction + ".correct", name + direction + ".count"});
  };
  const std::vector<TensorId> forward = one_way(rows, ".rows");
  const std::vector<TensorId> backward = one_way(columns, ".columns");
  const TensorId sum = builder.add_one("add", {forward[0], backward[0]}, {}, name + ".sum");
  const TensorId loss = builder.add_one("mul", {sum, constant(0.5, ".half")}, {}, name);
  return {.loss = loss, .correct = forward[1], .count = forward[2]};
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
    builder.refuse({ErrorCode::kUsage,
                    fmt::format("{}: the model needs labels 0 and 1, but the dataset has labels up to {}; {}", where,
                                label_classes - 1,
                                where.starts_with(kLossOption) ? "for several classes, set model.loss = cross-entropy"
                                                               : "save labels of two classes")});
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
  if (shape.size() != 2 || shape[0] != shape[1] || !marks_pairs(builder, labels, shape[0])) {
    refuse_labels(builder, where, "type i32[N] for logits [N,N], the similarities of N pairs", logits, labels);
    return {};
  }
  const TensorId diagonal = positions(builder, name, shape[0]);
  const std::size_t first = builder.graph().tensors().size();
  const TensorId columns = builder.add_one("transpose", {logits}, {{"perm", Shape{1, 0}}}, name + ".transposed");
  const ModelOutputs outputs = both_ways(builder, name, logits, columns, diagonal, labels, labels);
  mark_metrics(builder.graph(), first);
  return {.loss = outputs.loss, .correct = outputs.correct, .count = outputs.count, .prediction = logits};
}

ModelOutputs global_contrastive_loss(Builder& builder, const std::string& name, const std::string& where,
                                     const Pairs& pairs, TensorId labels, std::int64_t replicas) {
  if (!builder.status()) {
    return {};
  }
  const TensorType left = builder.type(pairs.left);
  const TensorType right = builder.type(pairs.right);
  if (left.shape.size() != 2 || left.data != DataType::kF32 || right.shape != left.shape || right.data != left.data) {
    builder.refuse(
        {ErrorCode::kUsage, fmt::format("{}: the model's first two outputs must be embeddings f32[N,D] of N "
                                        "pairs, but they are {} and {}; export them as the first two outputs",
                                        where, to_text(left), to_text(right))});
    return {};
  }
  if (pairs.scale && builder.type(*pairs.scale).elements() != 1) {
    builder.refuse({ErrorCode::kUsage,
                    fmt::format("{}: the model's third output must be one number, the factor of the similarities, but "
                                "it is {}; export the factor as the third output, or only the embeddings",
                                where, to_text(builder.type(*pairs.scale)))});
    return {};
  }
  const std::int64_t N = left.shape[0];
  if (!marks_pairs(builder, labels, N)) {
    refuse_labels(builder, where, "type i32[N] for embeddings [N,D] of N pairs", pairs.left, labels);
    return {};
  }
  const bool shared = replicas > 1;
  const auto gathered = [&](TensorId own, const std::string& suffix) {
    return shared ? builder.gather_rows(own, replicas, name + suffix) : own;
  };
  const TensorId every = positions(builder, name, N * replicas);
  // Embeddings travel in the precision of the model; everything after them is float32.
  const TensorId all_left = gathered(pairs.left, ".left");
  const TensorId all_right = gathered(pairs.right, ".right");
  const TensorId all_labels = gathered(labels, ".labels");
  const std::size_t first = builder.graph().tensors().size();
  const TensorId own = shared ? builder.own_rows(every, replicas, name + ".positions") : every;
  const auto similarities = [&](TensorId rows, TensorId columns, const std::string& direction) {
    const TensorId products =
        builder.add_one("matmul", {rows, columns}, {{"transpose_b", std::int64_t{1}}}, name + direction + ".products");
    return pairs.scale
               ? builder.add_one("mul", {products, reshape(builder, name + direction + ".scale", *pairs.scale, {})}, {},
                                 name + direction + ".logits")
               : products;
  };
  const TensorId rows = similarities(pairs.left, all_right, ".rows");
  const TensorId columns = similarities(pairs.right, all_left, ".columns");
  const ModelOutputs outputs = both_ways(builder, name, rows, columns, own, labels, all_labels);
  if (builder.status()) {
    mark_metrics(builder.graph(), first);
  }
  return {.loss = outputs.loss, .correct = outputs.correct, .count = outputs.count, .prediction = pairs.left};
}

}  // namespace poprun::layers
