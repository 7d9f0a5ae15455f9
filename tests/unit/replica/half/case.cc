#include "case.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace poprun::testing {

Array::Array(Shape of_shape, double value)
    : shape(std::move(of_shape)),
      values(static_cast<std::size_t>(
                 std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{})),
             value) {}

std::size_t Array::offset(const Shape& index) const {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    at = at * shape[d] + index[d];
  }
  return static_cast<std::size_t>(at);
}

double Array::broadcast(const Shape& index) const {
  Shape own(index.end() - static_cast<std::ptrdiff_t>(shape.size()), index.end());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    own[d] = shape[d] == 1 ? 0 : own[d];
  }
  return (*this)(own);
}

void for_each_index(const Shape& shape, const std::function<void(const Shape&)>& visit) {
  const std::size_t count = Array(shape).values.size();
  Shape index(shape.size(), 0);
  for (std::size_t i = 0; i < count; ++i) {
    visit(index);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) {
        break;
      }
      index[d] = 0;
    }
  }
}

Array slope(const Definition& definition, const Arrays& inputs, const Attributes& attributes,
            std::size_t by, const Array& dy) {
  const auto loss = [&](const Arrays& at) {
    const Array y = definition(at, attributes)[0];
    return std::inner_product(y.values.begin(), y.values.end(), dy.values.begin(), 0.0);
  };
  double largest = 0;
  for (const double x : inputs[by].values) {
    largest = std::max(largest, std::abs(x));
  }
  const double h = 1e-5 * (largest == 0 ? 1 : largest);
  Array gradient(inputs[by].shape);
  Arrays at = inputs;
  for (std::size_t i = 0; i < gradient.values.size(); ++i) {
    const double x = inputs[by].values[i];
    at[by].values[i] = x + h;
    const double above = loss(at);
    at[by].values[i] = x - h;
    gradient.values[i] = (above - loss(at)) / (2 * h);
    at[by].values[i] = x;
  }
  return gradient;
}

Definition gradient_of(Definition definition, std::size_t count) {
  return [definition = std::move(definition), count](const Arrays& all, const Attributes& a) {
    const Arrays inputs(all.begin(), all.end() - 1);
    Arrays gradients;
    for (std::size_t i = 0; i < count; ++i) {
      gradients.push_back(slope(definition, inputs, a, i, all.back()));
    }
    return gradients;
  };
}

Input half(Shape shape, double low, double high) {
  return {{DataType::kF16, std::move(shape), Layout::kRowMajor}, low, high};
}
Input half_image(Shape shape, double low, double high) {
  return {{DataType::kF16, std::move(shape), Layout::kChannelsLast}, low, high};
}
Input single(Shape shape, double low, double high) {
  return {{DataType::kF32, std::move(shape), Layout::kRowMajor}, low, high};
}
Input scalar(double value) {
  return given(single({}), {value});
}
Input indices(Shape shape, std::vector<double> values) {
  return {{DataType::kI32, std::move(shape), Layout::kRowMajor}, 0, 0, std::move(values)};
}
Input given(Input input, std::vector<double> values) {
  input.values = std::move(values);
  return input;
}

}  // namespace poprun::testing
