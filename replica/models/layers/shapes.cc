#include "replica/models/layers/shapes.h"

#include <algorithm>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/ops/face/shaped.h"

namespace poprun::layers {
namespace {

/// Reshapes x to `split`, permutes the dimensions by `perm`, then reshapes the result to `shape` in x's layout.
TensorId rearrange(Builder& builder, const std::string& name, TensorId x, const Shape& split, const Shape& perm,
                   const Shape& shape) {
  const Layout layout = builder.type(x).layout;
  const TensorId blocks = reshape(builder, name + ".blocks", x, split);
  const TensorId moved = builder.add_one("transpose", {blocks}, {{"perm", perm}}, name + ".moved");
  return reshape(builder, name, moved, shape, layout);
}

void refuse(Builder& builder, const std::string& name, const std::string& needed, TensorId x) {
  builder.refuse({ErrorCode::kUsage, fmt::format("{}: needs {}; given: {}", name, needed, to_text(builder.type(x)))});
}

/// Builds one reduction, all of whose steps keep x's rank and layout.
class Reducer {
 public:
  Reducer(Builder& builder, const std::string& name, const Shape& axes) : builder_(builder), name_(name), axes_(axes) {}

  TensorId build(Reduction reduction, TensorId x) {
    switch (reduction) {
      case Reduction::kSum:
        return sum(x);
      case Reduction::kMean:
        return mean(x);
      case Reduction::kMax:
        return step("reduce_max", {x}, {{"axes", axes_}}, ".max");
      case Reduction::kMin:
        return step("reduce_min", {x}, {{"axes", axes_}}, ".min");
      case Reduction::kProd:
        return step("reduce_prod", {x}, {{"axes", axes_}}, ".prod");
      case Reduction::kL1:
        return sum(step("abs", {x}, {}, ".abs"));
      case Reduction::kL2:
        return step("sqrt", {sum(step("mul", {x, x}, {}, ".square"))}, {}, ".sqrt");
      case Reduction::kSumSquare:
        return sum(step("mul", {x, x}, {}, ".square"));
      case Reduction::kLogSum:
        return step("log", {sum(x)}, {}, ".log");
      case Reduction::kLogSumExp:
        return log_sum_exp(x);
    }
    return x;
  }

 private:
  TensorId step(const std::string& kind, const std::vector<TensorId>& inputs, const Attributes& attributes,
                const std::string& suffix) {
    return builder_.add_one(kind, inputs, attributes, name_ + suffix);
  }

  TensorId sum(TensorId x) { return builder_.status() ? step("sum_to", {x}, to_result(x), ".sum") : x; }

  TensorId mean(TensorId x) {
    if (!builder_.status()) {
      return x;
    }
    Attributes attributes = to_result(x);
    const double all = static_cast<double>(builder_.type(x).elements());
    attributes.set("scale", static_cast<double>(result_of(x).elements()) / all);
    return step("sum_to", {x}, attributes, ".mean");
  }

  TensorType result_of(TensorId x) {
    TensorType y = builder_.type(x);
    for (const std::int64_t axis : axes_) {
      y.shape[static_cast<std::size_t>(axis)] = 1;
    }
    return y;
  }

  Attributes to_result(TensorId x) {
    const TensorType y = result_of(x);
    return shaped(y.shape, y.layout);
  }

  TensorId log_sum_exp(TensorId x) {
    const TensorId largest = step("reduce_max", {x}, {{"axes", axes_}}, ".max");
    const TensorId centred = step("sub", {x, largest}, {}, ".centred");
    const TensorId total = sum(step("exp", {centred}, {}, ".exp"));
    return step("add", {step("log", {total}, {}, ".log"), largest}, {}, ".log_sum_exp");
  }

  Builder& builder_;
  const std::string& name_;
  const Shape& axes_;
};

}  // namespace

TensorId depth_to_space(Builder& builder, const std::string& name, TensorId x, std::int64_t block, DepthOrder order) {
  if (!builder.status()) {
    return x;
  }
  const Shape d = builder.type(x).shape;
  if (d.size() != 4 || block < 1 || d[1] % (block * block) != 0) {
    refuse(builder, name, fmt::format("f32[N,C,H,W] with C a multiple of {0} * {0}", block), x);
    return x;
  }
  const std::int64_t depth = d[1] / (block * block);
  const Shape shape = {d[0], depth, d[2] * block, d[3] * block};
  return order == DepthOrder::kBlockFirst
             ? rearrange(builder, name, x, {d[0], block, block, depth, d[2], d[3]}, {0, 3, 4, 1, 5, 2}, shape)
             : rearrange(builder, name, x, {d[0], depth, block, block, d[2], d[3]}, {0, 1, 4, 2, 5, 3}, shape);
}

TensorId space_to_depth(Builder& builder, const std::string& name, TensorId x, std::int64_t block) {
  if (!builder.status()) {
    return x;
  }
  const Shape d = builder.type(x).shape;
  if (d.size() != 4 || block < 1 || d[2] % block != 0 || d[3] % block != 0) {
    refuse(builder, name, fmt::format("f32[N,C,H,W] with H and W multiples of {}", block), x);
    return x;
  }
  return rearrange(builder, name, x, {d[0], d[1], d[2] / block, block, d[3] / block, block}, {0, 3, 5, 1, 2, 4},
                   {d[0], d[1] * block * block, d[2] / block, d[3] / block});
}

TensorId tile(Builder& builder, const std::string& name, TensorId x, const Shape& repeats) {
  if (!builder.status()) {
    return x;
  }
  const Shape d = builder.type(x).shape;
  if (repeats.size() != d.size() || std::ranges::any_of(repeats, [](std::int64_t r) { return r < 1; })) {
    refuse(builder, name, "a number of repeats >= 1 for each dimension", x);
    return x;
  }
  Shape apart, repeated, shape;
  for (std::size_t i = 0; i < d.size(); ++i) {
    apart.insert(apart.end(), {1, d[i]});
    repeated.insert(repeated.end(), {repeats[i], d[i]});
    shape.push_back(repeats[i] * d[i]);
  }
  const TensorId pieces = reshape(builder, name + ".apart", x, apart);
  const TensorId copies = builder.add_one("expand", {pieces}, shaped(repeated), name + ".repeated");
  return reshape(builder, name, copies, shape);
}

TensorId reduce(Builder& builder, const std::string& name, Reduction reduction, TensorId x, const Shape& axes,
                bool keep_dims) {
  if (!builder.status()) {
    return x;
  }
  const Shape before = builder.type(x).shape;
  const auto rank = static_cast<std::int64_t>(before.size());
  if (std::ranges::any_of(axes, [&](std::int64_t axis) { return axis < 0 || axis >= rank; })) {
    builder.refuse({ErrorCode::kUsage, fmt::format("{}: a reduction needs axes from 0 to {}; given: axes {} of {}",
                                                   name, rank - 1, fmt::join(axes, ","), to_text(builder.type(x)))});
    return x;
  }
  const TensorId y = Reducer(builder, name, axes).build(reduction, x);
  if (keep_dims || !builder.status()) {
    return y;
  }
  Shape shape;
  for (std::size_t d = 0; d < before.size(); ++d) {
    if (std::ranges::find(axes, static_cast<std::int64_t>(d)) == axes.end()) {
      shape.push_back(before[d]);
    }
  }
  return reshape(builder, name, y, shape);
}

}  // namespace poprun::layers
