#include <algorithm>
#include <functional>
#include <limits>

#include "tests/unit/replica/ops/case.h"

/// Sums, products of matrices and reductions.
namespace poprun::testing {
namespace {

bool flag(const Attributes& a, const std::string& name) {
  return a.has(name) && a.integer(name) != 0;
}

/// Computes a dense layer of x [...,I], w [O,I] or [I,O], and b [O] or no bias.
Arrays linear(const Arrays& in, const Attributes& a) {
  const std::int64_t I = in[0].shape.back();
  const std::int64_t O = in[1].shape[flag(a, "input_major") ? 1 : 0];
  Array y(in[0].shape);
  y.shape.back() = O;
  y = Array(y.shape);
  for_each_index(y.shape, [&](const Shape& index) {
    const std::int64_t o = index.back();
    y(index) = in.size() == 3 ? in[2]({o}) : 0;
    Shape from = index;
    for (std::int64_t i = 0; i < I; ++i) {
      from.back() = i;
      y(index) += in[0](from) * in[1](flag(a, "input_major") ? Shape{i, o} : Shape{o, i});
    }
  });
  return {y};
}

/// dy [...,O], w  ->  dx [...,I]
Arrays linear_input_gradient(const Arrays& in, const Attributes& a) {
  Shape x = in[0].shape;
  x.back() = in[1].shape[flag(a, "input_major") ? 0 : 1];
  return {slope(linear, {Array(x), in[1]}, a, 0, in[0])};
}

/// x, dy  ->  dw, and db
Arrays linear_weight_gradient(const Arrays& in, const Attributes& a) {
  const std::int64_t I = in[0].shape.back();
  const std::int64_t O = in[1].shape.back();
  const Arrays at = {in[0], Array(flag(a, "input_major") ? Shape{I, O} : Shape{O, I}), Array({O})};
  Arrays gradients = {slope(linear, at, a, 1, in[1])};
  if (flag(a, "bias")) {
    gradients.push_back(slope(linear, at, a, 2, in[1]));
  }
  return gradients;
}

void add_linear(std::vector<Case>& all) {
  for (const bool input_major : {false, true}) {
    Attributes a{{"input_major", std::int64_t{input_major}}};
    const auto w = [=](std::int64_t I, std::int64_t O) { return half(input_major ? Shape{I, O} : Shape{O, I}); };
    all.push_back({"linear", {half({3, 99}), w(99, 5), half({5})}, a, linear, {0x1p-22, 99}, kAll});
    all.push_back({"linear", {half({2, 3, 7}), w(7, 11)}, a, linear, {0x1p-22, 7}, kAll});
    all.push_back({"linear_input_gradient", {half({3, 37}), w(5, 37)}, a, linear_input_gradient, {0x1p-22, 37}, kAll});
    for (const std::int64_t bias : {0, 1}) {
      a.set("bias", bias);
      all.push_back(
          {"linear_weight_gradient", {half({67, 7}), half({67, 5})}, a, linear_weight_gradient, {0x1p-22, 67}, kAll});
    }
  }
}

/// Multiplies a [...,M,K] by b [...,K,N], of which each may be transposed; leading dimensions broadcast.
Arrays matmul(const Arrays& in, const Attributes& at) {
  const bool swaps_a = flag(at, "transpose_a");
  const bool swaps_b = flag(at, "transpose_b");
  const auto rank_a = in[0].shape.size();
  const auto rank_b = in[1].shape.size();
  const std::int64_t K = in[0].shape[rank_a - (swaps_a ? 2 : 1)];
  Shape shape(std::max(rank_a, rank_b), 1);
  for (std::size_t d = 2; d < shape.size(); ++d) {
    shape[shape.size() - 1 - d] =
        std::max(d < rank_a ? in[0].shape[rank_a - 1 - d] : 1, d < rank_b ? in[1].shape[rank_b - 1 - d] : 1);
  }
  shape[shape.size() - 2] = in[0].shape[rank_a - (swaps_a ? 1 : 2)];
  shape[shape.size() - 1] = in[1].shape[rank_b - (swaps_b ? 2 : 1)];
  const auto element = [](const Array& x, Shape index, std::int64_t row, std::int64_t column, bool swaps) {
    index[index.size() - 2] = swaps ? column : row;
    index[index.size() - 1] = swaps ? row : column;
    return x.broadcast(index);
  };
  Array y(shape);
  for_each_index(shape, [&](const Shape& index) {
    for (std::int64_t k = 0; k < K; ++k) {
      y(index) +=
          element(in[0], index, index[index.size() - 2], k, swaps_a) * element(in[1], index, k, index.back(), swaps_b);
    }
    y(index) *= at.has("scale") ? at.real("scale") : 1;
  });
  return {y};
}

void add_matmul(std::vector<Case>& all) {
  const auto add = [&](Shape a, Shape b, const Attributes& attributes, std::int64_t K) {
    all.push_back({"matmul",
                   {half(std::move(a)), half(std::move(b))},
                   attributes,
                   matmul,
                   {0x1p-22, static_cast<double>(K)},
                   kAll});
  };
  const std::int64_t yes = 1;
  add({3, 37}, {37, 5}, {}, 37);
  add({2, 3, 7, 5}, {5, 9}, {{"scale", 0.125}}, 5);
  add({2, 1, 3, 33}, {1, 3, 5, 33}, {{"transpose_b", yes}}, 33);
  add({2, 65, 3}, {2, 65, 5}, {{"transpose_a", yes}, {"scale", 0.3}}, 65);
  add({2, 5, 3}, {7, 5}, {{"transpose_a", yes}, {"transpose_b", yes}}, 5);
}

/// Sums in[0] to a shape that broadcasts to that of in[0].
Arrays summed(const Arrays& in, const Attributes& a) {
  Array y(a.integers("shape"));
  for_each_index(in[0].shape, [&](const Shape& index) {
    Shape to(index.end() - static_cast<std::ptrdiff_t>(y.shape.size()), index.end());
    for (std::size_t d = 0; d < to.size(); ++d) {
      to[d] = y.shape[d] == 1 ? 0 : to[d];
    }
    y(to) += in[0](index) * (a.has("scale") ? a.real("scale") : 1);
  });
  return {y};
}

/// Reduces, for each element of y, all elements of x that contribute to it.
Arrays reduced(const Arrays& in, const Attributes& a, const std::function<double(double, double)>& f, double start) {
  Shape shape = in[0].shape;
  for (const std::int64_t axis : a.integers("axes")) {
    shape[static_cast<std::size_t>(axis)] = 1;
  }
  Array y(shape, start);
  for_each_index(in[0].shape, [&](const Shape& index) {
    Shape to = index;
    for (std::size_t d = 0; d < to.size(); ++d) {
      to[d] = shape[d] == 1 ? 0 : to[d];
    }
    y(to) = f(y(to), in[0](index));
  });
  return {y};
}

Definition reduction(const std::function<double(double, double)>& f, double start) {
  return [=](const Arrays& in, const Attributes& a) { return reduced(in, a, f, start); };
}

Arrays argument(const Arrays& in, const Attributes& a, double sign) {
  Shape shape = in[0].shape;
  const std::int64_t A = shape[1];
  shape[1] = 1;
  Array y(shape);
  for_each_index(shape, [&](const Shape& index) {
    Shape best = index;
    for (Shape i = index; i[1] < A; ++i[1]) {
      const bool larger = sign * in[0](i) > sign * in[0](best);
      best = larger || (flag(a, "last") && in[0](i) == in[0](best)) ? i : best;
    }
    y(index) = static_cast<double>(best[1]);
  });
  return {y};
}

/// Adds a running product, with a zero among its factors.
void add_product(std::vector<Case>& all, bool exclusive, bool reverse) {
  const Attributes a{
      {"axis", std::int64_t{1}}, {"exclusive", std::int64_t{exclusive}}, {"reverse", std::int64_t{reverse}}};
  const Definition definition = [=](const Arrays& in, const Attributes&) {
    Array y(in[0].shape, 1);
    for_each_index(y.shape, [&](const Shape& i) {
      for (Shape j = {i[0], 0, i[2]}; j[1] < 5; ++j[1]) {
        const bool before = reverse ? j[1] > i[1] : j[1] < i[1];
        y(i) *= before || (!exclusive && i[1] == j[1]) ? in[0](j) : 1;
      }
    });
    return Arrays{y};
  };
  const Input x = given(half({2, 5, 2}), {1.5, -2, 0.5, 3, 0, -1, 2, 0.75, -1.25, 2,  //
                                          3,   1,  -1,  2, 1, 0,  0, 0,    2,     -3});
  all.push_back({"cum_prod", {x}, a, definition, {0x1p-22, 1}});
  all.push_back({"cum_prod_gradient",
                 {x, half({2, 5, 2})},
                 a,
                 [definition](const Arrays& in, const Attributes& with) {
                   return Arrays{slope(definition, {in[0]}, with, 0, in[1])};
                 },
                 {0x1p-18, 8}});
}

void add_sums(std::vector<Case>& all) {
  const auto to = [](Shape shape, const char* layout) {
    return Attributes{{"shape", std::move(shape)}, {"layout", std::string{layout}}};
  };
  all.push_back({"sum_to", {half({3, 43})}, to({3, 1}, "row-major"), summed, {0x1p-22, 43}, kAll});
  all.push_back({"sum_to", {half({7, 5})}, to({5}, "row-major"), summed, {0x1p-22, 7}, kAll});
  all.push_back({"sum_to", {half({7, 37})}, to({}, "row-major"), summed, {0x1p-22, 259}, kAll});
  all.push_back({"sum_to", {half_image({2, 3, 5, 3})}, to({1, 3, 1, 1}, "nhwc"), summed, {0x1p-22, 30}, kAll});
  Attributes mean = to({3, 1}, "row-major");
  mean.set("scale", 1.0 / 43);
  all.push_back({"sum_to", {half({3, 43})}, mean, summed, {0x1p-22, 43}, kAll});
  for (const bool exclusive : {false, true}) {
    for (const bool reverse : {false, true}) {
      all.push_back(
          {"cum_sum",
           {half({2, 9, 3})},
           {{"axis", std::int64_t{1}}, {"exclusive", std::int64_t{exclusive}}, {"reverse", std::int64_t{reverse}}},
           [=](const Arrays& in, const Attributes&) {
             Array y(in[0].shape);
             for_each_index(y.shape, [&](const Shape& i) {
               for (Shape j = {i[0], 0, i[2]}; j[1] < 9; ++j[1]) {
                 const bool before = reverse ? j[1] > i[1] : j[1] < i[1];
                 y(i) += before || (!exclusive && i[1] == j[1]) ? in[0](j) : 0;
               }
             });
             return Arrays{y};
           },
           {0x1p-22, 9},
           kAll});
      add_product(all, exclusive, reverse);
    }
  }
}

void add_reductions(std::vector<Case>& all) {
  const double inf = std::numeric_limits<double>::infinity();
  const Attributes axes{{"axes", Shape{0, 2}}};
  const auto larger = reduction([](double y, double x) { return std::max(y, x); }, -inf);
  const auto smaller = reduction([](double y, double x) { return std::min(y, x); }, inf);
  const auto product = reduction([](double y, double x) { return y * x; }, 1);
  const Attributes channels{{"axes", Shape{1}}};
  all.push_back({"reduce_max", {half({3, 2, 5})}, axes, larger, kExact, kAll});
  all.push_back({"reduce_max", {half_image({2, 5, 3, 1})}, channels, larger, kExact, kAll});
  all.push_back({"reduce_min", {half({3, 2, 5})}, axes, smaller, kExact, kAll});
  all.push_back({"reduce_prod", {half({3, 2, 5}, 0.5, 4)}, axes, product, {0x1p-19, 1}});
  const Attributes last{{"axes", Shape{1}}};
  // y is given exactly as stored in half, so that it compares equal to the extremes.
  all.push_back({"reduce_extreme_gradient",
                 {given(half({2, 3}), {1, 3, 3, -2, -4, -2}), given(half({2, 1}), {3, -2}), half({2, 1})},
                 {},
                 [](const Arrays& in, const Attributes&) {
                   Array dx({2, 3});
                   dx({0, 1}) = in[2]({0, 0});
                   dx({1, 0}) = in[2]({1, 0});
                   return Arrays{dx};
                 },
                 kExact,
                 kAll});
  all.push_back({"reduce_prod_gradient",
                 {half({3, 5}, 0.5, 4), half({3, 1})},
                 {},
                 [=](const Arrays& in, const Attributes&) { return Arrays{slope(product, {in[0]}, last, 0, in[1])}; },
                 {0x1p-19, 1}});
  for (const std::int64_t l : {0, 1}) {
    const Attributes a{{"axis", std::int64_t{1}}, {"last", l}};
    const Input x = given(half({2, 4}), {1, 5, 5, 2, -3, -7, 0, -7});
    for (const bool max : {true, false}) {
      all.push_back({max ? "arg_max" : "arg_min",
                     {x},
                     a,
                     [max](const Arrays& in, const Attributes& b) { return argument(in, b, max ? 1 : -1); },
                     kExact});
    }
  }
}

}  // namespace

std::vector<Case> sum_cases() {
  std::vector<Case> all;
  add_linear(all);
  add_matmul(all);
  add_sums(all);
  add_reductions(all);
  return all;
}

}  // namespace poprun::testing
