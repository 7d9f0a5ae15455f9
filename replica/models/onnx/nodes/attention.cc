#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "replica/models/layers/shapes.h"
#include "replica/models/onnx/node.h"

/// Attention and RotaryEmbedding, composed of products, softmax and elementwise operators.
namespace poprun::onnx_import::nodes::attention {
namespace {

using Proto = ::onnx::TensorProto;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Returns input i as [N,heads,L,D]. A tensor [N,L,heads D] has the number of heads in an attribute.
Result<TensorId> heads_of(Node& node, std::size_t i, const std::string& attribute) {
  POPRUN_ASSIGN(TensorId x, node.row_major(i));
  const Shape shape = node.type(x).shape;
  if (shape.size() == 4) {
    return x;
  }
  const std::int64_t heads = node.integer(attribute, 0);
  if (shape.size() != 3 || heads < 1 || shape[2] % heads != 0) {
    return node.wrong(
        fmt::format("needs inputs [N,heads,L,D], or [N,L,heads D] with {} that divides the last axis", attribute));
  }
  POPRUN_ASSIGN(x, node.reshape(x, {shape[0], shape[1], heads, shape[2] / heads}));
  return node.transpose(x, {0, 2, 1, 3});
}

/// Appends x [N,heads,L,D] to the past input i, if it is given.
Result<TensorId> with_past(Node& node, std::size_t i, TensorId x) {
  if (!node.has(i)) {
    return x;
  }
  POPRUN_ASSIGN(const TensorId past, node.row_major(i));
  return node.add("concat", {past, x}, {{"axis", std::int64_t{2}}});
}

/// Repeats each head of x [N,H,L,D] for the queries that share it: [N,heads,L,D].
Result<TensorId> shared_heads(Node& node, TensorId x, std::int64_t heads) {
  const Shape s = node.type(x).shape;
  if (s[1] == heads) {
    return x;
  }
  if (heads % s[1] != 0) {
    return node.wrong(fmt::format("{} heads of queries cannot share {} heads of keys", heads, s[1]));
  }
  POPRUN_ASSIGN(x, node.reshape(x, {s[0] * s[1], 1, s[2] * s[3]}));
  POPRUN_ASSIGN(x, node.expand(x, {s[0] * s[1], heads / s[1], s[2] * s[3]}));
  return node.reshape(x, {s[0], heads, s[2], s[3]});
}

/// Returns what is added to the scores: 0, or -inf where a query does not see a key. Nothing if every query sees all.
Result<std::optional<TensorId>> bias_of(Node& node, std::int64_t queries, std::int64_t keys, std::int64_t past) {
  std::optional<TensorId> bias;
  if (node.has(3)) {
    POPRUN_ASSIGN(TensorId mask, node.row_major(3));
    if (node.element(3) == Proto::BOOL) {
      POPRUN_ASSIGN(const TensorId sees, node.fill({}, 0));
      POPRUN_ASSIGN(const TensorId hidden, node.fill({}, -kInfinity));
      POPRUN_ASSIGN(mask, node.add("where", {mask, sees, hidden}));
    }
    Shape shape = node.type(mask).shape;
    if (shape.empty() || shape.back() > keys) {
      return node.wrong("needs a mask with at most as many columns as there are keys");
    }
    if (shape.back() < keys) {  // A mask with a single column is padded, too, as in ONNX's reference.
      Shape end(shape.size(), 0);
      end.back() = keys - shape.back();
      POPRUN_ASSIGN(mask, node.add("pad", {mask},
                                   {{"begin", Shape(shape.size(), 0)},
                                    {"end", end},
                                    {"mode", std::string{"constant"}},
                                    {"value", -kInfinity}}));
    }
    bias = mask;
  }
  if (node.integer("is_causal", 0) != 0 && !bias && past == 0 && queries == keys) {
    POPRUN_ASSIGN(bias, node.add("causal_mask", {}, {{"size", keys}}));
  } else if (node.integer("is_causal", 0) != 0) {
    std::vector<float> values(static_cast<std::size_t>(queries * keys), 0);
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = i + past + 1; j < keys; ++j) {
        values[static_cast<std::size_t>(i * keys + j)] = -std::numeric_limits<float>::infinity();
      }
    }
    POPRUN_ASSIGN(TensorId causal,
                  node.device_constant(Constant::of_reals(std::move(values), {queries, keys}), ".causal"));
    if (bias) {
      POPRUN_ASSIGN(causal, node.add("add", {*bias, causal}));
    }
    bias = causal;
  }
  return bias;
}

/// Applies softmax to scores + bias. A row in which every key is hidden becomes zero.
Result<TensorId> probabilities(Node& node, TensorId scores, TensorId bias) {
  if (!node.has(3)) {  // A causal mask hides no row.
    POPRUN_ASSIGN(const TensorId masked, node.add("add", {scores, bias}));
    return node.add("softmax", {masked});
  }
  const auto last = static_cast<std::int64_t>(node.type(bias).shape.size()) - 1;
  const TensorId highest =
      layers::reduce(node.builder(), node.free_name(), layers::Reduction::kMax, bias, {last}, true);
  POPRUN_TRY(node.builder().status());
  POPRUN_ASSIGN(const TensorId hidden, node.fill({}, -kInfinity));
  POPRUN_ASSIGN(const TensorId is_hidden, node.add("equal", {highest, hidden}));
  POPRUN_ASSIGN(const TensorId zero, node.fill({}, 0));
  POPRUN_ASSIGN(const TensorId finite, node.add("where", {is_hidden, zero, bias}));
  POPRUN_ASSIGN(const TensorId masked, node.add("add", {scores, finite}));
  POPRUN_ASSIGN(const TensorId y, node.add("softmax", {masked}));
  return node.add("where", {is_hidden, zero, y});
}

Result<TensorId> times(Node& node, TensorId x, double factor) {
  POPRUN_ASSIGN(const TensorId f, node.fill({}, factor));
  return node.add("mul", {x, f});
}

/// Computes softmax(softcap(q k^T scale) + bias) v for each head. The cap comes before the mask, and modes 0 and 1 of
/// qk_matmul_output_mode give the capped scores, as in ONNX's reference implementation since 2026 and its test cases.
/// Texts of opsets 23 and 24 have the mask first.
Status attention(Node& node) {
  if (node.has(6)) {
    return node.unsupported("the input nonpad_kv_seqlen; pass a mask instead");
  }
  POPRUN_ASSIGN(const TensorId q, heads_of(node, 0, "q_num_heads"));
  POPRUN_ASSIGN(TensorId k, heads_of(node, 1, "kv_num_heads"));
  POPRUN_ASSIGN(TensorId v, heads_of(node, 2, "kv_num_heads"));
  POPRUN_ASSIGN(k, with_past(node, 4, k));
  POPRUN_ASSIGN(v, with_past(node, 5, v));
  node.set(1, k);
  node.set(2, v);
  const Shape queries = node.type(q).shape;
  const std::int64_t keys = node.type(k).shape[2];
  POPRUN_ASSIGN(k, shared_heads(node, k, queries[1]));
  POPRUN_ASSIGN(v, shared_heads(node, v, queries[1]));
  POPRUN_ASSIGN(TensorId scores, node.matmul(q, k, /*transpose_b=*/true));
  POPRUN_ASSIGN(scores, times(node, scores, node.real("scale", 1 / std::sqrt(static_cast<double>(queries[3])))));
  if (const double cap = node.real("softcap", 0); cap > 0) {
    POPRUN_ASSIGN(scores, times(node, scores, 1 / cap));
    POPRUN_ASSIGN(scores, node.add("tanh", {scores}));
    POPRUN_ASSIGN(scores, times(node, scores, cap));
  }
  POPRUN_ASSIGN(const auto bias, bias_of(node, queries[2], keys, node.has(4) ? node.shape(4)[2] : 0));
  POPRUN_ASSIGN(const TensorId weights, bias ? probabilities(node, scores, *bias) : node.add("softmax", {scores}));
  if (node.wants_output(3)) {
    const std::int64_t mode = node.integer("qk_matmul_output_mode", 0);
    if (mode == 2 && bias) {
      POPRUN_ASSIGN(scores, node.add("add", {scores, *bias}));
    }
    node.set(3, mode == 3 ? weights : scores);
  }
  POPRUN_ASSIGN(TensorId y, node.matmul(weights, v));
  if (node.shape(0).size() == 3) {
    POPRUN_ASSIGN(y, node.transpose(y, {0, 2, 1, 3}));
    POPRUN_ASSIGN(y, node.reshape(y, {queries[0], queries[2], node.type(y).elements() / queries[0] / queries[2]}));
  }
  node.set(0, y, node.element(0));
  return {};
}

Result<TensorId> part_of(Node& node, TensorId x, std::int64_t begin, std::int64_t count, std::int64_t step = 1) {
  return node.slice(x, static_cast<std::int64_t>(node.type(x).shape.size()) - 1, begin, count, step);
}

/// Returns a table of cosines or sines, input i, as [N or 1,L,1,D/2]: the row of each position.
Result<TensorId> table_of(Node& node, std::size_t i) {
  POPRUN_ASSIGN(TensorId table, node.row_major(i));
  if (node.has(3)) {
    POPRUN_ASSIGN(const TensorId positions, node.row_major(3));
    POPRUN_ASSIGN(table, node.add("gather", {table, positions}, {{"axis", std::int64_t{0}}}));
  }
  const Shape s = node.type(table).shape;
  if (s.size() != 3) {
    return node.wrong("needs tables [N,L,D/2], or [positions,D/2] with position_ids");
  }
  return node.reshape(table, {s[0], s[1], 1, s[2]});
}

/// Rotates pairs of elements by the angle of their position: the two halves of a head, or neighbours if interleaved.
Status rotary_embedding(Node& node) {
  POPRUN_ASSIGN(TensorId x, heads_of(node, 0, "num_heads"));
  POPRUN_ASSIGN(x, node.transpose(x, {0, 2, 1, 3}));  // [N,L,heads,D]
  const Shape shape = node.type(x).shape;
  const std::int64_t given = node.integer("rotary_embedding_dim", 0);
  const std::int64_t rotated = given == 0 ? shape[3] : given;
  if (rotated < 2 || rotated > shape[3] || rotated % 2 != 0) {
    return node.wrong(fmt::format("cannot rotate {} of {} elements", rotated, shape[3]));
  }
  const bool interleaved = node.integer("interleaved", 0) != 0;
  const std::int64_t half = rotated / 2;
  POPRUN_ASSIGN(const TensorId a, part_of(node, x, 0, half, interleaved ? 2 : 1));
  POPRUN_ASSIGN(const TensorId b, part_of(node, x, interleaved ? 1 : half, half, interleaved ? 2 : 1));
  POPRUN_ASSIGN(const TensorId cosine, table_of(node, 1));
  POPRUN_ASSIGN(const TensorId sine, table_of(node, 2));
  const auto combined = [&](const char* kind, TensorId with_cosine, TensorId with_sine) -> Result<TensorId> {
    POPRUN_ASSIGN(const TensorId c, node.add("mul", {with_cosine, cosine}));
    POPRUN_ASSIGN(const TensorId s, node.add("mul", {with_sine, sine}));
    return node.add(kind, {c, s});
  };
  POPRUN_ASSIGN(TensorId real, combined("sub", a, b));
  POPRUN_ASSIGN(TensorId imaginary, combined("add", b, a));
  if (interleaved) {
    for (TensorId* one : {&real, &imaginary}) {
      POPRUN_ASSIGN(*one, node.reshape(*one, {shape[0] * shape[1] * shape[2], half, 1}));
    }
  }
  const std::int64_t axis = interleaved ? 2 : 3;
  POPRUN_ASSIGN(TensorId y, node.add("concat", {real, imaginary}, {{"axis", axis}}));
  POPRUN_ASSIGN(y, node.reshape(y, {shape[0], shape[1], shape[2], rotated}));
  if (rotated < shape[3]) {
    POPRUN_ASSIGN(const TensorId rest, part_of(node, x, rotated, shape[3] - rotated));
    POPRUN_ASSIGN(y, node.add("concat", {y, rest}, {{"axis", std::int64_t{3}}}));
  }
  if (node.shape(0).size() == 3) {
    return node.set_result(node.reshape(y, node.shape(0)), node.element(0));
  }
  return node.set_result(node.transpose(y, {0, 2, 1, 3}), node.element(0));
}

}  // namespace

std::vector<Translator> translators() {
  return {{"Attention", 3, attention}, {"RotaryEmbedding", 3, rotary_embedding}};
}

}  // namespace poprun::onnx_import::nodes::attention
