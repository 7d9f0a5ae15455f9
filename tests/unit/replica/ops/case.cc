#include "case.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "replica/base/half.h"

namespace poprun::testing {
namespace {

/// Returns the memory offset of a logical index, in elements.
std::size_t place_of(const TensorType& type, const Shape& index) {
  std::vector<std::size_t> order(type.shape.size());
  for (std::size_t d = 0; d < order.size(); ++d) {
    order[d] = d;
  }
  if (type.layout == Layout::kChannelsLast) {
    order = {0, 2, 3, 1};
  }
  std::int64_t at = 0;
  for (const std::size_t d : order) {
    at = at * type.shape[d] + index[d];
  }
  return static_cast<std::size_t>(at);
}

template <typename T>
void put_as(std::byte* to, std::size_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}
template <typename T>
T get_as(const std::byte* from, std::size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

Array drawn(const Input& input, double scale, std::uint32_t seed) {
  Array array(input.type.shape);
  if (!input.values.empty()) {
    EXPECT_EQ(input.values.size(), array.values.size());
    array.values = input.values;
    return array;
  }
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> within(0.1, 0.9);
  const auto n = static_cast<double>(array.values.size());
  for (std::size_t i = 0; i < array.values.size(); ++i) {
    const double share = (static_cast<double>(i) + within(random)) / n;
    array.values[i] = input.low + (input.high - input.low) * share;
    array.values[i] *= input.type.data == DataType::kF16 ? scale : 1;
  }
  std::ranges::shuffle(array.values, random);
  return array;
}

}  // namespace

Array::Array(Shape of_shape, double value)
    : shape(std::move(of_shape)),
      values(
          static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{})),
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

Array slope(const Definition& definition, const Arrays& inputs, const Attributes& attributes, std::size_t by,
            const Array& dy) {
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

Arrays inputs_of(const Case& c, double scale) {
  Arrays inputs;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    inputs.push_back(drawn(c.inputs[i], scale, static_cast<std::uint32_t>(17 + i)));
  }
  return inputs;
}

void put(std::byte* to, const TensorType& type, const Array& array) {
  for_each_index(type.shape, [&](const Shape& index) {
    const std::size_t i = place_of(type, index);
    const double value = array(index);
    switch (type.data) {
      case DataType::kF16:
        put_as(to, i, to_half(static_cast<float>(value)));
        break;
      case DataType::kF32:
        put_as(to, i, static_cast<float>(value));
        break;
      case DataType::kI32:
        put_as(to, i, static_cast<std::int32_t>(value));
        break;
      case DataType::kU8:
        put_as(to, i, static_cast<std::uint8_t>(value));
        break;
    }
  });
}

Array get(const std::byte* from, const TensorType& type) {
  Array array(type.shape);
  for_each_index(type.shape, [&](const Shape& index) {
    const std::size_t i = place_of(type, index);
    double& value = array(index);
    switch (type.data) {
      case DataType::kF16:
        value = static_cast<double>(to_float(get_as<Half>(from, i)));
        break;
      case DataType::kF32:
        value = static_cast<double>(get_as<float>(from, i));
        break;
      case DataType::kI32:
        value = get_as<std::int32_t>(from, i);
        break;
      case DataType::kU8:
        value = get_as<std::uint8_t>(from, i);
        break;
    }
  });
  return array;
}

}  // namespace poprun::testing
