#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/unit/replica/ops/case.h"

/// Operators that move elements: every stored bit stays the same.
namespace poprun::testing {
namespace {

/// Returns the definition of an array of `shape` whose element at `index` is in[0]'s element at from(index).
Definition moved(const Shape& shape, const std::function<Shape(const Shape&)>& from) {
  return [shape, from](const Arrays& in, const Attributes&) {
    Array y(shape);
    for_each_index(shape, [&](const Shape& index) { y(index) = in[0](from(index)); });
    return Arrays{y};
  };
}

/// `reshaped` keeps the elements in row-major order; `expanded` broadcasts them.
Arrays reshaped(const Arrays& in, const Attributes& a) {
  Array y(a.integers("shape"));
  y.values = in[0].values;
  return {y};
}
Arrays expanded(const Arrays& in, const Attributes& a) {
  Array y(a.integers("shape"));
  for_each_index(y.shape, [&](const Shape& index) { y(index) = in[0].broadcast(index); });
  return {y};
}

void add_shapes(std::vector<Case>& all) {
  const auto to = [](Shape shape, const char* layout) {
    return Attributes{{"shape", std::move(shape)}, {"layout", std::string{layout}}};
  };
  all.push_back({"reshape", {half({3, 14})}, to({2, 3, 7}, "row-major"), reshaped, kExact, kAll});
  all.push_back({"reshape", {half_image({2, 3, 5, 3})}, to({2, 45}, "row-major"), reshaped, kExact});
  all.push_back({"reshape", {half({2, 45})}, to({2, 3, 5, 3}, "nhwc"), reshaped, kExact});
  all.push_back({"expand", {half({3, 1})}, to({2, 3, 7}, "row-major"), expanded, kExact, kAll});
  all.push_back({"expand", {half_image({1, 3, 1, 1})}, to({2, 3, 5, 3}, "nhwc"), expanded, kExact});
  all.push_back({"transpose",
                 {half({3, 2, 5})},
                 {{"perm", Shape{2, 0, 1}}},
                 moved({5, 3, 2},
                       [](const Shape& i) {
                         return Shape{i[1], i[2], i[0]};
                       }),
                 kExact,
                 kAll});
}

void add_pieces(std::vector<Case>& all) {
  const Attributes steps{
      {"axis", std::int64_t{1}}, {"begin", std::int64_t{5}}, {"count", std::int64_t{3}}, {"step", std::int64_t{-2}}};
  const auto back = [](const Shape& i) {
    Shape from = i;
    from[1] = 5 - 2 * i[1];
    return from;
  };
  all.push_back({"slice", {half({3, 7, 3})}, steps, moved({3, 3, 3}, back), kExact, kAll});
  all.push_back({"slice", {half_image({1, 7, 3, 3})}, steps, moved({1, 3, 3, 3}, back), kExact});
  Attributes of_gradient = steps;
  of_gradient.set("size", std::int64_t{7});
  all.push_back({"slice_gradient",
                 {half({3, 3, 3})},
                 of_gradient,
                 [back](const Arrays& in, const Attributes&) {
                   Array dx({3, 7, 3});
                   for_each_index(in[0].shape, [&](const Shape& i) { dx(back(i)) = in[0](i); });
                   return Arrays{dx};
                 },
                 kExact,
                 kAll});
  const auto part = [](std::int64_t begin) { return [begin](const Shape& i) { return Shape{i[0], i[1] + begin}; }; };
  all.push_back({"split",
                 {half({3, 9})},
                 {{"axis", std::int64_t{1}}, {"sizes", Shape{1, 5, 3}}},
                 [part](const Arrays& in, const Attributes& a) {
                   return Arrays{moved({3, 1}, part(0))(in, a)[0], moved({3, 5}, part(1))(in, a)[0],
                                 moved({3, 3}, part(6))(in, a)[0]};
                 },
                 kExact,
                 kAll});
  all.push_back({"insert",
                 {half({3, 9}), half({3, 5})},
                 {{"axis", std::int64_t{1}}, {"begin", std::int64_t{3}}},
                 [](const Arrays& in, const Attributes&) {
                   Array y = in[0];
                   for_each_index(in[1].shape, [&](const Shape& i) { y({i[0], i[1] + 3}) = in[1](i); });
                   return Arrays{y};
                 },
                 kExact,
                 kAll});
  all.push_back({"concat",
                 {half({3, 1}), half({3, 5}), half({3, 3})},
                 {{"axis", std::int64_t{1}}},
                 [](const Arrays& in, const Attributes&) {
                   Array y({3, 9});
                   for_each_index(y.shape, [&](const Shape& i) {
                     y(i) = i[1] < 1 ? in[0](i) : i[1] < 6 ? in[1]({i[0], i[1] - 1}) : in[2]({i[0], i[1] - 6});
                   });
                   return Arrays{y};
                 },
                 kExact,
                 kAll});
}

std::int64_t folded(std::int64_t i, std::int64_t n, const std::string& mode) {
  if (mode == "edge") {
    return std::clamp<std::int64_t>(i, 0, n - 1);
  }
  while (mode == "reflect" && (i < 0 || i >= n)) {
    i = i < 0 ? -i : 2 * (n - 1) - i;
  }
  return i;
}

Arrays padded(const Arrays& in, const Attributes& a) {
  Shape shape = in[0].shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    shape[d] += a.integers("begin")[d] + a.integers("end")[d];
  }
  Array y(shape);
  for_each_index(shape, [&](const Shape& index) {
    Shape from = index;
    bool inside = true;
    for (std::size_t d = 0; d < from.size(); ++d) {
      from[d] = folded(index[d] - a.integers("begin")[d], in[0].shape[d], a.text("mode"));
      inside = inside && from[d] >= 0 && from[d] < in[0].shape[d];
    }
    y(index) = inside ? in[0](from) : a.real("value");
  });
  return {y};
}

void add_padding(std::vector<Case>& all) {
  for (const char* mode : {"constant", "reflect", "edge"}) {
    Attributes a{{"begin", Shape{2, -1}}, {"end", Shape{0, 3}}, {"mode", std::string{mode}}, {"value", 0.5}};
    all.push_back({"pad", {half({3, 4})}, a, padded, kExact, kAll});
    a.set("input_shape", Shape{3, 4});
    all.push_back({"pad_gradient",
                   {half({5, 6})},
                   a,
                   [](const Arrays& in, const Attributes& b) {
                     return Arrays{slope(padded, {Array({3, 4})}, b, 0, in[0])};
                   },
                   {.relative = 0x1p-22, .terms = 8},
                   kAll});
  }
}

/// Resolves an index as the operators do: a negative index counts from the end. Returns false if it is out of range.
bool resolve(double index, std::int64_t size, std::int64_t& to) {
  to = static_cast<std::int64_t>(index) + (index < 0 ? size : 0);
  return to >= 0 && to < size;
}

/// Computes gather on axis 1 of [2,5,3] with indices [4].
Arrays gathered(const Arrays& in, const Attributes&) {
  Array y({2, 4, 3});
  for_each_index(y.shape, [&](const Shape& i) {
    std::int64_t row = 0;
    y(i) = resolve(in[1]({i[1]}), 5, row) ? in[0]({i[0], row, i[2]}) : 0;
  });
  return {y};
}

Array gathered_gradient(const Arrays& in) {
  Array dx({2, 5, 3});
  for_each_index(in[0].shape, [&](const Shape& i) {
    std::int64_t row = 0;
    if (resolve(in[1]({i[1]}), 5, row)) {
      dx({i[0], row, i[2]}) += in[0](i);
    }
  });
  return dx;
}

void add_gathers(std::vector<Case>& all) {
  const Attributes axis{{"axis", std::int64_t{1}}};
  Attributes of_gradient = axis;
  of_gradient.set("input_shape", Shape{2, 5, 3});
  const Input rows = indices({4}, {3, -1, 3, 9});
  all.push_back({"gather", {half({2, 5, 3}), rows}, axis, gathered, kExact, kAll});
  Attributes part = axis;
  part.set("begin", std::int64_t{2});
  part.set("whole", std::int64_t{5});
  all.push_back({"gather",
                 {half({2, 3, 3}), rows},
                 part,
                 [](const Arrays& in, const Attributes&) {
                   Array whole({2, 5, 3});
                   for_each_index(in[0].shape, [&](const Shape& i) { whole({i[0], i[1] + 2, i[2]}) = in[0](i); });
                   return gathered({whole, in[1]}, {});
                 },
                 kExact,
                 kAll});
  const Error sums{.relative = 0x1p-22, .terms = 4};
  all.push_back({"gather_gradient",
                 {half({2, 4, 3}), rows},
                 of_gradient,
                 [](const Arrays& in, const Attributes&) { return Arrays{gathered_gradient(in)}; },
                 sums,
                 kAll});
  Attributes of_piece = of_gradient;
  of_piece.set("input_shape", Shape{2, 2, 3});
  of_piece.set("begin", std::int64_t{3});
  of_piece.set("whole", std::int64_t{5});
  all.push_back({"gather_gradient",
                 {half({2, 4, 3}), rows},
                 of_piece,
                 [](const Arrays& in, const Attributes&) {
                   const Array whole = gathered_gradient(in);
                   Array dx({2, 2, 3});
                   for_each_index(dx.shape, [&](const Shape& i) { dx(i) = whole({i[0], i[1] + 3, i[2]}); });
                   return Arrays{dx};
                 },
                 sums,
                 kAll});
  all.push_back({"gather_gradient",
                 {half({2, 4, 3}), rows, half({2, 5, 3})},
                 of_gradient,
                 [](const Arrays& in, const Attributes&) {
                   Array dx = gathered_gradient(in);
                   for (std::size_t i = 0; i < dx.values.size(); ++i) {
                     dx.values[i] += in[2].values[i];
                   }
                   return Arrays{dx};
                 },
                 sums,
                 kAll});
}

/// Call visit(element of x, index of updates) for every place: each_element for scatter_elements on axis 0 of a matrix,
/// each_row for scatter_nd with two coordinates and rows of x after them.
void each_element(const Arrays& in, const std::function<void(const Shape&, const Shape&)>& visit) {
  for_each_index(in[1].shape, [&](const Shape& i) {
    std::int64_t row = 0;
    if (resolve(in[1](i), in[0].shape[0], row)) {
      visit({row, i[1]}, i);
    }
  });
}
void each_row(const Arrays& in, const std::function<void(const Shape&, const Shape&)>& visit) {
  for_each_index({in[1].shape[0], in[0].shape[2]}, [&](const Shape& i) {
    std::int64_t first = 0;
    std::int64_t second = 0;
    if (resolve(in[1]({i[0], 0}), in[0].shape[0], first) && resolve(in[1]({i[0], 1}), in[0].shape[1], second)) {
      visit({first, second, i[1]}, i);
    }
  });
}

using EachPlace = void (*)(const Arrays&, const std::function<void(const Shape&, const Shape&)>&);

/// Adds cases of gather and scatter. If places repeat, the last update stays, but its gradient is not well defined.
void add_places(std::vector<Case>& all, const std::string& suffix, const Input& x, const Input& places, bool repeat,
                const Shape& y_shape, EachPlace each_place, Attributes a) {
  all.push_back({"gather_" + suffix,
                 {x, places},
                 a,
                 [=](const Arrays& in, const Attributes&) {
                   Array y(y_shape);
                   each_place(in, [&](const Shape& from, const Shape& to) { y(to) = in[0](from); });
                   return Arrays{y};
                 },
                 kExact,
                 kAll});
  for (const bool adds : {false, true}) {
    a.set("reduction", std::string{adds ? "add" : "none"});
    all.push_back({"scatter_" + suffix,
                   {x, places, half(y_shape)},
                   a,
                   [=](const Arrays& in, const Attributes&) {
                     Array y = in[0];
                     each_place(in,
                                [&](const Shape& to, const Shape& from) { y(to) = in[2](from) + (adds ? y(to) : 0); });
                     return Arrays{y};
                   },
                   adds ? Error{.relative = 0x1p-22, .terms = 4} : kExact,
                   kAll});
    all.back().differentiable = adds || !repeat;
  }
  for (const char* reduction : {"mul", "min", "max"}) {
    a.set("reduction", std::string{reduction});
    const Definition definition = [=](const Arrays& in, const Attributes& with) {
      Array y = in[0];
      each_place(in, [&](const Shape& to, const Shape& from) {
        y(to) = with.text("reduction") == "mul"   ? y(to) * in[2](from)
                : with.text("reduction") == "min" ? std::min(y(to), in[2](from))
                                                  : std::max(y(to), in[2](from));
      });
      return Arrays{y};
    };
    all.push_back({"scatter_" + suffix,
                   {x, places, half(y_shape)},
                   a,
                   definition,
                   std::string_view{reduction} == "mul" ? Error{} : kExact});
    all.push_back(
        {"scatter_" + suffix + "_gradient",
         {x, places, half(y_shape), x},
         a,
         [definition](const Arrays& in, const Attributes& with) {
           const Arrays operands = {in[0], in[1], in[2]};
           return Arrays{slope(definition, operands, with, 0, in[3]), slope(definition, operands, with, 2, in[3])};
         },
         {0x1p-18, 4}});
  }
}

/// Returns the definition of a mask: zero, or a number that halves can represent, so low that masked scores vanish.
Definition mask_of(const Shape& shape, const std::function<bool(const Arrays&, const Shape&)>& seen) {
  return [=](const Arrays& in, const Attributes&) {
    Array y(shape);
    for_each_index(shape, [&](const Shape& i) { y(i) = seen(in, i) ? 0 : -16384; });
    return Arrays{y};
  };
}

void add_masks(std::vector<Case>& all) {
  all.push_back({"attention_mask",
                 {indices({2, 3}, {1, 0, 7, 0, 1, 1})},
                 {},
                 mask_of({2, 1, 1, 3},
                         [](const Arrays& in, const Shape& i) {
                           return in[0]({i[0], i[3]}) != 0;
                         }),
                 kExact});
  all.push_back({"causal_mask",
                 {},
                 {{"size", std::int64_t{5}}},
                 mask_of({5, 5}, [](const Arrays&, const Shape& i) { return i[1] <= i[0]; }),
                 kExact});
}

void add_triangles(std::vector<Case>& all) {
  for (const bool upper : {false, true}) {
    all.push_back({"trilu",
                   {half({2, 3, 5})},
                   {{"upper", std::int64_t{upper}}, {"k", std::int64_t{1}}},
                   [upper](const Arrays& in, const Attributes&) {
                     Array y = in[0];
                     for_each_index(y.shape, [&](const Shape& i) {
                       const std::int64_t above = i[2] - i[1] - 1;
                       y(i) = (upper ? above >= 0 : above <= 0) ? y(i) : 0;
                     });
                     return Arrays{y};
                   },
                   kExact,
                   kAll});
  }
}

/// Interpolates along axis 1 by ONNX's formulas.
Arrays resized(const Arrays& in, const Attributes& a) {
  const Array& x = in[0];
  const std::int64_t A = x.shape[1];
  Shape shape = x.shape;
  shape[1] = a.integer("size");
  Array y(shape);
  for_each_index(shape, [&](const Shape& index) {
    const double scale = static_cast<double>(shape[1]) / static_cast<double>(A);
    const auto i = static_cast<double>(index[1]);
    const double place = a.text("coordinates") == "asymmetric" ? i / scale : (i + 0.5) / scale - 0.5;
    const auto read = [&](double p) {
      Shape from = index;
      from[1] = std::clamp<std::int64_t>(static_cast<std::int64_t>(p), 0, A - 1);
      return x(from);
    };
    const double below = std::floor(place);
    if (a.text("mode") == "nearest") {
      y(index) = read(std::ceil(place - 0.5));
    } else if (a.text("mode") == "linear") {
      y(index) = read(below) * (below + 1 - place) + read(below + 1) * (place - below);
    } else {
      for (double tap = below - 1; tap < below + 3; ++tap) {
        const double s = std::abs(place - tap);
        const double k = -0.75;
        y(index) += read(tap) * (s <= 1 ? (k + 2) * s * s * s - (k + 3) * s * s + 1
                                        : k * s * s * s - 5 * k * s * s + 8 * k * s - 4 * k);
      }
    }
  });
  return {y};
}

void add_resizing(std::vector<Case>& all) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const std::int64_t size : {3, 11}) {
      Attributes a{{"axis", std::int64_t{1}},
                   {"size", size},
                   {"mode", std::string{mode}},
                   {"coordinates", std::string{size == 3 ? "asymmetric" : "half_pixel"}}};
      const Error error{.relative = 0x1p-21, .terms = 8};
      all.push_back({"resize", {half({3, 7, 5})}, a, resized, error, kAll});
      all.push_back({"resize", {half_image({1, 7, 1, 3})}, a, resized, error});
      a.set("input_size", std::int64_t{7});
      all.push_back({"resize_gradient",
                     {half({3, size, 5})},
                     a,
                     [](const Arrays& in, const Attributes& b) {
                       return Arrays{slope(resized, {Array({3, 7, 5})}, b, 0, in[0])};
                     },
                     error,
                     kAll});
    }
  }
}

}  // namespace

std::vector<Case> movement_cases() {
  std::vector<Case> all;
  add_shapes(all);
  add_pieces(all);
  add_padding(all);
  add_gathers(all);
  for (const bool repeat : {false, true}) {
    const double first = repeat ? 0 : 1;
    add_places(all, "elements", half({4, 3}), indices({5, 2}, {first, 3, -1, 1, 0, 9, 2, 2, 5, -4}), repeat, {5, 2},
               each_element, {{"axis", std::int64_t{0}}});
    add_places(all, "nd", half({4, 3, 5}), indices({3, 2}, {first, 2, -1, 1, 0, 2}), repeat, {3, 5}, each_row,
               {{"batch_dims", std::int64_t{0}}});
  }
  add_masks(all);
  add_triangles(all);
  add_resizing(all);
  return all;
}

}  // namespace poprun::testing
