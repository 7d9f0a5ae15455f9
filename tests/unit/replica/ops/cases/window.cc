#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "tests/unit/replica/ops/case.h"

/// Operators on windows of images: convolution, pooling, response normalisation.
namespace poprun::testing {
namespace {

/// Convolves x [N,C,H,W] with w [O,C/G,R,S], and adds b [O] if given.
Arrays convolved(const Arrays& in, const Attributes& a) {
  const Shape& x = in[0].shape;
  const Shape& w = in[1].shape;
  const auto& stride = a.integers("stride");
  const auto& pad = a.integers("pad");
  const auto& dilation = a.integers("dilation");
  const auto size = [&](std::size_t d) {
    const std::int64_t reach = (w[d + 2] - 1) * dilation[d] + 1;
    return (x[d + 2] + pad[d] + pad[d + 2] - reach) / stride[d] + 1;
  };
  Array y({x[0], w[0], size(0), size(1)});
  const std::int64_t per_group = w[0] / a.integer("groups");
  for_each_index(y.shape, [&](const Shape& i) {
    double sum = in.size() == 3 ? in[2]({i[1]}) : 0;
    for_each_index({w[1], w[2], w[3]}, [&](const Shape& t) {
      const std::int64_t h = i[2] * stride[0] - pad[0] + t[1] * dilation[0];
      const std::int64_t v = i[3] * stride[1] - pad[1] + t[2] * dilation[1];
      if (h >= 0 && h < x[2] && v >= 0 && v < x[3]) {
        sum += in[0]({i[0], i[1] / per_group * w[1] + t[0], h, v}) * in[1]({i[1], t[0], t[1], t[2]});
      }
    });
    y(i) = sum;
  });
  return {y};
}

/// dy, w  ->  dx
Arrays convolved_by_input(const Arrays& in, const Attributes& a) {
  return {slope(convolved, {Array(a.integers("input_shape")), in[1]}, a, 0, in[0])};
}

/// x, dy  ->  dw, and db
Arrays convolved_by_weight(const Arrays& in, const Attributes& a) {
  const auto& kernel = a.integers("kernel");
  const std::int64_t O = in[1].shape[1];
  const Arrays at = {in[0], Array({O, in[0].shape[1] / a.integer("groups"), kernel[0], kernel[1]}), Array({O})};
  Arrays gradients = {slope(convolved, at, a, 1, in[1])};
  if (a.integer("bias") != 0) {
    gradients.push_back(slope(convolved, at, a, 2, in[1]));
  }
  return gradients;
}

struct Convolution {
  Shape x;
  Shape w;
  Shape stride;
  Shape pad;
  Shape dilation;
  std::int64_t groups;
  Scales scales;
};

/// Adds the three passes of one convolution, with and without bias.
void add_convolution(std::vector<Case>& all, const Convolution& c) {
  const Attributes a{{"stride", c.stride}, {"pad", c.pad}, {"dilation", c.dilation}, {"groups", c.groups}};
  const Array y = convolved({Array(c.x), Array(c.w)}, a)[0];
  const auto channels = static_cast<double>(c.w[1] * c.w[2] * c.w[3]);
  const Input image = half_image(c.x);
  const Input w = half(c.w);
  const Input dy = half_image(y.shape);
  all.push_back({"conv2d", {image, w}, a, convolved, {0x1p-22, channels}, c.scales});
  all.push_back({"conv2d", {image, w, half({c.w[0]})}, a, convolved, {0x1p-22, channels}, c.scales});
  Attributes by_input = a;
  by_input.set("input_shape", c.x);
  all.push_back({"conv2d_input_gradient",
                 {dy, w},
                 by_input,
                 convolved_by_input,
                 {0x1p-22, static_cast<double>(c.w[0] / c.groups * c.w[2] * c.w[3])},
                 c.scales});
  Attributes by_weight = a;
  by_weight.set("kernel", Shape{c.w[2], c.w[3]});
  for (const std::int64_t bias : {0, 1}) {
    by_weight.set("bias", bias);
    all.push_back({"conv2d_weight_gradient",
                   {image, dy},
                   by_weight,
                   convolved_by_weight,
                   {0x1p-22, static_cast<double>(y.shape[0] * y.shape[2] * y.shape[3])},
                   c.scales});
  }
}

void add_convolutions(std::vector<Case>& all) {
  add_convolution(all, {{2, 3, 5, 7}, {5, 3, 3, 3}, {2, 1}, {1, 0, 1, 2}, {1, 1}, 1, kAll});
  add_convolution(all, {{1, 4, 7, 5}, {6, 2, 3, 2}, {1, 2}, {2, 1, 2, 0}, {2, 1}, 2, kAll});
  add_convolution(all, {{2, 5, 4, 4}, {5, 1, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 5, kUsual});
  // This convolution is a matrix product with enough input and output channels for partial sums over either.
  add_convolution(all, {{1, 35, 3, 1}, {37, 35, 1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1, kUsual});
  // This convolution has enough images for partial sums over them.
  add_convolution(all, {{33, 2, 3, 2}, {3, 2, 2, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1, kUsual});
}

/// Calls visit(index of y, values in the window, number of its places in the padded image).
void for_each_window(const Array& x, const Shape& y, const Attributes& a,
                     const std::function<void(const Shape&, const std::vector<double>&, int)>& visit) {
  const auto& window = a.integers("window");
  const auto& stride = a.integers("stride");
  const auto& pad = a.integers("pad");
  const Shape dilation = a.has("dilation") ? a.integers("dilation") : Shape{1, 1};
  for_each_index(y, [&](const Shape& i) {
    std::vector<double> values;
    int padded = 0;
    for_each_index(window, [&](const Shape& t) {
      const std::int64_t h = i[2] * stride[0] - pad[0] + t[0] * dilation[0];
      const std::int64_t v = i[3] * stride[1] - pad[1] + t[1] * dilation[1];
      if (h >= 0 && h < x.shape[2] && v >= 0 && v < x.shape[3]) {
        values.push_back(x({i[0], i[1], h, v}));
      }
      padded += h < x.shape[2] + pad[2] && v < x.shape[3] + pad[3] ? 1 : 0;
    });
    visit(i, values, padded);
  });
}

/// Returns the definition of pooling with a result of shape `y_shape`.
Definition pooled(const Shape& y_shape, bool max) {
  return [=](const Arrays& in, const Attributes& a) {
    Array y(y_shape);
    for_each_window(in[0], y_shape, a, [&](const Shape& i, const std::vector<double>& values, int padded) {
      double sum = 0;
      double largest = -std::numeric_limits<double>::infinity();
      for (const double value : values) {
        sum += value;
        largest = std::max(largest, value);
      }
      const bool counts_pad = !max && a.integer("count_pad") != 0;
      const double count = counts_pad ? padded : static_cast<double>(values.size());
      y(i) = max ? largest : sum / count;
    });
    return Arrays{y};
  };
}

struct Pooling {
  Shape window;
  Shape stride;
  Shape pad;
  std::int64_t ceil;
  Shape dilation;  ///< For maximum pooling.
  Shape y;         ///< Result shape for an image [2,3,7,5], computed by hand.
};

void add_pooling(std::vector<Case>& all, const Pooling& p, bool max) {
  const Shape x = {2, 3, 7, 5};
  Attributes a{{"window", p.window}, {"stride", p.stride}, {"pad", p.pad}, {"ceil", p.ceil}};
  const Definition definition = pooled(p.y, max);
  if (max) {
    a.set("dilation", p.dilation);
    all.push_back({"maxpool2d", {half_image(x)}, a, definition, kExact, kAll});
    Array image(x);  // Has distinct elements, which halves can represent.
    for (std::size_t i = 0; i < image.values.size(); ++i) {
      image.values[i] = (static_cast<double>(i * 97 % 211) - 104.5) / 64;
    }
    all.push_back({"maxpool2d_gradient",
                   {given(half_image(x), image.values), given(half_image(p.y), definition({image}, a)[0].values),
                    half_image(p.y)},
                   a,
                   [definition](const Arrays& in, const Attributes& b) {
                     return Arrays{slope(definition, {in[0]}, b, 0, in[2])};
                   },
                   {0x1p-22, 9},
                   kAll});
    return;
  }
  for (const std::int64_t count_pad : {0, 1}) {
    a.set("count_pad", count_pad);
    all.push_back({"avgpool2d", {half_image(x)}, a, definition, {0x1p-22, 12}, kAll});
    Attributes of_gradient = a;
    of_gradient.set("input_shape", x);
    all.push_back({"avgpool2d_gradient",
                   {half_image(p.y)},
                   of_gradient,
                   [definition, x](const Arrays& in, const Attributes& b) {
                     return Arrays{slope(definition, {Array(x)}, b, 0, in[0])};
                   },
                   {0x1p-22, 12},
                   kAll});
  }
}

/// Computes the response at every channel by ONNX's formula.
Arrays response(const Arrays& in, const Attributes& a) {
  const Array& x = in[0];
  const std::int64_t size = a.integer("size");
  Array y(x.shape);
  for_each_index(x.shape, [&](const Shape& index) {
    double squares = 0;
    for (Shape i = index; i[1] > 0;) {  // Down to the first channel of the window at most.
      --i[1];
      squares += index[1] - i[1] <= (size - 1) / 2 ? x(i) * x(i) : 0;
    }
    for (Shape i = index; i[1] < x.shape[1] && i[1] - index[1] <= size / 2; ++i[1]) {
      squares += x(i) * x(i);
    }
    const double s = a.real("bias") + a.real("alpha") / static_cast<double>(size) * squares;
    y(index) = x(index) * std::pow(s, -a.real("beta"));
  });
  return {y};
}

}  // namespace

std::vector<Case> window_cases() {
  std::vector<Case> all;
  add_convolutions(all);
  for (const bool max : {true, false}) {
    add_pooling(all, {{2, 2}, {2, 2}, {0, 0, 0, 0}, 0, {1, 1}, {2, 3, 3, 2}}, max);
    add_pooling(all, {{3, 3}, {2, 2}, {1, 1, 1, 1}, 1, {1, 1}, {2, 3, 4, 3}}, max);
    add_pooling(all, {{3, 2}, {2, 1}, {1, 0, 0, 1}, 0, {1, 1}, {2, 3, 3, 5}}, max);
  }
  add_pooling(all, {{2, 3}, {1, 2}, {1, 2, 1, 2}, 0, {3, 2}, {2, 3, 6, 3}}, true);
  for (const auto& [size, beta] : {std::pair{5, 0.75}, std::pair{4, 0.5}}) {
    const Attributes a{{"size", std::int64_t{size}}, {"alpha", 0.5}, {"beta", beta}, {"bias", 1.5}};
    all.push_back({"lrn", {half_image({2, 7, 3, 1})}, a, response, {0x1p-20, 1}});
    all.push_back({"lrn", {half_image({2, 7, 3, 1}, -300, 300)}, a, response, {0x1p-20, 1}});
    all.push_back({"lrn_gradient",
                   {half_image({2, 7, 3, 1}), half_image({2, 7, 3, 1})},
                   a,
                   gradient_of(response),
                   {0x1p-20, 16}});
  }
  return all;
}

}  // namespace poprun::testing
