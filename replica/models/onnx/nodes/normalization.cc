

#include "replica/models/layers/layers.h"
#include "replica/models/layers/shapes.h"
#include "replica/models/onnx/node.h"

/// Normalisations over the batch, a layer, an instance, groups or channels, and Dropout.
namespace poprun::onnx_import::nodes::normalization {
namespace {

using Proto = ::onnx::TensorProto;

/// Returns x [N,C,...] in a form that batch normalisation accepts: a matrix [N,C] or an image, which may have one row.
Result<TensorId> channels_of(Node& node) {
  const Shape s = node.shape(0);
  if (s.size() == 4) {
    return node.image(0);
  }
  if (s.size() < 2) {
    return node.unsupported("an input without channels");
  }
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  if (s.size() == 2) {
    return x;
  }
  return node.reshape(x, {s[0], s[1], 1, node.type(x).elements() / s[0] / s[1]}, Layout::kChannelsLast);
}

/// Updates a running statistic: momentum * running + (1 - momentum) * now.
Result<TensorId> moved(Node& node, TensorId running, TensorId now, double momentum) {
  POPRUN_ASSIGN(const TensorId keep, node.fill({}, momentum));
  POPRUN_ASSIGN(const TensorId take, node.fill({}, 1 - momentum));
  POPRUN_ASSIGN(const TensorId old, node.add("mul", {running, keep}));
  POPRUN_ASSIGN(const TensorId fresh, node.add("mul", {now, take}));
  return node.add("add", {old, fresh});
}

/// Normalises with the batch's own statistics. Running statistics that are variables are updated as in PyTorch, with
/// the unbiased variance. Otherwise, outputs 1 and 2, if wanted, are computed as in ONNX, with the biased variance.
Result<TensorId> batch_norm_training(Node& node, const std::vector<TensorId>& inputs, double eps) {
  const double momentum = node.real("momentum", 0.9);
  POPRUN_ASSIGN(const auto y,
                node.add_many("batch_norm_training", {inputs[0], inputs[1], inputs[2]}, {{"eps", eps}}, 3));
  const auto is_buffer = [&](TensorId id) { return node.builder().graph().tensor(id).role == Role::kBuffer; };
  if (is_buffer(inputs[3]) && is_buffer(inputs[4])) {
    const TensorType& x = node.type(inputs[0]);
    node.builder().update("batch_norm_update", {inputs[3], inputs[4], y[1], y[2]},
                          {{"momentum", 1 - momentum}, {"elements", x.elements() / x.shape[1]}},
                          {inputs[3], inputs[4]});
    if (node.wants_output(1) || node.wants_output(2)) {
      return node.unsupported("reading outputs 1 and 2; the running statistics are saved with the weights instead");
    }
  } else if (node.wants_output(1)) {
    POPRUN_ASSIGN(const TensorId mean, moved(node, inputs[3], y[1], momentum));
    POPRUN_ASSIGN(const TensorId variance, moved(node, inputs[4], y[2], momentum));
    node.set(1, mean);
    node.set(2, variance);
  }
  return y[0];
}

Status batch_normalization(Node& node) {
  if (node.integer("spatial", 1) == 0) {
    return node.unsupported("spatial = 0; available: 1 (statistics of each channel)");
  }
  std::vector<TensorId> inputs;
  POPRUN_ASSIGN(const TensorId x, channels_of(node));
  POPRUN_ASSIGN(const TensorId w, node.weight(1));
  POPRUN_ASSIGN(const TensorId b, node.weight(2));
  POPRUN_ASSIGN(const TensorId mean, node.buffer(3));
  POPRUN_ASSIGN(const TensorId variance, node.buffer(4));
  inputs = {x, w, b, mean, variance};
  const double eps = node.real("epsilon", 1e-5);
  const bool training = node.scope().training || (node.scope().as_written && node.integer("training_mode", 0) != 0);
  TensorId y{};
  if (training) {
    POPRUN_ASSIGN(y, batch_norm_training(node, inputs, eps));
  } else {
    POPRUN_ASSIGN(y, node.add("batch_norm_inference", inputs, {{"eps", eps}}));
    node.pass(1, 3);  // Running statistics do not change.
    node.pass(2, 4);
  }
  if (node.type(y).shape != node.shape(0)) {
    POPRUN_ASSIGN(y, node.reshape(y, node.shape(0)));
  }
  node.set(0, y);
  return {};
}

/// Normalises over the axis and all dimensions after it, which are treated as one.
Status layer_normalization(Node& node) {
  const Shape shape = node.shape(0);
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", -1), shape.size()));
  const auto middle = shape.begin() + static_cast<std::ptrdiff_t>(axis);
  const Shape normalised(middle, shape.end());
  POPRUN_ASSIGN(const std::int64_t C, checked_elements(normalised));
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  POPRUN_ASSIGN(x, node.reshape(x, {node.type(x).elements() / C, C}));
  std::vector<TensorId> inputs = {x};
  for (const std::size_t i : {1U, 2U}) {
    if (i == 2 && !node.has(i)) {
      POPRUN_ASSIGN(const TensorId zeros, node.fill({C}, 0));
      inputs.push_back(zeros);
      continue;
    }
    if (node.shape(i) != normalised) {
      return node.unsupported("a scale or bias whose shape differs from that of the normalised dimensions");
    }
    POPRUN_ASSIGN(const TensorId w, node.weight(i));
    POPRUN_ASSIGN(const TensorId flat, node.reshape(w, {C}));
    inputs.push_back(flat);
  }
  const double epsilon = node.real("epsilon", 1e-5);
  POPRUN_ASSIGN(const auto y, node.add_many("layer_norm", inputs, {{"epsilon", epsilon}}, 3));
  POPRUN_ASSIGN(const TensorId result, node.reshape(y[0], shape));
  node.set(0, result);
  Shape row(shape.begin(), middle);
  row.resize(shape.size(), 1);
  if (node.wants_output(1)) {
    POPRUN_ASSIGN(const TensorId mean, node.reshape(y[1], row));
    node.set(1, mean);
  }
  if (node.wants_output(2)) {
    POPRUN_ASSIGN(const TensorId small, node.fill({}, epsilon));
    POPRUN_ASSIGN(TensorId deviation, node.add("add", {y[2], small}));
    POPRUN_ASSIGN(deviation, node.add("sqrt", {deviation}));
    POPRUN_ASSIGN(deviation, node.add("reciprocal", {deviation}));
    POPRUN_ASSIGN(deviation, node.reshape(deviation, row));
    node.set(2, deviation);
  }
  return {};
}

Status instance_normalization(Node& node) {
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  POPRUN_ASSIGN(const TensorId w, node.weight(1));
  POPRUN_ASSIGN(const TensorId b, node.weight(2));
  const Shape& shape = node.shape(0);
  if (shape.size() < 3) {
    return node.wrong("needs an input [N,C,...]");
  }
  const TensorId y =
      layers::group_norm(node.builder(), node.free_name(), x, w, b, shape[1], node.real("epsilon", 1e-5));
  POPRUN_TRY(node.builder().status());
  node.set(0, y);
  return {};
}

/// Returns a scale or bias of opset 18, one number per group, as one number per channel.
Result<TensorId> per_channel(Node& node, TensorId w, std::int64_t groups, std::int64_t channels) {
  POPRUN_ASSIGN(const TensorId column, node.reshape(w, {groups, 1}));
  POPRUN_ASSIGN(const TensorId wide, node.expand(column, {groups, channels / groups}));
  return node.reshape(wide, {channels});
}

/// Before opset 21, scale and bias have one number per group, and since then one per channel.
Status group_normalization(Node& node) {
  const Shape shape = node.shape(0);
  const std::int64_t groups = node.integer("num_groups", 1);
  if (shape.size() < 3 || groups < 1 || shape[1] % groups != 0) {
    return node.wrong("needs an input [N,C,...] and a number of groups that divides C");
  }
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  POPRUN_ASSIGN(TensorId w, node.weight(1));
  POPRUN_ASSIGN(TensorId b, node.weight(2));
  if (node.opset() < 21) {
    POPRUN_ASSIGN(w, per_channel(node, w, groups, shape[1]));
    POPRUN_ASSIGN(b, per_channel(node, b, groups, shape[1]));
  }
  const TensorId y = layers::group_norm(node.builder(), node.free_name(), x, w, b, groups, node.real("epsilon", 1e-5));
  POPRUN_TRY(node.builder().status());
  node.set(0, y, node.element(0));
  return {};
}

/// Computes x / sqrt(mean(x^2) + epsilon) * scale, where the mean is over the axis and all dimensions after it.
Status rms_normalization(Node& node) {
  const Shape shape = node.shape(0);
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", -1), shape.size()));
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  std::vector<std::int64_t> axes;
  for (std::size_t d = axis; d < shape.size(); ++d) {
    axes.push_back(static_cast<std::int64_t>(d));
  }
  POPRUN_ASSIGN(const TensorId squares, node.add("mul", {x, x}));
  const TensorId mean =
      layers::reduce(node.builder(), node.free_name(), layers::Reduction::kMean, squares, axes, /*keepdims=*/true);
  POPRUN_TRY(node.builder().status());
  POPRUN_ASSIGN(const TensorId small, node.fill({}, node.real("epsilon", 1e-5)));
  POPRUN_ASSIGN(TensorId divisor, node.add("add", {mean, small}));
  POPRUN_ASSIGN(divisor, node.add("sqrt", {divisor}));
  POPRUN_ASSIGN(const TensorId normalised, node.add("div", {x, divisor}));
  POPRUN_ASSIGN(TensorId scale, node.weight(1));
  POPRUN_ASSIGN(scale, node.row_major_of(scale));
  return node.set_result(node.add("mul", {normalised, scale}), node.element(0));
}

/// Divides x by its norm along an axis, and leaves vectors of zeros as they are.
Status lp_normalization(Node& node) {
  const std::int64_t p = node.integer("p", 2);
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", -1), node.shape(0).size()));
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  const TensorId norm =
      layers::reduce(node.builder(), node.free_name(), p == 1 ? layers::Reduction::kL1 : layers::Reduction::kL2, x,
                     {static_cast<std::int64_t>(axis)}, /*keepdims=*/true);
  POPRUN_TRY(node.builder().status());
  POPRUN_ASSIGN(const TensorId zero, node.fill({}, 0));
  POPRUN_ASSIGN(const TensorId one, node.fill({}, 1));
  POPRUN_ASSIGN(const TensorId is_zero, node.add("equal", {norm, zero}));
  POPRUN_ASSIGN(const TensorId divisor, node.add("where", {is_zero, one, norm}));
  return node.set_result(node.add("div", {x, divisor}), node.element(0));
}

Status lrn(Node& node) {
  POPRUN_ASSIGN(TensorId x, channels_of(node));
  if (node.type(x).shape.size() == 2) {
    const Shape s = node.shape(0);
    POPRUN_ASSIGN(x, node.reshape(x, {s[0], s[1], 1, 1}, Layout::kChannelsLast));
  }
  POPRUN_ASSIGN(TensorId y, node.add("lrn", {x},
                                     {{"size", node.integer("size", 1)},
                                      {"alpha", node.real("alpha", 1e-4)},
                                      {"beta", node.real("beta", 0.75)},
                                      {"bias", node.real("bias", 1)}}));
  if (node.type(y).shape != node.shape(0)) {
    POPRUN_ASSIGN(y, node.reshape(y, node.shape(0)));
  }
  node.set(0, y);
  return {};
}

/// Returns the ratio, which is an attribute before opset 12 and an input from opset 12 on.
Result<double> dropout_ratio(Node& node) {
  if (!node.has(1)) {
    return node.real("ratio", 0.5);
  }
  POPRUN_ASSIGN(const float ratio, node.real_of(1));
  return static_cast<double>(ratio);
}

/// Sets the mask by applying dropout to ones, since the same key drops the same elements.
Status set_mask(Node& node, Layout layout, const Attributes& attributes) {
  POPRUN_ASSIGN(TensorId ones, node.fill(node.shape(0), 1));
  POPRUN_ASSIGN(ones, node.reshape(ones, node.shape(0), layout));
  POPRUN_ASSIGN(const TensorId kept, node.add("dropout", {ones}, attributes));
  POPRUN_ASSIGN(const TensorId zero, node.fill({}, 0));
  POPRUN_ASSIGN(const TensorId dropped, node.add("equal", {kept, zero}));
  POPRUN_ASSIGN(const TensorId one, node.fill({}, 1));
  POPRUN_ASSIGN(const TensorId mask, node.add("sub", {one, dropped}));
  node.set(1, mask, Proto::BOOL);
  return {};
}

/// Drops elements only in training. A job ignores the file's training_mode, which is the mode of the export. If nothing
/// is dropped, the mask is all ones.
Status dropout(Node& node) {
  POPRUN_ASSIGN(const double ratio, dropout_ratio(node));
  if (node.scope().training && ratio > 0) {
    POPRUN_ASSIGN(const TensorId x, node.tensor(0));
    const Attributes attributes{{"rate", ratio}, {"key", node.proto().output(0) + node.scope().step}};
    POPRUN_ASSIGN(const TensorId y, node.add("dropout", {x}, attributes));
    if (node.wants_output(1)) {
      POPRUN_TRY(set_mask(node, node.type(x).layout, attributes));
    }
    node.set(0, y);
    return {};
  }
  if (node.scope().as_written && node.has(2)) {
    POPRUN_ASSIGN(const float training, node.real_of(2));
    if (training != 0 && ratio != 0) {
      return node.unsupported("dropout outside training");
    }
  }
  if (node.wants_output(1)) {
    POPRUN_ASSIGN(const TensorId mask, node.fill(node.shape(0), 1));
    node.set(1, mask, node.opset() < 10 ? node.element(0) : Element{Proto::BOOL});
  }
  node.pass(0, 0);
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"BatchNormalization", 5, batch_normalization},
          {"LayerNormalization", 2, layer_normalization},
          {"InstanceNormalization", 3, instance_normalization},
          {"GroupNormalization", 3, group_normalization},
          {"RMSNormalization", 2, rms_normalization},
          {"LpNormalization", 1, lp_normalization},
          {"LRN", 1, lrn},
          {"Dropout", 1, dropout}};
}

}  // namespace poprun::onnx_import::nodes::normalization
