#include <fmt/format.h>

#include "replica/models/onnx/node.h"

/// Random numbers: RandomNormal, RandomUniform, both like another tensor, Bernoulli and Multinomial. They are drawn by
/// the job's generator, which replaces the attribute `seed`, and are different in every step, micro-batch and replica.
namespace poprun::onnx_import::nodes::random {
namespace {

using Proto = ::onnx::TensorProto;

/// Returns numbers that stay in float32 in half precision. Errors: kUsage where the results must be those of a file.
Result<TensorId> drawn(Node& node, const std::string& kind, Shape shape) {
  if (node.scope().as_written) {
    return node.unsupported("random numbers, which cannot be those of another generator");
  }
  POPRUN_TRY(checked_elements(shape));
  POPRUN_ASSIGN(const TensorId y, node.add(kind, {}, {{"shape", std::move(shape)}, {"key", node.step_name()}}));
  node.builder().keep_f32(y);
  return y;
}

/// Returns the type of the result: the attribute dtype or, failing that, that of input 0.
Element element_of(Node& node, bool like) {
  const Element otherwise = like ? node.element(0) : Element{Proto::FLOAT};
  return static_cast<Element>(node.integer("dtype", otherwise));
}

/// Returns numbers times `scale` plus `shift`.
Status set_drawn(Node& node, const std::string& kind, double scale, double shift, bool like) {
  const Element element = element_of(node, like);
  if (!is_real(element)) {
    return node.unsupported(
        fmt::format("dtype = {}; available: float, double, float16, bfloat16", element_name(element)));
  }
  POPRUN_ASSIGN(TensorId y, drawn(node, kind, like ? node.shape(0) : node.integers("shape")));
  if (scale != 1) {
    POPRUN_ASSIGN(const TensorId factor, node.fill({}, scale));
    POPRUN_ASSIGN(y, node.add("mul", {y, factor}));
  }
  if (shift != 0) {
    POPRUN_ASSIGN(const TensorId term, node.fill({}, shift));
    POPRUN_ASSIGN(y, node.add("add", {y, term}));
  }
  node.set(0, y, element);
  return {};
}

template <bool like>
Status uniform(Node& node) {
  const double low = node.real("low", 0);
  return set_drawn(node, "random_uniform", node.real("high", 1) - low, low, like);
}

template <bool like>
Status normal(Node& node) {
  return set_drawn(node, "random_normal", node.real("scale", 1), node.real("mean", 0), like);
}

/// Draws 1 with the probability x, else 0. No gradient passes.
Status bernoulli(Node& node) {
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  POPRUN_ASSIGN(const TensorId u, drawn(node, "random_uniform", node.shape(0)));
  POPRUN_ASSIGN(TensorId y, node.add("greater", {x, u}));
  const Element element = element_of(node, /*like=*/true);
  if (is_integer(element)) {
    POPRUN_ASSIGN(y, node.to_integers(y));
  }
  node.set(0, y, element);
  return {};
}

/// Draws `sample_size` classes of each row of log-probabilities [N,C]: the largest of x - ln(-ln(u)) with uniform u
/// (Gumbel, "Statistical theory of extreme values", 1954).
Status multinomial(Node& node) {
  const Shape s = node.shape(0);
  const std::int64_t samples = node.integer("sample_size", 1);
  if (s.size() != 2 || samples < 1 || samples > kMostElements) {
    return node.wrong("needs log-probabilities [N,C] and a sample_size of at least 1");
  }
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  POPRUN_ASSIGN(x, node.reshape(x, {s[0], 1, s[1]}));
  POPRUN_ASSIGN(TensorId noise, drawn(node, "random_uniform", {s[0], samples, s[1]}));
  for (const char* kind : {"log", "neg", "log", "neg"}) {
    POPRUN_ASSIGN(noise, node.add(kind, {noise}));
    node.builder().keep_f32(noise);
  }
  POPRUN_ASSIGN(TensorId y, node.add("add", {x, noise}));
  node.builder().keep_f32(y);
  POPRUN_ASSIGN(y, node.add("arg_max", {y}, {{"axis", std::int64_t{2}}, {"last", std::int64_t{0}}}));
  POPRUN_ASSIGN(y, node.reshape(y, {s[0], samples}));
  node.set(0, y, static_cast<Element>(node.integer("dtype", Proto::INT32)));
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"RandomUniform", 0, uniform<false>}, {"RandomUniformLike", 1, uniform<true>},
          {"RandomNormal", 0, normal<false>},   {"RandomNormalLike", 1, normal<true>},
          {"Bernoulli", 1, bernoulli},          {"Multinomial", 1, multinomial}};
}

}  // namespace poprun::onnx_import::nodes::random
