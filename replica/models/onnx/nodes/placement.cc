#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "replica/models/onnx/node.h"
#include "replica/models/onnx/window.h"

/// Operators that pick elements or put them in other places: Compress, ReverseSequence, TensorScatter, Col2Im and
/// MaxUnpool.
namespace poprun::onnx_import::nodes::placement {
namespace {

using Proto = ::onnx::TensorProto;

std::int64_t product(const Shape& shape, std::size_t begin, std::size_t end) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(begin),
                         shape.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{1}, std::multiplies<>{});
}

/// Keeps the rows along an axis for which a condition holds. Without an axis, x is flattened.
Status compress(Node& node) {
  POPRUN_ASSIGN(const auto condition, node.constant(1));
  if (condition->real() || condition->shape.size() != 1) {
    return node.wrong("needs a list of bools");
  }
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  std::size_t axis = 0;
  if (node.has_attribute("axis")) {
    POPRUN_ASSIGN(axis, normal_axis(node.integer("axis", 0), node.shape(0).size()));
  } else {
    POPRUN_ASSIGN(x, node.reshape(x, {node.type(x).elements()}));
  }
  std::vector<std::int64_t> kept;
  for (std::int64_t i = 0; i < condition->elements(); ++i) {
    if (condition->integer_at(i) != 0) {
      kept.push_back(i);
    }
  }
  if (kept.empty()) {
    return node.unsupported("a tensor without elements");
  }
  if (kept.back() >= node.type(x).shape[axis]) {
    return node.wrong(fmt::format("element {} of the condition is beyond the end of the axis", kept.back()));
  }
  const auto n = static_cast<std::int64_t>(kept.size());
  POPRUN_ASSIGN(const TensorId rows, node.device_constant(Constant::of_integers(std::move(kept), {n}), "rows"));
  POPRUN_ASSIGN(const TensorId y, node.on_reals(x, [&](TensorId reals) {
    return node.add("gather", {reals, rows}, {{"axis", static_cast<std::int64_t>(axis)}});
  }));
  node.set(0, y, node.element(0));
  return {};
}

/// Returns 0, 1, .., n - 1 as f32[1,n].
Result<TensorId> counted_to(Node& node, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0.0F);
  return node.device_constant(Constant::of_reals(std::move(values), {1, n}), "positions");
}

/// Adds an operation on whole numbers, which stay exact because they are kept in float32.
Result<TensorId> exact(Node& node, const std::string& kind, std::vector<TensorId> inputs) {
  POPRUN_ASSIGN(const TensorId y, node.add(kind, std::move(inputs)));
  node.builder().keep_f32(y);
  return y;
}

/// Returns input i, a list of integers, as f32[n,1].
Result<TensorId> column_of(Node& node, std::size_t i) {
  POPRUN_ASSIGN(TensorId x, node.row_major(i));
  POPRUN_ASSIGN(x, node.to_reals(x));
  return node.reshape(x, {node.type(x).elements(), 1});
}

/// Returns x [B,T,...] with rows [b,t] replaced by row [b, rows[b,t]]; `rows` is f32[B,t].
Result<TensorId> rows_of(Node& node, TensorId x, TensorId rows) {
  POPRUN_ASSIGN(const TensorId indices, node.to_integers(rows));
  return node.on_reals(x, [&](TensorId reals) {
    return node.add("gather", {reals, indices}, {{"axis", std::int64_t{1}}, {"batch_dims", std::int64_t{1}}});
  });
}

/// Reverses the first `sequence_lens[b]` steps of sequence b: step t comes from step length - 1 - t.
Status reverse_sequence(Node& node) {
  const std::int64_t time_axis = node.integer("time_axis", 0);
  const std::int64_t batch_axis = node.integer("batch_axis", 1);
  const Shape s = node.shape(0);
  if (s.size() < 2 || time_axis + batch_axis != 1 || time_axis * batch_axis != 0) {
    return node.wrong("needs a batch axis and a time axis, one of which is 0 and the other 1");
  }
  std::vector<std::int64_t> perm(s.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[0], perm[static_cast<std::size_t>(batch_axis)]);
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  POPRUN_ASSIGN(x, node.transpose(x, perm));
  const std::int64_t T = node.type(x).shape[1];
  if (node.shape(1) != Shape{node.type(x).shape[0]}) {
    return node.wrong("needs a length for each sequence");
  }
  POPRUN_ASSIGN(const TensorId lengths, column_of(node, 1));
  POPRUN_ASSIGN(const TensorId t, counted_to(node, T));
  POPRUN_ASSIGN(const TensorId one, node.fill({}, 1));
  POPRUN_ASSIGN(TensorId mirrored, exact(node, "sub", {lengths, one}));
  POPRUN_ASSIGN(mirrored, exact(node, "sub", {mirrored, t}));
  POPRUN_ASSIGN(const TensorId within, node.add("greater", {lengths, t}));
  POPRUN_ASSIGN(const TensorId rows, exact(node, "where", {within, mirrored, t}));
  POPRUN_ASSIGN(TensorId y, rows_of(node, x, rows));
  POPRUN_ASSIGN(y, node.transpose(y, perm));
  node.set(0, y, node.element(0));
  return {};
}

/// Writes L rows of `update` into a cache [B,...,S,...] from row `write_indices[b]` on, which may wrap around: row s
/// comes from row s - write_indices[b] of the update if the node has this input.
Status tensor_scatter(Node& node) {
  const Shape s = node.shape(0);
  const Shape u = node.shape(1);
  const bool circular = node.text("mode", "linear") == "circular";
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", -2), s.size()));
  if (u.size() != s.size() || axis == 0 || u[axis] > s[axis] || (node.has(2) && node.shape(2) != Shape{s[0]})) {
    return node.wrong("needs an update no longer than the cache along the axis, and an index for each sequence");
  }
  std::vector<std::int64_t> perm(s.size());  // Moves the axis behind the batch.
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin() + 1, perm.begin() + static_cast<std::ptrdiff_t>(axis),
              perm.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
  std::vector<std::int64_t> back(s.size());
  for (std::size_t d = 0; d < perm.size(); ++d) {
    back[static_cast<std::size_t>(perm[d])] = static_cast<std::int64_t>(d);
  }
  POPRUN_ASSIGN(TensorId cache, node.row_major(0));
  POPRUN_ASSIGN(TensorId update, node.row_major(1));
  POPRUN_ASSIGN(cache, node.transpose(cache, perm));
  POPRUN_ASSIGN(update, node.transpose(update, perm));
  TensorId from{};
  if (node.has(2)) {
    POPRUN_ASSIGN(from, column_of(node, 2));
  } else {
    POPRUN_ASSIGN(from, node.fill({s[0], 1}, 0));
  }
  POPRUN_ASSIGN(const TensorId place, counted_to(node, s[axis]));
  POPRUN_ASSIGN(TensorId row, exact(node, "sub", {place, from}));
  POPRUN_ASSIGN(const TensorId zero, node.fill({}, 0));
  POPRUN_ASSIGN(const TensorId length, node.fill({}, static_cast<double>(u[axis])));
  if (circular) {
    POPRUN_ASSIGN(const TensorId size, node.fill({}, static_cast<double>(s[axis])));
    POPRUN_ASSIGN(row, exact(node, "mod", {row, size}));
  }
  POPRUN_ASSIGN(const TensorId begun, node.add("greater_equal", {row, zero}));
  POPRUN_ASSIGN(const TensorId open, node.add("greater", {length, row}));
  POPRUN_ASSIGN(TensorId written, node.add("mul", {begun, open}));
  POPRUN_ASSIGN(row, exact(node, "where", {written, row, zero}));
  POPRUN_ASSIGN(const TensorId rows, rows_of(node, update, row));
  Shape mask(s.size(), 1);
  mask[0] = s[0];
  mask[1] = s[axis];
  POPRUN_ASSIGN(written, node.reshape(written, mask));
  POPRUN_ASSIGN(TensorId y, node.add_as_reals("where", {written, rows, cache}));
  POPRUN_ASSIGN(y, node.transpose(y, back));
  node.set(0, y, node.element(0));
  return {};
}

/// The places to which Col2Im adds its columns.
struct Blocks {
  Shape padded;                      ///< [d] sizes of the image with its padding.
  std::vector<std::int64_t> places;  ///< For each element of a block and each block: its place in the padded image.
  std::int64_t blocks = 1;
};

Result<Blocks> blocks_of(Node& node, const Shape& image, const Shape& block) {
  const std::size_t d = image.size();
  POPRUN_ASSIGN(const Shape stride, node.sizes("strides", d, 1, 1));
  POPRUN_ASSIGN(const Shape dilation, node.sizes("dilations", d, 1, 1));
  POPRUN_ASSIGN(const Shape pad, node.sizes("pads", 2 * d, 0, 0));
  Blocks b;
  Shape counts;
  for (std::size_t k = 0; k < d; ++k) {
    b.padded.push_back(image[k] + pad[k] + pad[k + d]);
    counts.push_back((b.padded[k] - dilation[k] * (block[k] - 1) - 1) / stride[k] + 1);
    if (b.padded[k] < dilation[k] * (block[k] - 1) + 1) {
      return node.wrong("the block is larger than the padded image");
    }
    b.blocks *= counts[k];
  }
  POPRUN_TRY(checked_elements(b.padded));
  POPRUN_ASSIGN(const std::int64_t n, checked_elements({product(block, 0, d), b.blocks}));
  b.places.resize(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t element = i / b.blocks;
    std::int64_t at = i % b.blocks;
    std::int64_t below = 1;  // Places per step along the dimension.
    for (std::size_t k = d; k-- > 0;) {
      b.places[static_cast<std::size_t>(i)] += (at % counts[k] * stride[k] + element % block[k] * dilation[k]) * below;
      below *= b.padded[k];
      at /= counts[k];
      element /= block[k];
    }
  }
  return b;
}

/// Adds up columns [N,C K,L], the K elements of L overlapping blocks, in an image [N,C,...]: the inverse of unfolding.
Status col2im(Node& node) {
  POPRUN_ASSIGN(const auto image, node.integers_of(1));
  POPRUN_ASSIGN(const auto block, node.integers_of(2));
  const Shape s = node.shape(0);
  if (image.empty() || block.size() != image.size() || s.size() != 3 || std::ranges::min(image) < 1 ||
      std::ranges::min(block) < 1 || std::ranges::max(image) > kMostElements ||
      std::ranges::max(block) > kMostElements) {
    return node.wrong("needs columns [N,C K,L], and a block with as many dimensions as the image");
  }
  POPRUN_TRY(checked_elements(block));
  const std::int64_t K = product(block, 0, block.size());
  POPRUN_ASSIGN(Blocks blocks, blocks_of(node, image, block));
  if (s[1] % K != 0 || s[2] != blocks.blocks) {
    return node.wrong(fmt::format("needs columns [N,C*{},{}] for this image and block", K, blocks.blocks));
  }
  const std::int64_t channels = s[0] * s[1] / K;
  const std::int64_t pixels = product(blocks.padded, 0, image.size());
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  POPRUN_ASSIGN(x, node.reshape(x, {channels, K * s[2]}));
  POPRUN_ASSIGN(x, node.transpose(x, {1, 0}));
  POPRUN_ASSIGN(const TensorId places,
                node.device_constant(Constant::of_integers(std::move(blocks.places), {K * s[2], 1}), "places"));
  POPRUN_ASSIGN(const TensorId none, node.fill({pixels, channels}, 0));
  POPRUN_ASSIGN(TensorId y, node.add("scatter_nd", {none, places, x},
                                     {{"batch_dims", std::int64_t{0}}, {"reduction", std::string{"add"}}}));
  POPRUN_ASSIGN(y, node.transpose(y, {1, 0}));
  Shape shape = {s[0], s[1] / K};
  shape.insert(shape.end(), blocks.padded.begin(), blocks.padded.end());
  POPRUN_ASSIGN(y, node.reshape(y, shape));
  POPRUN_ASSIGN(const Shape pad, node.sizes("pads", 2 * image.size(), 0, 0));
  for (std::size_t k = 0; k < image.size(); ++k) {
    if (image[k] != blocks.padded[k]) {
      POPRUN_ASSIGN(y, node.slice(y, static_cast<std::int64_t>(k) + 2, pad[k], image[k]));
    }
  }
  return node.set_result(y, node.element(0));
}

/// Puts the elements of x back where MaxPool found them: `indices` (input 1) are places in the flattened result.
Status max_unpool(Node& node) {
  const Shape s = node.shape(0);
  if (s.size() < 3 || node.shape(1) != s || !node.has_attribute("kernel_shape")) {
    return node.wrong("needs x [N,C,...], indices of its shape, and a kernel_shape");
  }
  const std::size_t d = s.size() - 2;
  POPRUN_ASSIGN(const Shape kernel, node.sizes("kernel_shape", d, 1, 1));
  POPRUN_ASSIGN(const Shape stride, node.sizes("strides", d, 1, 1));
  POPRUN_ASSIGN(const Shape pad, node.sizes("pads", 2 * d, 0, 0));
  Shape size = {s[0], s[1]};
  for (std::size_t k = 0; k < d; ++k) {
    size.push_back((s[k + 2] - 1) * stride[k] + kernel[k] - pad[k] - pad[k + d]);
  }
  POPRUN_ASSIGN(const std::int64_t elements, checked_elements(size));
  const std::int64_t n = product(s, 0, s.size());
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  POPRUN_ASSIGN(x, node.reshape(x, {n}));
  POPRUN_ASSIGN(TensorId places, node.row_major(1));
  POPRUN_ASSIGN(places, node.reshape(places, {n, 1}));
  POPRUN_ASSIGN(const TensorId none, node.fill({elements}, 0));
  POPRUN_ASSIGN(TensorId y, node.add("scatter_nd", {none, places, x},
                                     {{"batch_dims", std::int64_t{0}}, {"reduction", std::string{"none"}}}));
  POPRUN_ASSIGN(y, node.reshape(y, size));
  if (node.has(2)) {
    POPRUN_ASSIGN(const auto wanted, node.integers_of(2));
    Shape more(s.size(), 0);
    for (std::size_t k = 0; k < s.size(); ++k) {
      if (wanted.size() != s.size() || wanted[k] < size[k] || wanted[k] > kMostElements) {
        return node.unsupported("an output_shape that is smaller than what the kernel and strides give");
      }
      more[k] = wanted[k] - size[k];
    }
    if (more != Shape(s.size(), 0)) {
      POPRUN_ASSIGN(
          y,
          node.add("pad", {y},
                   {{"begin", Shape(s.size(), 0)}, {"end", more}, {"mode", std::string{"constant"}}, {"value", 0.0}}));
    }
  }
  return node.set_result(y, node.element(0));
}

}  // namespace

std::vector<Translator> translators() {
  return {{"Compress", 2, compress},
          {"ReverseSequence", 2, reverse_sequence},
          {"TensorScatter", 2, tensor_scatter},
          {"Col2Im", 3, col2im},
          {"MaxUnpool", 2, max_unpool}};
}

}  // namespace poprun::onnx_import::nodes::placement
