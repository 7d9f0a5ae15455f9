#include "replica/models/layers/rearrange.h"

#include <algorithm>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/ops/shaped.h"

namespace poprun::layers {
namespace {

/// x reshaped to `split`, its dimensions permuted by `perm`, then reshaped to `shape` in x's
/// layout.
TensorId rearrange(Builder& builder, const std::string& name, TensorId x, const Shape& split,
                   const Shape& perm, const Shape& shape) {
  const Layout layout = builder.type(x).layout;
  const TensorId blocks = reshape(builder, name + ".blocks", x, split);
  const TensorId moved = builder.add_one("transpose", {blocks}, {{"perm", perm}}, name + ".moved");
  return reshape(builder, name, moved, shape, layout);
}

void refuse(Builder& builder, const std::string& name, const std::string& needed, TensorId x) {
  builder.refuse({ErrorCode::kUsage, fmt::format("{}: it needs {}; it got {}", name, needed,
                                                 to_text(builder.type(x)))});
}

}  // namespace

TensorId depth_to_space(Builder& builder, const std::string& name, TensorId x, std::int64_t block,
                        DepthOrder order) {
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
             ? rearrange(builder, name, x, {d[0], block, block, depth, d[2], d[3]},
                         {0, 3, 4, 1, 5, 2}, shape)
             : rearrange(builder, name, x, {d[0], depth, block, block, d[2], d[3]},
                         {0, 1, 4, 2, 5, 3}, shape);
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
  return rearrange(builder, name, x, {d[0], d[1], d[2] / block, block, d[3] / block, block},
                   {0, 3, 5, 1, 2, 4}, {d[0], d[1] * block * block, d[2] / block, d[3] / block});
}

TensorId tile(Builder& builder, const std::string& name, TensorId x, const Shape& repeats) {
  if (!builder.status()) {
    return x;
  }
  const Shape d = builder.type(x).shape;
  if (repeats.size() != d.size() ||
      std::ranges::any_of(repeats, [](std::int64_t r) { return r < 1; })) {
    refuse(builder, name, "one number of repeats >= 1 per dimension", x);
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

}  // namespace poprun::layers
