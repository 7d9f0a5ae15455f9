#pragma once

#include <functional>
#include <string>
#include <vector>

#include "replica/graph/attributes.h"
#include "replica/graph/types.h"

/// What a test of an operator in half precision consists of: uses of the operator, and a definition
/// of it in double precision that shares no code with the product.
namespace poprun::testing {

/// A tensor in double precision, row-major however it lies where the operator reads it.
struct Array {
  Shape shape;
  std::vector<double> values;

  explicit Array(Shape of_shape, double value = 0);

  double& operator()(const Shape& index) { return values[offset(index)]; }
  double operator()(const Shape& index) const { return values[offset(index)]; }

  /// The element that `index` of a larger shape meets by NumPy's broadcasting.
  [[nodiscard]] double broadcast(const Shape& index) const;

 private:
  [[nodiscard]] std::size_t offset(const Shape& index) const;
};

using Arrays = std::vector<Array>;

/// The outputs of an operator for these inputs.
using Definition = std::function<Arrays(const Arrays&, const Attributes&)>;

/// Calls visit(index) for every element, row-major.
void for_each_index(const Shape& shape, const std::function<void(const Shape&)>& visit);

/// Gradient of sum(dy * output 0) by input `by`: central differences of the definition.
Array slope(const Definition& definition, const Arrays& inputs, const Attributes& attributes,
            std::size_t by, const Array& dy);

/// KIND_gradient(inputs..., dy) of a KIND(inputs...), by its first `count` inputs.
Definition gradient_of(Definition definition, std::size_t count = 1);

/// One input of a case: drawn at random from [low, high], no two elements alike, or given.
struct Input {
  TensorType type;
  double low = -1;
  double high = 1;
  std::vector<double> values = {};  ///< Given ones; empty: drawn.
};

Input half(Shape shape, double low = -1, double high = 1);
Input half_image(Shape shape, double low = -1, double high = 1);  ///< Channels-last.
Input single(Shape shape, double low = -1, double high = 1);      ///< float32.
Input scalar(double value);                                       ///< float32.
Input indices(Shape shape, std::vector<double> values);           ///< int32.
Input given(Input input, std::vector<double> values);

/// How far float32 arithmetic may be from the definition before the result is rounded to half:
/// `relative` of the result (the library's functions are exact to some 1e-6), and `terms` roundings
/// of the largest result, where numbers are added up that cancel.
struct Error {
  double relative = 0x1p-19;
  double terms = 1;
};
constexpr Error kExact{0, 0};

/// A power of two by which drawn float16 inputs are multiplied: results are then as usual, partly
/// subnormal, or partly infinite.
using Scales = std::vector<double>;
inline const Scales kUsual = {1};
inline const Scales kAll = {1, 0x1p-13, 0x1p+15};

struct Case {
  std::string kind;
  std::vector<Input> inputs;
  Attributes attributes;
  Definition definition;
  Error error = {};
  Scales scales = kUsual;
  std::vector<std::size_t> in_place = {};  ///< By output: the input that it updates.
};

std::vector<Case> elementwise_cases();
std::vector<Case> movement_cases();
std::vector<Case> sum_cases();
std::vector<Case> window_cases();
std::vector<Case> normalisation_cases();
std::vector<Case> update_cases();

}  // namespace poprun::testing
