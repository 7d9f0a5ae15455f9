#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/unit/replica/ops/case.h"

/// Losses other than the softmax cross-entropy.
namespace poprun::testing {
namespace {

/// Returns the loss, what is correct, and what counts: rows for float labels, labels for integers.
Arrays binary_cross_entropy(const Arrays& in, const Attributes& /*a*/, bool integers) {
  const std::size_t rows = integers ? in[0].values.size() : static_cast<std::size_t>(in[0].shape[0]);
  const std::size_t width = in[0].values.size() / rows;
  double loss = 0;
  double correct = 0;
  double count = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto first = in[1].values.begin() + static_cast<std::ptrdiff_t>(r * width);
    if (std::any_of(first, first + static_cast<std::ptrdiff_t>(width),
                    [integers](double y) { return integers ? y < 0 : std::isnan(y); })) {
      continue;
    }
    count += 1;
    for (std::size_t i = r * width; i < (r + 1) * width; ++i) {
      const double x = in[0].values[i];
      const double y = in[1].values[i];
      loss -= y * std::log(1 / (1 + std::exp(-x))) + (1 - y) * std::log(1 / (1 + std::exp(x)));
      correct += (x > 0) == (y > 0.5) ? 1 : 0;
    }
  }
  const auto of_row = static_cast<double>(width);
  return {Array({}, count == 0 ? 0 : loss / count / of_row), Array({}, correct / of_row), Array({}, count)};
}

void add_binary(std::vector<Case>& all) {
  const auto add = [&all](const Input& logits, const Input& labels) {
    const bool integers = labels.type.data == DataType::kI32;
    const Definition definition = [integers](const Arrays& in, const Attributes& a) {
      return binary_cross_entropy(in, a, integers);
    };
    all.push_back({"binary_cross_entropy", {logits, labels}, {}, definition, {0x1p-20, 1}});
    for (const double loss_scale : {1.0, 4096.0}) {
      all.push_back({"binary_cross_entropy_gradient",
                     {logits, labels, scalar(loss_scale)},
                     {},
                     [definition](const Arrays& in, const Attributes& own) {
                       return Arrays{slope(definition, {in[0], in[1]}, own, 0, in[2])};
                     },
                     {0x1p-20, 4}});
    }
  };
  add(half({4, 5}, -8, 8), single({4, 5}, 0, 1));
  add(half({4}, -8, 8), given(single({4}), {1, std::nan(""), 0, 0.5}));
  add(half({7}, -8, 8), indices({7}, {1, 0, -1, 1, 0, 0, 1}));
  add(half({2}, -8, 8), indices({2}, {-1, -1}));
}

/// Adds up the probabilities of all alignments of the labels by listing them.
double probability(const std::vector<double>& p, std::size_t T, std::size_t C, const std::vector<std::size_t>& labels) {
  double sum = 0;
  const auto paths = static_cast<std::size_t>(std::pow(C, T));
  for (std::size_t path = 0; path < paths; ++path) {
    std::vector<std::size_t> shown;
    std::size_t before = 0;
    std::size_t rest = path;
    double chance = 1;
    for (std::size_t t = 0; t < T; ++t, rest /= C) {
      const std::size_t k = rest % C;
      if (k != 0 && (t == 0 || k != before)) {
        shown.push_back(k);
      }
      before = k;
      chance *= p[t * C + k];
    }
    sum += shown == labels ? chance : 0;
  }
  return sum;
}

Arrays ctc_loss(const Arrays& in, const Attributes& /*a*/) {
  const auto N = static_cast<std::size_t>(in[0].shape[0]);
  const auto T = static_cast<std::size_t>(in[0].shape[1]);
  const auto C = static_cast<std::size_t>(in[0].shape[2]);
  const auto S = static_cast<std::size_t>(in[1].shape[1]);
  double loss = 0;
  double count = 0;
  for (std::size_t n = 0; n < N; ++n) {
    std::vector<std::size_t> labels;
    for (std::size_t k = 0; k < S; ++k) {
      if (in[1].values[n * S + k] >= 0) {
        labels.push_back(static_cast<std::size_t>(in[1].values[n * S + k]));
      }
    }
    if (labels.empty()) {
      continue;
    }
    std::vector<double> p(T * C);
    for (std::size_t t = 0; t < T; ++t) {
      double sum = 0;
      for (std::size_t k = 0; k < C; ++k) {
        p[t * C + k] = std::exp(in[0].values[(n * T + t) * C + k]);
        sum += p[t * C + k];
      }
      for (std::size_t k = 0; k < C; ++k) {
        p[t * C + k] /= sum;
      }
    }
    loss -= std::log(probability(p, T, C, labels));
    count += static_cast<double>(labels.size());
  }
  return {Array({}, count == 0 ? 0 : loss / count), Array({}, -count), Array({}, count)};
}

void add_ctc(std::vector<Case>& all) {
  const Input logits = half({4, 5, 3}, -2, 2);
  // A repeated label needs a blank between; a row of padding alone is ignored.
  const Input labels = indices({4, 3}, {1, 1, 2, 2, -1, -1, -1, -1, -1, 1, -1, 2});
  all.push_back({"ctc_loss", {logits, labels}, {}, ctc_loss, {0x1p-20, 1}});
  for (const double loss_scale : {1.0, 4096.0}) {
    all.push_back({"ctc_loss_gradient",
                   {logits, labels, scalar(loss_scale)},
                   {},
                   [](const Arrays& in, const Attributes& own) {
                     return Arrays{slope(ctc_loss, {in[0], in[1]}, own, 0, in[2])};
                   },
                   {0x1p-18, 4}});
  }
}

}  // namespace

std::vector<Case> losses_cases() {
  std::vector<Case> all;
  add_binary(all);
  add_ctc(all);
  return all;
}

}  // namespace poprun::testing
