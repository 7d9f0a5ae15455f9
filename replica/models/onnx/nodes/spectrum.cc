#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include <fmt/format.h>

#include "replica/models/onnx/node.h"

/// Spectra: DFT and STFT, as products with tables of sines and cosines, and the constants that go with them: windows
/// (HannWindow, HammingWindow, BlackmanWindow) and MelWeightMatrix.
namespace poprun::onnx_import::nodes::spectrum {
namespace {

using Proto = ::onnx::TensorProto;

constexpr double kTwoPi = 2 * std::numbers::pi;

/// A transform of n numbers, real (parts = 1) or complex, as a matrix [n parts, bins parts_out].
struct Transform {
  std::int64_t n;       ///< Numbers given.
  std::int64_t parts;   ///< 1 or 2: the real and the imaginary part.
  std::int64_t length;  ///< Numbers transformed: zeros follow the given ones, or the last ones are left out.
  bool inverse = false;
  bool onesided = false;

  [[nodiscard]] bool gives_reals() const { return inverse && onesided; }
  [[nodiscard]] std::int64_t bins() const { return onesided && !inverse ? length / 2 + 1 : length; }
  [[nodiscard]] std::int64_t parts_out() const { return gives_reals() ? 1 : 2; }

  /// Returns how often number t counts: a one-sided spectrum leaves out the conjugates.
  [[nodiscard]] double multiplicity(std::int64_t t) const {
    if (!gives_reals()) {
      return t < length ? 1 : 0;
    }
    return t > length / 2 ? 0 : t == 0 || 2 * t == length ? 1 : 2;
  }

  [[nodiscard]] std::vector<float> matrix() const {
    std::vector<float> m(static_cast<std::size_t>(n * parts * bins() * parts_out()));
    const auto at = [&](std::int64_t t, std::int64_t part, std::int64_t k, std::int64_t to) -> float& {
      return m[static_cast<std::size_t>(((t * parts + part) * bins() + k) * parts_out() + to)];
    };
    for (std::int64_t t = 0; t < n; ++t) {
      const double factor = multiplicity(t) / (inverse ? static_cast<double>(length) : 1);
      for (std::int64_t k = 0; k < bins(); ++k) {
        const double angle = kTwoPi * static_cast<double>(t * k % length) / static_cast<double>(length);
        const double cosine = factor * std::cos(angle);
        const double sine =
            factor * std::sin(angle) * (inverse ? 1 : -1);  // The imaginary part of exp(i angle) or exp(-i angle).
        at(t, 0, k, 0) = static_cast<float>(cosine);
        if (parts == 2) {
          at(t, 1, k, 0) = static_cast<float>(-sine);
        }
        if (parts_out() == 2) {
          at(t, 0, k, 1) = static_cast<float>(sine);
        }
        if (parts == 2 && parts_out() == 2) {
          at(t, 1, k, 1) = static_cast<float>(cosine);
        }
      }
    }
    return m;
  }
};

/// Multiplies rows x [.., n parts] by the transform: [.., bins parts_out].
Result<TensorId> transformed(Node& node, TensorId x, const Transform& transform) {
  const Shape shape = {transform.n * transform.parts, transform.bins() * transform.parts_out()};
  POPRUN_ASSIGN(const std::int64_t elements, checked_elements(shape));
  if (elements > kMostFolded) {
    return node.unsupported(
        fmt::format("a transform of {} numbers, whose table has more than {} elements", transform.length, kMostFolded));
  }
  POPRUN_ASSIGN(const TensorId table, node.device_constant(Constant::of_reals(transform.matrix(), shape), "table"));
  return node.matmul(x, table);
}

/// Returns a single integer of input i, or `otherwise` if it is left out.
Result<std::int64_t> number_of(Node& node, std::size_t i, std::int64_t otherwise) {
  if (!node.has(i)) {
    return otherwise;
  }
  POPRUN_ASSIGN(const auto given, node.integers_of(i));
  if (given.size() != 1) {
    return node.wrong("needs a single number");
  }
  return given[0];
}

Status dft(Node& node) {
  const Shape s = node.shape(0);
  if (s.size() < 2 || s.back() < 1 || s.back() > 2) {
    return node.wrong("needs an input [...,1] of reals or [...,2] of complex numbers");
  }
  std::int64_t given = node.integer("axis", 1);
  if (node.opset() >= 20) {
    POPRUN_ASSIGN(given, number_of(node, 2, -2));
  }
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(given, s.size()));
  if (axis + 1 == s.size()) {
    return node.wrong("cannot transform the axis of the real and imaginary parts");
  }
  Transform transform{.n = s[axis],
                      .parts = s.back(),
                      .length = s[axis],
                      .inverse = node.integer("inverse", 0) != 0,
                      .onesided = node.integer("onesided", 0) != 0};
  if (transform.gives_reals()) {
    transform.length = 2 * (transform.n - 1);
  }
  POPRUN_ASSIGN(transform.length, number_of(node, 1, transform.length));
  if (transform.length < 1 || transform.length > kMostElements) {
    return node.wrong(fmt::format("dft_length = {} is out of range", transform.length));
  }
  if (transform.onesided && transform.parts != (transform.inverse ? 2 : 1)) {
    return node.wrong("onesided needs an input of reals or, for the inverse, of complex numbers");
  }
  std::vector<std::int64_t> perm(s.size());  // Moves the axis to the end, before the parts.
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin() + static_cast<std::ptrdiff_t>(axis), perm.begin() + static_cast<std::ptrdiff_t>(axis) + 1,
              perm.end() - 1);
  std::vector<std::int64_t> back(perm.size());
  for (std::size_t d = 0; d < perm.size(); ++d) {
    back[static_cast<std::size_t>(perm[d])] = static_cast<std::int64_t>(d);
  }
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  POPRUN_ASSIGN(x, node.transpose(x, perm));
  Shape shape = node.type(x).shape;
  POPRUN_ASSIGN(
      x, node.reshape(x, {node.type(x).elements() / transform.n / transform.parts, transform.n * transform.parts}));
  POPRUN_ASSIGN(x, transformed(node, x, transform));
  shape[shape.size() - 2] = transform.bins();
  shape.back() = transform.parts_out();
  POPRUN_ASSIGN(x, node.reshape(x, shape));
  return node.set_result(node.transpose(x, back), node.element(0));
}

/// Transforms overlapping frames of a signal [N,L,1] or [N,L,2]: [N,frames,bins,2].
Status stft(Node& node) {
  const Shape s = node.shape(0);
  if ((s.size() != 2 && s.size() != 3) || (s.size() == 3 && (s[2] < 1 || s[2] > 2))) {
    return node.wrong("needs a signal [N,L], [N,L,1] or [N,L,2]");
  }
  const std::int64_t parts = s.size() == 3 ? s[2] : 1;
  POPRUN_ASSIGN(const std::int64_t step, number_of(node, 1, 1));
  std::int64_t length = node.has(2) ? node.shape(2)[0] : s[1];
  POPRUN_ASSIGN(length, number_of(node, 3, length));
  if (step < 1 || length < 1 || length > s[1] || (node.has(2) && node.shape(2) != Shape{length})) {
    return node.wrong("needs a frame_step of at least 1, and frames no longer than the signal, with a window as long");
  }
  const Transform transform{
      .n = length, .parts = parts, .length = length, .onesided = parts == 1 && node.integer("onesided", 1) != 0};
  const std::int64_t frames = (s[1] - length) / step + 1;
  POPRUN_TRY(checked_elements({s[0], frames, length, parts}));
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < frames * length; ++i) {
    places.push_back(i / length * step + i % length);
  }
  POPRUN_ASSIGN(const TensorId indices,
                node.device_constant(Constant::of_integers(std::move(places), {frames, length}), "frames"));
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  POPRUN_ASSIGN(x, node.reshape(x, {s[0], s[1], parts}));
  POPRUN_ASSIGN(x, node.add("gather", {x, indices}, {{"axis", std::int64_t{1}}}));
  if (node.has(2)) {
    POPRUN_ASSIGN(TensorId window, node.row_major(2));
    POPRUN_ASSIGN(window, node.reshape(window, {length, 1}));
    POPRUN_ASSIGN(x, node.add("mul", {x, window}));
  }
  POPRUN_ASSIGN(x, node.reshape(x, {s[0] * frames, length * parts}));
  POPRUN_ASSIGN(x, transformed(node, x, transform));
  return node.set_result(node.reshape(x, {s[0], frames, transform.bins(), 2}), node.element(0));
}

/// Makes the window a + b cos(x) + c cos(2 x), with x from 0 to 2 pi.
Status window(Node& node, double a, double b, double c) {
  POPRUN_ASSIGN(const std::int64_t n, number_of(node, 0, 0));
  if (n < 1 || n > kMostFolded) {
    return node.unsupported(fmt::format("a window of {} numbers; available: 1 to {}", n, kMostFolded));
  }
  const auto element = static_cast<Element>(node.integer("output_datatype", Proto::FLOAT));
  if (!is_real(element)) {
    return node.unsupported(
        fmt::format("output_datatype = {}; available: float, double, float16, bfloat16", element_name(element)));
  }
  const auto period = static_cast<double>(node.integer("periodic", 1) != 0 ? n : std::max<std::int64_t>(n - 1, 1));
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = kTwoPi * static_cast<double>(i) / period;
    values.push_back(static_cast<float>(a + b * std::cos(x) + c * std::cos(2 * x)));
  }
  Constant constant = Constant::of_reals(std::move(values), {n});
  constant.element = element;
  node.set(0, std::move(constant));
  return {};
}

/// Makes the matrix [bins of a spectrum, mel bins] of triangular filters that are equally wide on the mel scale.
Status mel_weight_matrix(Node& node) {
  POPRUN_ASSIGN(const std::int64_t mels, number_of(node, 0, 0));
  POPRUN_ASSIGN(const std::int64_t length, number_of(node, 1, 0));
  POPRUN_ASSIGN(const std::int64_t rate, number_of(node, 2, 0));
  POPRUN_ASSIGN(const float lower, node.real_of(3));
  POPRUN_ASSIGN(const float upper, node.real_of(4));
  const std::int64_t bins = length / 2 + 1;
  if (mels < 1 || length < 1 || rate < 1 || !(lower >= 0) || !(upper >= lower) || length > kMostFolded ||
      mels > kMostFolded / bins) {
    return node.wrong("needs positive numbers of bins, a sample rate, and frequencies 0 <= lower <= upper");
  }
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = mel(static_cast<double>(lower));
  const double step = (mel(static_cast<double>(upper)) - low) / static_cast<double>(mels + 2);
  std::vector<std::int64_t> edges;
  for (std::int64_t i = 0; i < mels + 2; ++i) {
    const double hertz = 700 * (std::pow(10.0, (low + static_cast<double>(i) * step) / 2595) - 1);
    const double bin = std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate));
    if (bin >= static_cast<double>(bins)) {
      return node.wrong("the upper frequency is above half of the sample rate");
    }
    edges.push_back(static_cast<std::int64_t>(bin));
  }
  std::vector<float> values(static_cast<std::size_t>(bins * mels));
  for (std::int64_t i = 0; i < mels; ++i) {
    const std::int64_t begin = edges[static_cast<std::size_t>(i)];
    const std::int64_t centre = edges[static_cast<std::size_t>(i) + 1];
    const std::int64_t end = edges[static_cast<std::size_t>(i) + 2];
    for (std::int64_t j = begin; j <= std::max(centre, end - 1); ++j) {
      const double rising = centre == begin ? 1 : static_cast<double>(j - begin) / static_cast<double>(centre - begin);
      const double value = j <= centre ? rising : static_cast<double>(end - j) / static_cast<double>(end - centre);
      values[static_cast<std::size_t>(j * mels + i)] = static_cast<float>(value);
    }
  }
  Constant constant = Constant::of_reals(std::move(values), {bins, mels});
  constant.element = static_cast<Element>(node.integer("output_datatype", Proto::FLOAT));
  if (!constant.real()) {
    return node.unsupported(fmt::format("output_datatype = {}; available: float, double, float16, bfloat16",
                                        element_name(constant.element)));
  }
  node.set(0, std::move(constant));
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"DFT", 1, dft},
          {"STFT", 2, stft},
          {"HannWindow", 1, [](Node& node) { return window(node, 0.5, -0.5, 0); }},
          {"HammingWindow", 1, [](Node& node) { return window(node, 25.0 / 46, -21.0 / 46, 0); }},
          {"BlackmanWindow", 1, [](Node& node) { return window(node, 0.42, -0.5, 0.08); }},
          {"MelWeightMatrix", 5, mel_weight_matrix}};
}

}  // namespace poprun::onnx_import::nodes::spectrum
