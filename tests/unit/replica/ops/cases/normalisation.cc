#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "tests/unit/replica/ops/case.h"

/// Normalisations, softmax and losses.
namespace poprun::testing {
namespace {

/// Mean and population variance of the elements with equal group_of(index).
struct Moments {
  Array mean;
  Array variance;

  Moments(const Array& x, const Shape& groups, const std::function<Shape(const Shape&)>& group_of)
      : mean(groups), variance(groups) {
    const double share = static_cast<double>(mean.values.size()) / static_cast<double>(x.values.size());
    for_each_index(x.shape, [&](const Shape& i) { mean(group_of(i)) += x(i) * share; });
    for_each_index(x.shape, [&](const Shape& i) {
      const double apart = x(i) - mean(group_of(i));
      variance(group_of(i)) += apart * apart * share;
    });
  }
};

Shape channel_of(const Shape& index) {
  return {index[1]};
}

/// (x - mean) / sqrt(variance + eps) * w + b, channel by channel.
Array normalised(const Array& x, const Array& mean, const Array& variance, const Array& w, const Array& b, double eps) {
  Array y(x.shape);
  for_each_index(x.shape, [&](const Shape& i) {
    const Shape c = channel_of(i);
    y(i) = (x(i) - mean(c)) / std::sqrt(variance(c) + eps) * w(c) + b(c);
  });
  return y;
}

Arrays batch_norm_training(const Arrays& in, const Attributes& a) {
  const Moments m(in[0], {in[0].shape[1]}, channel_of);
  return {normalised(in[0], m.mean, m.variance, in[1], in[2], a.real("eps")), m.mean, m.variance};
}
Arrays batch_norm_inference(const Arrays& in, const Attributes& a) {
  return {normalised(in[0], in[3], in[4], in[1], in[2], a.real("eps"))};
}

/// Returns the definition of the gradient, which computes the statistics of exactly these inputs, since the stored
/// statistics are float32.
Definition batch_norm_gradient(bool training) {
  return [training](const Arrays& in, const Attributes& a) {
    const Array b(in[1].shape);
    Arrays gradients;
    for (std::size_t by = 0; by < 3; ++by) {
      const Arrays at = training ? Arrays{in[0], in[1], b} : Arrays{in[0], in[1], b, in[2], in[3]};
      gradients.push_back(slope(training ? batch_norm_training : batch_norm_inference, at, a, by, in[4]));
    }
    return gradients;
  };
}

Arrays batch_norm_moments(const Arrays& in, const Attributes& /*a*/) {
  const std::int64_t C = in[0].shape[1];
  const Moments m(in[0], {C}, channel_of);
  Array moments({2, C});
  for (std::int64_t c = 0; c < C; ++c) {
    moments({0, c}) = m.mean({c});
    moments({1, c}) = m.variance({c}) + m.mean({c}) * m.mean({c});
  }
  return {moments};
}

Arrays batch_norm_statistics(const Arrays& in, const Attributes& /*a*/) {
  const std::int64_t C = in[0].shape[1];
  Arrays statistics = {Array({C}), Array({C})};
  for (std::int64_t c = 0; c < C; ++c) {
    statistics[0]({c}) = in[0]({0, c});
    statistics[1]({c}) = in[0]({1, c}) - in[0]({0, c}) * in[0]({0, c});
  }
  return statistics;
}

Arrays batch_norm_sums(const Arrays& in, const Attributes& a) {
  const std::int64_t C = in[0].shape[1];
  Arrays sums = {Array({C}), Array({C}), Array({2, C})};
  for_each_index(in[0].shape, [&](const Shape& i) {
    const Shape c = channel_of(i);
    const double whitened = (in[0](i) - in[1](c)) / std::sqrt(in[2](c) + a.real("eps"));
    sums[0](c) += in[3](i) * whitened;
    sums[1](c) += in[3](i);
    sums[2]({1, c[0]}) += in[3](i) * whitened;
    sums[2]({0, c[0]}) += in[3](i);
  });
  return sums;
}

/// Elements of 2 channels and 3 rows, which are fixed so that their statistics can be given, too.
const std::vector<double> kRows = {0.5, -1, 2, 3, -1.5, 0.25};

void add_batch_norm(std::vector<Case>& all) {
  const Attributes a{{"eps", 1e-3}};
  const Input w = half({5}, 0.5, 2);
  const Input b = half({5});
  const Error error{0x1p-21, 4};
  for (const Input& x : {half_image({2, 5, 3, 3}), half({43, 5})}) {
    all.push_back({"batch_norm_training", {x, w, b}, a, batch_norm_training, error, kUsual});
    all.push_back(
        {"batch_norm_inference", {x, w, b, single({5}), single({5}, 0.1, 2)}, a, batch_norm_inference, error, kUsual});
    all.push_back({"batch_norm_inference_gradient",
                   {x, w, single({5}), single({5}, 0.1, 2), x},
                   a,
                   batch_norm_gradient(false),
                   {0x1p-20, 43},
                   kUsual});
  }
  // The rows are far from zero, so the variance must be computed from differences, not from squares.
  all.push_back({"batch_norm_training", {half({43, 5}, 900, 1100), w, b}, a, batch_norm_training, {0x1p-18, 16}});
  const Array rows = [] {
    Array x({3, 2});
    x.values = kRows;
    return x;
  }();
  const Moments m(rows, {2}, channel_of);
  all.push_back({"batch_norm_training_gradient",
                 {given(half({3, 2}), kRows), half({2}, 0.5, 2), given(single({2}), m.mean.values),
                  given(single({2}), m.variance.values), half({3, 2})},
                 a,
                 batch_norm_gradient(true),
                 {0x1p-20, 16}});
  for (const Input& x : {half_image({2, 5, 3, 3}), half({43, 5})}) {
    all.push_back({"batch_norm_moments", {x}, {}, batch_norm_moments, error, kUsual});
    all.push_back(
        {"batch_norm_sums", {x, single({5}), single({5}, 0.1, 2), x}, a, batch_norm_sums, {0x1p-20, 43}, kUsual});
  }
  all.push_back({"batch_norm_statistics",
                 {given(single({2, 3}), {0.5, -2, 0, 1, 4.5, 2})},
                 {},
                 batch_norm_statistics,
                 {0x1p-20, 4}});
  // With the sums of these rows alone, the gradient over a group is that of the batch.
  const std::vector<double> dy = {1, -0.5, 0.25, 2, -1, 0.125};
  Array gradient({3, 2});
  gradient.values = dy;
  const Arrays sums = batch_norm_sums({rows, m.mean, m.variance, gradient}, a);
  all.push_back(
      {"batch_norm_group_gradient",
       {given(half({3, 2}), kRows), half({2}, 0.5, 2), given(single({2}), m.mean.values),
        given(single({2}), m.variance.values), given(half({3, 2}), dy), given(single({2, 2}), sums[2].values)},
       a,
       [](const Arrays& in, const Attributes& attributes) {
         return Arrays{batch_norm_gradient(true)(in, attributes)[0]};
       },
       {0x1p-20, 16}});
}

/// Returns w and b after the fold.
Arrays fold_batch_norm(const Arrays& in, const Attributes& a) {
  Arrays folded = {in[0], in[1]};
  for_each_index(in[0].shape, [&](const Shape& i) {
    const double scale = in[2]({i[0]}) / std::sqrt(in[4]({i[0]}) + a.real("eps"));
    folded[0](i) = in[0](i) * scale;
    const double bias = in.size() == 6 ? in[5]({i[0]}) : 0;
    folded[1]({i[0]}) = in[1]({i[0]}) + (bias - in[3]({i[0]})) * scale;
  });
  return folded;
}

void add_fold_batch_norm(std::vector<Case>& all) {
  const Attributes a{{"eps", 1e-3}};
  std::vector<Input> inputs = {half({5, 3, 2, 2}), half({5}), half({5}, 0.5, 2), single({5}), single({5}, 0.1, 2)};
  for (int count = 0; count < 2; ++count) {
    all.push_back({"fold_batch_norm", inputs, a, fold_batch_norm, {}, kUsual, {0, 1}});
    inputs.push_back(half({5}));
  }
}

/// Normalises over the last dimension, with statistics for each row.
Arrays layer_norm(const Arrays& in, const Attributes& a) {
  const Array& x = in[0];
  const std::int64_t C = x.shape.back();
  const auto B = static_cast<std::int64_t>(x.values.size()) / C;
  Array rows({B, C});
  rows.values = x.values;
  const Moments m(rows, {B}, [](const Shape& i) { return Shape{i[0]}; });
  Array y(x.shape);
  for_each_index(rows.shape, [&](const Shape& i) {
    y.values[static_cast<std::size_t>(i[0] * C + i[1])] =
        (rows(i) - m.mean({i[0]})) / std::sqrt(m.variance({i[0]}) + a.real("epsilon")) * in[1]({i[1]}) + in[2]({i[1]});
  });
  return {y, m.mean, m.variance};
}

void add_layer_norm(std::vector<Case>& all) {
  const Attributes a{{"epsilon", 1e-5}};
  all.push_back({"layer_norm", {half({2, 3, 43}), half({43}), half({43})}, a, layer_norm, {0x1p-21, 8}});
  all.push_back({"layer_norm", {half({3, 7}, 900, 1100), half({7}), half({7})}, a, layer_norm, {0x1p-18, 32}});
  Array rows({2, 3});
  rows.values = kRows;
  const Moments m(rows, {2}, [](const Shape& i) { return Shape{i[0]}; });
  all.push_back({"layer_norm_gradient",
                 {given(half({2, 3}), kRows), half({3}), given(single({2}), m.mean.values),
                  given(single({2}), m.variance.values), half({2, 3})},
                 a,
                 [](const Arrays& in, const Attributes& b) {
                   const Arrays at = {in[0], in[1], Array({3})};
                   return Arrays{slope(layer_norm, at, b, 0, in[4]), slope(layer_norm, at, b, 1, in[4]),
                                 slope(layer_norm, at, b, 2, in[4])};
                 },
                 {0x1p-20, 16}});
}

/// Divides each row by the root of its mean square.
Arrays rms_norm(const Arrays& in, const Attributes& a) {
  const Array& x = in[0];
  const std::int64_t C = x.shape.back();
  const auto B = static_cast<std::int64_t>(x.values.size()) / C;
  Array square({B});
  Array y(x.shape);
  for (std::int64_t b = 0; b < B; ++b) {
    const auto row = std::span(x.values).subspan(static_cast<std::size_t>(b * C), static_cast<std::size_t>(C));
    for (const double v : row) {
      square({b}) += v * v / static_cast<double>(C);
    }
    for (std::int64_t c = 0; c < C; ++c) {
      y.values[static_cast<std::size_t>(b * C + c)] =
          row[static_cast<std::size_t>(c)] / std::sqrt(square({b}) + a.real("epsilon")) * in[1]({c});
    }
  }
  return {y, square};
}

void add_rms_norm(std::vector<Case>& all) {
  const Attributes a{{"epsilon", 1e-5}};
  all.push_back({"rms_norm", {half({2, 3, 43}), half({43})}, a, rms_norm, {0x1p-21, 2}});
  Array rows({2, 3});
  rows.values = kRows;
  all.push_back({"rms_norm_gradient",
                 {given(half({2, 3}), kRows), half({3}), given(single({2}), rms_norm({rows, Array({3})}, a)[1].values),
                  half({2, 3})},
                 a,
                 [](const Arrays& in, const Attributes& b) {
                   const Arrays at = {in[0], in[1]};
                   return Arrays{slope(rms_norm, at, b, 0, in[3]), slope(rms_norm, at, b, 1, in[3])};
                 },
                 {0x1p-20, 16}});
}

/// Calls visit(row) with every row's elements, which it may change.
Array each_row(const Array& x, const std::function<void(std::span<double>, std::size_t)>& visit) {
  Array y = x;
  const auto K = static_cast<std::size_t>(x.shape.back());
  for (std::size_t row = 0; row * K < y.values.size(); ++row) {
    visit(std::span(y.values).subspan(row * K, K), row);
  }
  return y;
}

double sum_of_exponentials(std::span<const double> row) {
  double sum = 0;
  for (const double x : row) {
    sum += std::exp(x);
  }
  return sum;
}

Arrays softmax(const Arrays& in, const Attributes&) {
  return {each_row(in[0], [](std::span<double> row, std::size_t) {
    const double sum = sum_of_exponentials(row);
    for (double& x : row) {
      x = std::exp(x) / sum;
    }
  })};
}
Arrays log_softmax(const Arrays& in, const Attributes&) {
  return {each_row(in[0], [](std::span<double> row, std::size_t) {
    const double sum = sum_of_exponentials(row);
    for (double& x : row) {
      x -= std::log(sum);
    }
  })};
}

/// Computes the gradient from the stored y, which is what the operators read.
Arrays softmax_gradient(const Arrays& in, const Attributes&) {
  const auto K = static_cast<std::size_t>(in[0].shape.back());
  return {each_row(in[0], [&](std::span<double> row, std::size_t b) {
    const auto dy = std::span(in[1].values).subspan(b * K, K);
    double sum = 0;
    for (std::size_t k = 0; k < K; ++k) {
      sum += dy[k] * row[k];
    }
    for (std::size_t k = 0; k < K; ++k) {
      row[k] *= dy[k] - sum;
    }
  })};
}
Arrays log_softmax_gradient(const Arrays& in, const Attributes&) {
  const auto K = static_cast<std::size_t>(in[0].shape.back());
  return {each_row(in[0], [&](std::span<double> row, std::size_t b) {
    const auto dy = std::span(in[1].values).subspan(b * K, K);
    double sum = 0;
    for (const double d : dy) {
      sum += d;
    }
    for (std::size_t k = 0; k < K; ++k) {
      row[k] = dy[k] - std::exp(row[k]) * sum;
    }
  })};
}

/// Returns the loss, the number of correct samples, and the number of samples.
Arrays cross_entropy(const Arrays& in, const Attributes& a) {
  const double smoothing = a.has("smoothing") ? a.real("smoothing") : 0;
  double loss = 0;
  double correct = 0;
  double count = 0;
  each_row(in[0], [&](std::span<double> row, std::size_t b) {
    const double label = in[1].values[b];
    if (label < 0 || label >= static_cast<double>(row.size())) {
      return;
    }
    const auto k = static_cast<std::size_t>(label);
    for (std::size_t c = 0; c < row.size(); ++c) {
      const double probability = smoothing / static_cast<double>(row.size()) + (c == k ? 1 - smoothing : 0);
      loss += probability * (std::log(sum_of_exponentials(row)) - row[c]);
    }
    correct += std::ranges::max_element(row) == row.begin() + static_cast<std::ptrdiff_t>(k);
    count += 1;
  });
  return {Array({}, count == 0 ? 0 : loss / count), Array({}, correct), Array({}, count)};
}

void add_softmax(std::vector<Case>& all) {
  const Input x = half({2, 3, 43}, -8, 8);
  all.push_back({"softmax", {x}, {}, softmax, {0x1p-18, 1}});
  all.push_back({"log_softmax", {x}, {}, log_softmax, {0x1p-18, 4}});
  all.push_back(
      {"softmax_gradient", {half({2, 43}, 0, 0.05), half({2, 43})}, {}, softmax_gradient, {0x1p-20, 43}, kUsual});
  all.push_back(
      {"log_softmax_gradient", {half({2, 43}, -8, -2), half({2, 43})}, {}, log_softmax_gradient, {0x1p-18, 43}});
  const Input logits = half({5, 19}, -8, 8);
  const Input labels = indices({5}, {0, 18, -1, 7, 19});
  for (const Attributes& a : {Attributes{}, Attributes{{"smoothing", 0.1}}, Attributes{{"smoothing", 0.75}}}) {
    all.push_back({"softmax_cross_entropy", {logits, labels}, a, cross_entropy, {0x1p-20, 1}});
    for (const double loss_scale : {1.0, 4096.0, 1e6}) {
      all.push_back({"softmax_cross_entropy_gradient",
                     {logits, labels, scalar(loss_scale)},
                     a,
                     [](const Arrays& in, const Attributes& own) {
                       return Arrays{slope(cross_entropy, {in[0], in[1]}, own, 0, in[2])};
                     },
                     {0x1p-20, 4}});
    }
  }
}

/// The mean of the losses weighted by their counts, and the sums of both others.
Arrays join_losses(const Arrays& in, const Attributes& /*a*/) {
  Arrays joined(3, Array({}));
  for (std::size_t k = 0; k < in.size(); k += 3) {
    joined[0]({}) += in[k]({}) * in[k + 2]({});
    joined[1]({}) += in[k + 1]({});
    joined[2]({}) += in[k + 2]({});
  }
  joined[0]({}) /= std::max(joined[2]({}), 1.0);
  return joined;
}

void add_join_losses(std::vector<Case>& all) {
  for (const double count : {0.0, 5.0}) {  // Without labels, all results are 0.
    const std::vector<Input> parts = {scalar(count == 0 ? 0 : 2.5),
                                      scalar(count - 2 * (count > 0 ? 1 : 0)),
                                      scalar(count),
                                      scalar(count == 0 ? 0 : 0.75),
                                      scalar(0),
                                      scalar(count / 5)};
    all.push_back({"join_losses", parts, {}, join_losses, {0x1p-20, 2}});
    all.push_back({"join_losses_gradient",
                   {scalar(1024), parts[2], parts[5]},
                   {},
                   [](const Arrays& in, const Attributes& /*a*/) {
                     const double sum = std::max(in[1]({}) + in[2]({}), 1.0);
                     Arrays gradients(2, Array({}));
                     gradients[0]({}) = in[0]({}) * in[1]({}) / sum;
                     gradients[1]({}) = in[0]({}) * in[2]({}) / sum;
                     return gradients;
                   },
                   {0x1p-20, 2}});
  }
}

}  // namespace

std::vector<Case> normalisation_cases() {
  std::vector<Case> all;
  add_batch_norm(all);
  add_fold_batch_norm(all);
  add_layer_norm(all);
  add_rms_norm(all);
  add_softmax(all);
  add_join_losses(all);
  return all;
}

}  // namespace poprun::testing
