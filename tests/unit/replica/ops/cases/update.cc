#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/unit/replica/ops/case.h"

/// Operators that update in place, with half weights or float32 master weights, and the factors of a step's gradients.
namespace poprun::testing {
namespace {

constexpr std::int64_t kCount = 43;

struct AdamMoments {
  double m;
  double v;
};

/// An update rule for one element, which maps w, g and the states to the new values of w and the states.
using Rule = std::function<std::vector<double>(double w, double g, const std::vector<double>& states,
                                               const std::vector<double>& scalars)>;

/// Applies a rule to inputs w, g, states..., scalars... and, optionally, a factor; a factor of -1 changes nothing.
Definition each(const Rule& rule, std::size_t states, std::size_t scalars) {
  return [=](const Arrays& in, const Attributes& a) {
    Arrays out = {in[0]};
    for (std::size_t s = 0; s < states; ++s) {
      out.push_back(in[2 + s]);
    }
    std::vector<double> by;
    for (std::size_t k = 0; k < scalars; ++k) {
      by.push_back(in[2 + states + k].values[0]);
    }
    const double factor = in.size() > 2 + states + scalars ? in.back().values[0] : 1;
    for (std::size_t i = 0; factor >= 0 && i < out[0].values.size(); ++i) {
      std::vector<double> own;
      for (std::size_t s = 0; s < states; ++s) {
        own.push_back(in[2 + s].values[i]);
      }
      const auto updated = rule(in[0].values[i], in[1].values[i] * a.real("scale") * factor, own, by);
      for (std::size_t k = 0; k < out.size(); ++k) {
        out[k].values[i] = updated[k];
      }
    }
    return out;
  };
}

/// Adds a rule with half weights and with master weights, each without a factor, with a factor, and with factor -1. The
/// first state is float32 and, with half weights, also float16.
void add_rule(std::vector<Case>& all, const std::string& kind, const Attributes& attributes,
              const std::vector<Input>& states, const std::vector<Input>& scalars, const Definition& definition) {
  std::vector<std::size_t> in_place = {0};
  for (std::size_t s = 0; s < states.size(); ++s) {
    in_place.push_back(2 + s);
  }
  std::vector<std::vector<Input>> variables = {{half({kCount})}, {single({kCount})}, {half({kCount})}};
  for (std::vector<Input>& own : variables) {
    own.push_back(half({kCount}));
    own.insert(own.end(), states.begin(), states.end());
  }
  if (states.empty()) {
    variables.pop_back();
  } else {
    variables.back()[2].type.data = DataType::kF16;
  }
  for (std::vector<Input> inputs : variables) {
    inputs.insert(inputs.end(), scalars.begin(), scalars.end());
    const Error error{0x1p-20, 4};
    all.push_back({kind, inputs, attributes, definition, error, {1, 0x1p-13}, in_place});
    for (const double factor : {0.25, -1.0}) {
      std::vector<Input> with_factor = inputs;
      with_factor.push_back(scalar(factor));
      all.push_back({kind, with_factor, attributes, definition, factor < 0 ? kExact : error, {1, 0x1p-13}, in_place});
    }
  }
}

void add_descent(std::vector<Case>& all) {
  const Attributes a{{"scale", 0.5}, {"weight_decay", 0.125}};
  const Input rate = scalar(0.1);
  using Numbers = std::vector<double>;
  add_rule(
      all, "sgd", a, {}, {rate},
      each([](double w, double g, const Numbers&, const Numbers& by) { return Numbers{w - by[0] * (g + 0.125 * w)}; },
           0, 1));
  for (const bool nesterov : {false, true}) {
    Attributes b = a;
    b.set("momentum", 0.9);
    b.set("nesterov", std::int64_t{nesterov});
    add_rule(all, "momentum", b, {single({kCount})}, {rate},
             each(
                 [nesterov](double w, double g, const Numbers& v, const Numbers& by) {
                   const double G = g + 0.125 * w;
                   const double velocity = 0.9 * v[0] + G;
                   return Numbers{w - by[0] * (nesterov ? G + 0.9 * velocity : velocity), velocity};
                 },
                 1, 1));
  }
}

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.99;
constexpr double kEpsilon = 1e-6;
constexpr double kDecay = 0.125;
constexpr double kStep = 3;

AdamMoments moments(double g, const std::vector<double>& states) {
  return {kBeta1 * states[0] + (1 - kBeta1) * g, kBeta2 * states[1] + (1 - kBeta2) * g * g};
}
double direction(const AdamMoments& now) {
  const double m = now.m / (1 - std::pow(kBeta1, kStep));
  const double v = now.v / (1 - std::pow(kBeta2, kStep));
  return m / (std::sqrt(v) + kEpsilon);
}

void add_adam(std::vector<Case>& all) {
  const Attributes a{
      {"scale", 0.5}, {"weight_decay", kDecay}, {"beta1", kBeta1}, {"beta2", kBeta2}, {"epsilon", kEpsilon}};
  const std::vector<Input> states = {single({kCount}), single({kCount}, 0.01, 0.5)};
  const std::vector<Input> scalars = {scalar(0.1), scalar(kStep)};
  using Numbers = std::vector<double>;
  add_rule(all, "adam", a, states, scalars,
           each(
               [](double w, double g, const Numbers& s, const Numbers& by) {
                 const AdamMoments now = moments(g + kDecay * w, s);
                 return Numbers{w - by[0] * direction(now), now.m, now.v};
               },
               2, 2));
  add_rule(all, "adamw", a, states, scalars,
           each(
               [](double w, double g, const Numbers& s, const Numbers& by) {
                 const AdamMoments now = moments(g, s);
                 return Numbers{w - by[0] * (direction(now) + kDecay * w), now.m, now.v};
               },
               2, 2));
}

void add_lion(std::vector<Case>& all) {
  // No mix of m and g is close enough to 0 for rounding to change its sign.
  const Attributes a{{"scale", 0.5}, {"weight_decay", kDecay}, {"beta1", kBeta1}, {"beta2", kBeta2}};
  using Numbers = std::vector<double>;
  add_rule(all, "lion", a, {single({kCount}, 0.5, 1)}, {scalar(0.1)},
           each(
               [](double w, double g, const Numbers& m, const Numbers& by) {
                 const double mixed = kBeta1 * m[0] + (1 - kBeta1) * g;
                 const double sign = mixed > 0 ? 1 : mixed < 0 ? -1 : 0;
                 return Numbers{w - by[0] * (sign + kDecay * w), kBeta2 * m[0] + (1 - kBeta2) * g};
               },
               1, 1));
}

double size_of(const Array& x) {
  double squares = 0;
  for (const double value : x.values) {
    squares += value * value;
  }
  return std::sqrt(squares);
}

/// Computes Muon's first operator for matrices, with an optional factor as the last input.
Arrays muon_momentum(const Arrays& in, const Attributes& a) {
  const double factor = in.size() == 4 ? in[3].values[0] : 1;
  const std::int64_t R = in[0].shape[0];
  Array u({R, static_cast<std::int64_t>(in[0].values.size()) / R});
  Array m = in[2];
  for (std::size_t i = 0; factor >= 0 && i < m.values.size(); ++i) {
    const double G = in[1].values[i] * a.real("scale") * factor;
    m.values[i] = a.real("momentum") * m.values[i] + (1 - a.real("momentum")) * G;
    u.values[i] = (1 - a.real("momentum")) * G + a.real("momentum") * m.values[i];
  }
  const double norm = size_of(u);
  for (double& value : u.values) {
    value /= norm > 0 ? norm : 1;
  }
  return {m, u};
}

Arrays muon_matrix(const Arrays& in, const Attributes& a) {
  const double size = 0.2 * std::sqrt(static_cast<double>(std::max(in[1].shape[0], in[1].shape[1])));
  Array w = in[0];
  for (std::size_t i = 0; i < w.values.size(); ++i) {
    w.values[i] -= in[2].values[0] * (size * in[1].values[i] + a.real("weight_decay") * w.values[i]);
  }
  return {in.size() == 4 && in[3].values[0] < 0 ? in[0] : w};
}

void add_muon(std::vector<Case>& all) {
  const Attributes a{{"scale", 0.5},    {"weight_decay", kDecay}, {"beta1", kBeta1},
                     {"beta2", kBeta2}, {"epsilon", kEpsilon},    {"momentum", 0.95}};
  using Numbers = std::vector<double>;
  add_rule(all, "muon", a, {single({kCount}), single({kCount}, 0.01, 0.5)}, {scalar(0.1), scalar(kStep)},
           each(
               [](double w, double g, const Numbers& s, const Numbers& by) {
                 const AdamMoments now = moments(g, s);
                 return Numbers{w - by[0] * (direction(now) + kDecay * w), now.m, now.v};
               },
               2, 2));
  for (const Input& w : {half({5, 3, 2}), single({5, 3, 2})}) {
    const std::vector<Input> first = {w, half({5, 3, 2}), single({5, 3, 2})};
    const std::vector<Input> last = {w, half({5, 6}), scalar(0.1)};
    all.push_back({"muon_momentum", first, a, muon_momentum, {0x1p-20, 4}, kUsual, {2}});
    all.push_back({"muon_matrix", last, a, muon_matrix, {0x1p-20, 4}, kUsual, {0}});
    for (const double factor : {0.25, -1.0}) {
      for (const bool is_first : {true, false}) {
        std::vector<Input> with_factor = is_first ? first : last;
        with_factor.push_back(scalar(factor));
        all.push_back({is_first ? "muon_momentum" : "muon_matrix",
                       with_factor,
                       a,
                       is_first ? muon_momentum : muon_matrix,
                       factor < 0 ? kExact : Error{0x1p-20, 4},
                       kUsual,
                       {std::size_t{is_first ? 2U : 0U}}});
      }
    }
  }
}

/// Returns V of Adafactor's definition and the new states: those of a vector or of one matrix [R,C].
Arrays factored_squares(const Arrays& in, const Array& squares, double beta) {
  const auto moved = [beta](double before, double now) { return beta * before + (1 - beta) * now; };
  if (squares.shape.size() < 2) {
    Array v = in[2];
    for (std::size_t i = 0; i < v.values.size(); ++i) {
      v.values[i] = moved(v.values[i], squares.values[i]);
    }
    return {v, v};
  }
  const auto R = static_cast<std::size_t>(squares.shape[squares.shape.size() - 2]);
  const auto C = static_cast<std::size_t>(squares.shape.back());
  Array row = in[2];
  Array column = in[3];
  Array V(squares.shape);
  for (std::size_t first = 0; first < V.values.size(); first += R * C) {  // Each matrix begins here.
    const std::size_t first_row = first / C;
    const std::size_t first_column = first / R;
    std::vector<double> of_rows(R, 0);
    std::vector<double> of_columns(C, 0);
    for (std::size_t i = 0; i < R * C; ++i) {
      of_rows[i / C] += squares.values[first + i] / static_cast<double>(C);
      of_columns[i % C] += squares.values[first + i] / static_cast<double>(R);
    }
    double mean = 0;
    for (std::size_t r = 0; r < R; ++r) {
      row.values[first_row + r] = moved(row.values[first_row + r], of_rows[r]);
      mean += row.values[first_row + r] / static_cast<double>(R);
    }
    for (std::size_t c = 0; c < C; ++c) {
      column.values[first_column + c] = moved(column.values[first_column + c], of_columns[c]);
    }
    for (std::size_t i = 0; i < R * C; ++i) {
      V.values[first + i] = row.values[first_row + i / C] * column.values[first_column + i % C] / mean;
    }
  }
  return {V, row, column};
}

Arrays adafactor(const Arrays& in, const Attributes& a) {
  const std::size_t states = in[0].shape.size() < 2 ? 1 : 2;
  const double factor = in.size() > 4 + states ? in.back().values[0] : 1;
  if (factor < 0) {
    Arrays unchanged = {in[0]};
    unchanged.insert(unchanged.end(), in.begin() + 2, in.begin() + 2 + static_cast<std::ptrdiff_t>(states));
    return unchanged;
  }
  const double beta = 1 - std::pow(in[3 + states].values[0], -a.real("decay-exponent"));
  Array G = in[1];
  Array squares = in[1];
  for (std::size_t i = 0; i < G.values.size(); ++i) {
    G.values[i] *= a.real("scale") * factor;
    squares.values[i] = G.values[i] * G.values[i] + a.real("square-epsilon");
  }
  Arrays out = factored_squares(in, squares, beta);
  double sum = 0;
  for (std::size_t i = 0; i < G.values.size(); ++i) {
    G.values[i] /= std::sqrt(out[0].values[i]);
    sum += G.values[i] * G.values[i];
  }
  const double rms = std::sqrt(sum / static_cast<double>(G.values.size()));
  const double clip = std::max(1.0, rms / a.real("clip-threshold"));
  out[0] = in[0];
  for (std::size_t i = 0; i < G.values.size(); ++i) {
    double& w = out[0].values[i];
    w -= in[2 + states].values[0] * (G.values[i] / clip + a.real("weight_decay") * w);
  }
  return out;
}

void add_adafactor(std::vector<Case>& all) {
  Attributes a{{"scale", 0.5},
               {"weight_decay", kDecay},
               {"square-epsilon", 1e-3},
               {"clip-threshold", 0.75},
               {"decay-exponent", 0.8}};
  for (const Shape& shape : {Shape{43}, Shape{5, 19}, Shape{3, 5, 19}, Shape{}}) {
    const bool matrix = shape.size() >= 2;
    for (const Input& w : {half(shape), single(shape)}) {
      std::vector<Input> inputs = {w, half(shape)};
      const std::vector<Shape> factors =
          shape.size() == 2 ? std::vector<Shape>{{5}, {19}} : std::vector<Shape>{{3, 5}, {3, 19}};
      for (const Shape& state : matrix ? factors : std::vector<Shape>{shape}) {
        inputs.push_back(single(state, 0.01, 0.5));
      }
      inputs.push_back(scalar(0.1));
      inputs.push_back(scalar(kStep));
      const std::vector<std::size_t> in_place =
          matrix ? std::vector<std::size_t>{0, 2, 3} : std::vector<std::size_t>{0, 2};
      const Error error{0x1p-19, 4};
      all.push_back({"adafactor", inputs, a, adafactor, error, kUsual, in_place});
      for (const double factor : {0.25, -1.0}) {
        std::vector<Input> with_factor = inputs;
        with_factor.push_back(scalar(factor));
        all.push_back({"adafactor", with_factor, a, adafactor, factor < 0 ? kExact : error, kUsual, in_place});
      }
    }
    a.set("clip-threshold", 100.0);
  }
}

constexpr std::size_t kDigits = 38;
constexpr double kUnit = 0x1p-298;

/// Returns the limbs of a sum of squares that is exact in double, with counts of infinite elements and NaNs.
std::vector<double> limbs_of(double sum, double infinite = 0, double nans = 0) {
  std::vector<double> limbs;
  for (std::size_t k = 0; k < kDigits; ++k) {
    const double place = std::ldexp(kUnit, static_cast<int>(16 * k));
    limbs.push_back(std::fmod(std::floor(sum / place), 65536));
  }
  limbs.insert(limbs.end(), {infinite, 0, nans, 0});
  return limbs;
}

Arrays sum_of_squares(const Arrays& in, const Attributes& /*a*/) {
  double sum = 0;
  double infinite = 0;
  double nans = 0;
  for (const double g : in[0].values) {
    sum += std::isfinite(g) ? g * g : 0;
    infinite += std::isinf(g) ? 1 : 0;
    nans += std::isnan(g) ? 1 : 0;
  }
  Array y({42});
  y.values = limbs_of(sum, infinite, nans);
  return {y};
}

/// Returns two sums of squares as one tensor.
std::vector<double> limbs_of_both(double first, double second) {
  std::vector<double> limbs = limbs_of(first);
  const std::vector<double> more = limbs_of(second);
  limbs.insert(limbs.end(), more.begin(), more.end());
  return limbs;
}

/// Computes the first operator of LAMB, with an optional factor as the last input.
Arrays lamb_moments(const Arrays& in, const Attributes& a) {
  const double factor = in.size() == 6 ? in[5].values[0] : 1;
  Arrays out = {in[2], in[3], Array({2, 42})};
  double w2 = 0;
  double u2 = 0;
  for (std::size_t i = 0; factor >= 0 && i < in[0].values.size(); ++i) {
    const double g = in[1].values[i] * a.real("scale") * factor;
    double& m = out[0].values[i];
    double& v = out[1].values[i];
    m = a.real("beta1") * m + (1 - a.real("beta1")) * g;
    v = a.real("beta2") * v + (1 - a.real("beta2")) * g * g;
    const double step = in[4].values[0];
    const double U = m / (1 - std::pow(a.real("beta1"), step)) /
                         (std::sqrt(v / (1 - std::pow(a.real("beta2"), step))) + a.real("epsilon")) +
                     a.real("weight_decay") * in[0].values[i];
    w2 += in[0].values[i] * in[0].values[i];
    u2 += U * U;
  }
  out[2].values = limbs_of_both(w2, u2);
  return out;
}

/// Returns the norm whose square begins at limb `from`.
double norm_at(const Array& limbs, std::size_t from) {
  double sum = 0;
  for (std::size_t k = 0; k < kDigits; ++k) {
    sum += std::ldexp(limbs.values[from + k] * kUnit, static_cast<int>(16 * k));
  }
  return std::sqrt(sum);
}

/// Computes the second operator of LAMB, the update with a trust ratio from given squares.
Arrays lamb(const Arrays& in, const Attributes& /*a*/) {
  const double w = norm_at(in[3], 0);
  const double U = norm_at(in[3], 42);
  const double ratio = w > 0 && U > 0 ? w / U : 1;
  Array updated = in[0];
  for (std::size_t i = 0; i < updated.values.size(); ++i) {
    const AdamMoments now{in[1].values[i], in[2].values[i]};
    updated.values[i] -= in[4].values[0] * ratio * (direction(now) + kDecay * in[0].values[i]);
  }
  return {in.size() == 7 && in[6].values[0] < 0 ? in[0] : updated};
}

void add_lamb(std::vector<Case>& all) {
  // Sums of squares are compared exactly, so every U, which is G / (|G| + 1) plus w / 8, must be exact.
  const Attributes exact{{"scale", 0.5}, {"weight_decay", 0.125}, {"beta1", 0.5}, {"beta2", 0.75}, {"epsilon", 1.0}};
  for (const Input& w : {half({4}), single({4})}) {
    const std::vector<Input> inputs = {given(w, {1, -0.5, 0, 2}), given(half({4}), {2, -6, 14, 0}),
                                       given(single({4}), {0, 0, 0, 0}), given(single({4}), {0, 0, 0, 0}), scalar(1)};
    all.push_back({"lamb_moments", inputs, exact, lamb_moments, kExact, kUsual, {2, 3}});
    for (const double factor : {1.0, -1.0}) {
      std::vector<Input> with_factor = inputs;
      with_factor.push_back(scalar(factor));
      all.push_back({"lamb_moments", with_factor, exact, lamb_moments, kExact, kUsual, {2, 3}});
    }
  }
  const Attributes a{
      {"scale", 0.5}, {"weight_decay", kDecay}, {"beta1", kBeta1}, {"beta2", kBeta2}, {"epsilon", kEpsilon}};
  for (const auto& squares : {limbs_of_both(2.25, 4), limbs_of_both(0, 4), limbs_of_both(4, 0)}) {
    const std::vector<Input> inputs = {
        half({kCount}), single({kCount}), single({kCount}, 0.01, 0.5), indices({2, 42}, squares),
        scalar(0.1),    scalar(kStep)};
    all.push_back({"lamb", inputs, a, lamb, {0x1p-20, 4}, kUsual, {0}});
    for (const double factor : {0.25, -1.0}) {
      std::vector<Input> with_factor = inputs;
      with_factor.push_back(scalar(factor));
      const Error error = factor < 0 ? kExact : Error{0x1p-20, 4};
      all.push_back({"lamb", with_factor, a, lamb, error, kUsual, {0}});
    }
  }
}

Arrays lars_norms(const Arrays& in, const Attributes& /*a*/) {
  std::vector<double> sums;
  for (const Array& tensor : in) {
    sums.push_back(0);
    for (const double x : tensor.values) {
      sums.back() += x * x;
    }
  }
  Array y({2, 42});
  y.values = limbs_of_both(sums[0], sums[1]);
  return {y};
}

/// Computes the second operator of LARS, the update with a local rate from given squares.
Arrays lars(const Arrays& in, const Attributes& a) {
  const double factor = in.size() == 6 ? in[5].values[0] : 1;
  const double scale = a.real("scale") * factor;
  const double w = norm_at(in[3], 0);
  const double G = scale * norm_at(in[3], 42);
  const double trust = a.real("trust-coefficient");
  const double local =
      trust > 0 && w > 0 && G > 0 ? trust * w / (G + a.real("weight_decay") * w + a.real("epsilon")) : 1;
  Array weights = in[0];
  Array v = in[2];
  for (std::size_t i = 0; factor >= 0 && i < weights.values.size(); ++i) {
    const double gradient = scale * in[1].values[i] + a.real("weight_decay") * weights.values[i];
    v.values[i] = a.real("momentum") * v.values[i] + in[4].values[0] * local * gradient;
    weights.values[i] -= v.values[i];
  }
  return {weights, v};
}

void add_lars(std::vector<Case>& all) {
  for (const Input& w : {half({2, 4}, 0.25, 1), single({2, 4}, 0.25, 1)}) {
    // A double can hold the sum of the squares of few float16 numbers.
    all.push_back(
        {"lars_norms", {given(w, {1, -0.5, 0, 2, 3, 0.25, 7, -8}), half({2, 4}, 0.25, 1)}, {}, lars_norms, kExact});
  }
  Attributes a{{"scale", 0.5}, {"weight_decay", kDecay}, {"momentum", 0.9}, {"epsilon", 0.0}};
  for (const double trust : {0.25, 0.0}) {
    a.set("trust-coefficient", trust);
    for (const auto& squares : {limbs_of_both(2.25, 4), limbs_of_both(0, 4), limbs_of_both(4, 0)}) {
      for (const Input& w : {half({kCount}), single({kCount})}) {
        const std::vector<Input> inputs = {w, half({kCount}), single({kCount}), indices({2, 42}, squares), scalar(0.1)};
        const Error error{0x1p-20, 4};
        all.push_back({"lars", inputs, a, lars, error, kUsual, {0, 2}});
        for (const double factor : {0.25, -1.0}) {
          std::vector<Input> with_factor = inputs;
          with_factor.push_back(scalar(factor));
          all.push_back({"lars", with_factor, a, lars, factor < 0 ? kExact : error, kUsual, {0, 2}});
        }
      }
    }
    a.set("epsilon", 0.5);
  }
}

/// Returns the norm that all inputs except the last `scalars` describe.
double norm_of(const Arrays& in, std::size_t scalars) {
  double sum = 0;
  for (std::size_t i = 0; i + scalars < in.size(); ++i) {
    for (std::size_t k = 0; k < kDigits; ++k) {
      sum += std::ldexp(in[i].values[k] * kUnit, static_cast<int>(16 * k));
    }
    sum = in[i].values[kDigits] > 0 ? std::numeric_limits<double>::infinity() : sum;
    sum = in[i].values[kDigits + 2] > 0 ? std::nan("") : sum;
  }
  return std::sqrt(sum);
}

void add_factors(std::vector<Case>& all) {
  const double inf = std::numeric_limits<double>::infinity();
  // A double can hold the sum of the squares of so few elements.
  all.push_back({"sum_of_squares", {half({2, 3}, 0.25, 1)}, {}, sum_of_squares, kExact});
  all.push_back({"sum_of_squares",
                 {given(half({7}), {65504, -2, 0, inf, std::nan(""), 0x1p-8, -inf})},
                 {},
                 sum_of_squares,
                 kExact});
  const Attributes a{{"scale", 0.5}, {"max_norm", 0.75}};
  const auto sum = [](const std::vector<double>& limbs) { return indices({42}, limbs); };
  all.push_back({"clip_factor",
                 {sum(limbs_of(2.25)), sum(limbs_of(4))},
                 a,
                 [](const Arrays& in, const Attributes&) {
                   return Arrays{Array({}, std::min(1.0, 0.75 / (0.5 * norm_of(in, 0) + 1e-6)))};
                 },
                 {0x1p-22, 1}});
  const Definition by_loss_scale = [](const Arrays& in, const Attributes&) {
    const double scale = in.back().values[0];
    const double norm = 0.5 * norm_of(in, 1) / scale;
    return Arrays{Array({}, std::isfinite(norm) ? std::min(1.0, 0.75 / (norm + 1e-6)) / scale : -1.0)};
  };
  for (const auto& limbs : {limbs_of(2.25), limbs_of(1e6), limbs_of(2.25, 1), limbs_of(1, 0, 3)}) {
    all.push_back({"loss_scale_factor", {sum(limbs_of(30)), sum(limbs), scalar(64)}, a, by_loss_scale, {0x1p-22, 1}});
  }
}

}  // namespace

std::vector<Case> update_cases() {
  std::vector<Case> all;
  add_descent(all);
  add_adam(all);
  add_lion(all);
  add_adafactor(all);
  add_muon(all);
  add_lamb(all);
  add_lars(all);
  add_factors(all);
  const Definition sum = [](const Arrays& in, const Attributes&) {
    Array y = in[0];
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      y.values[i] += in[1].values[i];
    }
    return Arrays{y};
  };
  all.push_back({"accumulate", {half({43}), half({43})}, {}, sum, {0x1p-22, 1}, kAll, {0}});
  all.push_back({"accumulate",
                 {given(half({3}), {65504, 65504, 0x1p-24}), given(half({3}), {15, 16, 0x1p-24})},
                 {},
                 sum,
                 kExact,
                 kUsual,
                 {0}});
  const Definition mean = [](const Arrays& in, const Attributes&) {
    Array y = in[0];
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      y.values[i] += (in[1].values[i] - y.values[i]) / (kMoment.micro_batch + 1);
    }
    return Arrays{y};
  };
  all.push_back(
      {"accumulate", {half({43}), half({43})}, {{"mean", std::int64_t{1}}}, mean, {0x1p-22, 1}, {1, 0x1p-13}, {0}});
  all.push_back({"accumulate",
                 {given(half({2}), {65504, -65504}), given(half({2}), {65504, 65504})},
                 {{"mean", std::int64_t{1}}},
                 mean,
                 kExact,
                 kUsual,
                 {0}});
  const Definition value = [](const Arrays& in, const Attributes&) { return Arrays{in[1]}; };
  all.push_back({"assign", {half({43}), single({43})}, {}, value, kExact, kUsual, {0}});
  all.push_back({"assign", {half({43}), single({43}, -1e-6, 1e-6)}, {}, value, kExact, kUsual, {0}});
  all.push_back({"assign", {half({43}), single({43}, -7e4, 7e4)}, {}, value, kExact, kUsual, {0}});
  all.push_back({"assign", {single({43}), half({43})}, {}, value, kExact, kAll, {0}});
  return all;
}

}  // namespace poprun::testing
