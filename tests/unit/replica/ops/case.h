#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "replica/graph/types.h"
#include "replica/ops/face/operator.h"

/// Test cases for operators: uses of each operator, and its definition in double, which shares no code with the
/// operator. half_operator_test.cc compares the operator in half precision with the definition, and gradient_test.cc
/// compares its gradient with differences of the definition.
namespace poprun::testing {

/// A tensor in double precision, row-major whatever the operator's layout.
struct Array {
  Shape shape;
  std::vector<double> values;

  explicit Array(Shape of_shape, double value = 0);

  double& operator()(const Shape& index) { return values[offset(index)]; }
  double operator()(const Shape& index) const { return values[offset(index)]; }

  /// Returns the element that corresponds to `index` of a larger shape under NumPy's broadcasting.
  [[nodiscard]] double broadcast(const Shape& index) const;

 private:
  [[nodiscard]] std::size_t offset(const Shape& index) const;
};

using Arrays = std::vector<Array>;

/// Computes the outputs of an operator from its inputs.
using Definition = std::function<Arrays(const Arrays&, const Attributes&)>;

/// Calls visit(index) for every element, row-major.
void for_each_index(const Shape& shape, const std::function<void(const Shape&)>& visit);

/// Returns the gradient of sum(dy * output 0) with respect to input `by`, by central differences of the definition.
Array slope(const Definition& definition, const Arrays& inputs, const Attributes& attributes, std::size_t by,
            const Array& dy);

/// Returns the definition of KIND_gradient(inputs..., dy) for KIND(inputs...) and its first `count` inputs.
Definition gradient_of(Definition definition, std::size_t count = 1);

/// One input of a case. Its elements are distinct random numbers from [low, high], or given. Inputs that are float32 in
/// half precision (statistics and scalars) have no gradient.
struct Input {
  TensorType type;
  double low = -1;
  double high = 1;
  std::vector<double> values = {};  ///< Given values; empty: drawn.
};

Input half(Shape shape, double low = -1, double high = 1);
Input half_image(Shape shape, double low = -1, double high = 1);  ///< Channels-last.
Input single(Shape shape, double low = -1, double high = 1);      ///< float32.
Input scalar(double value);                                       ///< float32.
Input indices(Shape shape, std::vector<double> values);           ///< int32.
Input given(Input input, std::vector<double> values);

/// The allowed error of float32 arithmetic before the result is rounded to half: `relative` to the result (the
/// library's functions are exact to about 1e-6), plus `terms` roundings of the largest result, for sums in which
/// numbers cancel.
struct Error {
  double relative = 0x1p-19;
  double terms = 1;
};
constexpr Error kExact{0, 0};

/// Powers of two by which drawn float16 inputs are multiplied, so that results are normal, partly subnormal, or partly
/// infinite.
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
  std::vector<std::size_t> in_place = {};  ///< For each output, the input that it updates.
  bool differentiable = true;              ///< False: the gradient is not unique at these inputs.
};

/// The execution context in which cases run.
inline constexpr Moment kMoment{.seed = 1, .step = 2, .micro_batch = 3, .replica = 4};

/// All cases of cases/: each file NAME.cc there defines `std::vector<Case> NAME_cases()`.
const std::vector<Case>& all_cases();

/// Returns the case's inputs as drawn or given; drawn float16 inputs are multiplied by `scale`.
Arrays inputs_of(const Case& c, double scale);

/// `put` writes an array as a tensor of this type; `get` reads back what was stored.
void put(std::byte* to, const TensorType& type, const Array& array);
Array get(const std::byte* from, const TensorType& type);

}  // namespace poprun::testing
