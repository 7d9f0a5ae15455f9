#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"

/// Reads or writes elements or rows of a tensor at indexed places. All tensors are row-major: indices i32, others f32.
///
///   gather_elements(x, indices) axis=.  ->  y, of indices' shape: x at y's own coordinates except along the axis,
///       where `indices` contains the coordinate
///   gather_nd(x, indices [...,q]) batch_dims=.  ->  y [..., row of x]: the last dimension of indices holds the q
///       coordinates of the row in x, after `batch_dims` dimensions that x and indices share
///   scatter_elements(x, indices, updates) axis=. reduction="none" | "add" | "mul" | "min" | "max"
///   scatter_nd(x, indices, updates) batch_dims=. reduction=.
///       ->  x, in which updates, in order, replace, or are combined with, the elements (rows) that a gather would read
///   KIND_gradient(x, indices, updates, dy) and the scatter's attributes  ->  dx, dupdates, for "mul", "min" and "max"
///
/// A negative index counts from the end. Since indices come from data, places outside x read as zeros, updates to them
/// are dropped, and their indices are reported, which ends the job. With "none", a place that occurs twice gets the
/// last update, but the gradient treats each of its updates as the last one. The gradient of a minimum or maximum is
/// divided equally among the elements that equal it, as in PyTorch.
namespace poprun::ops::places {
namespace {

/// Locations of P rows of R elements in x: the base of each row plus the sum of its q indices times their strides.
struct Places {
  std::int64_t R = 1;
  std::vector<std::int64_t> bases;    ///< [P]
  std::vector<std::int64_t> sizes;    ///< [q], sizes of the indexed dimensions.
  std::vector<std::int64_t> strides;  ///< [q], in elements.

  /// Calls visit(row of y or updates, offset in x or -1 if outside x) for every row. The indices are input 1.
  template <typename Visit>
  void for_each(const Operands& t, Visit visit) const {
    const auto* indices = reinterpret_cast<const std::int32_t*>(t.inputs[1]);  // NOLINT: i32 tensor.
    for (std::size_t p = 0; p < bases.size(); ++p) {
      visit(static_cast<std::int64_t>(p), offset(p, indices, t));
    }
  }

 private:
  [[nodiscard]] std::int64_t offset(std::size_t p, const std::int32_t* indices, const Operands& t) const {
    std::int64_t at = bases[p];
    for (std::size_t j = 0; j < sizes.size(); ++j) {
      const std::size_t element = p * sizes.size() + j;
      const std::int64_t given = indices[element];
      const std::int64_t index = given < 0 ? given + sizes[j] : given;
      if (index < 0 || index >= sizes[j]) {
        t.report({.index = given, .size = sizes[j], .element = static_cast<std::int64_t>(element)});
        return -1;
      }
      at += index * strides[j];
    }
    return at;
  }
};

/// Addresses elements along an axis. `gathered` returns nothing if x and the indices do not match.
struct Elements {
  static constexpr const char* kGather = kinds::kGatherElements;
  static constexpr const char* kScatter = "scatter_elements";
  static constexpr const char* kScatterGradient = "scatter_elements_gradient";
  static constexpr const char* kNeeded =
      "x f32; indices i32 with the rank of x, and no larger than x except along the axis; an axis "
      "within that rank";

  static std::optional<Shape> gathered(const TensorType& x, const TensorType& indices, const Attributes& attributes) {
    if (!has_axis(x, attributes) || indices.shape.size() != x.shape.size()) {
      return std::nullopt;
    }
    const auto axis = static_cast<std::size_t>(attributes.integer("axis"));
    for (std::size_t d = 0; d < x.shape.size(); ++d) {
      if (d != axis && indices.shape[d] > x.shape[d]) {
        return std::nullopt;
      }
    }
    return indices.shape;
  }

  static Places places(const TensorType& x, const TensorType& indices, const Attributes& attributes) {
    const auto axis = static_cast<std::size_t>(attributes.integer("axis"));
    const Shape strides = strides_of(x.shape);
    Places places{.R = 1, .bases = {}, .sizes = {x.shape[axis]}, .strides = {strides[axis]}};
    for (std::int64_t p = 0; p < indices.elements(); ++p) {
      std::int64_t base = 0;
      std::int64_t rest = p;
      for (std::size_t d = x.shape.size(); d-- > 0;) {
        base += d == axis ? 0 : rest % indices.shape[d] * strides[d];
        rest /= indices.shape[d];
      }
      places.bases.push_back(base);
    }
    return places;
  }
};

/// Addresses rows by coordinates.
struct Coordinates {
  static constexpr const char* kGather = kinds::kGatherNd;
  static constexpr const char* kScatter = "scatter_nd";
  static constexpr const char* kScatterGradient = "scatter_nd_gradient";
  static constexpr const char* kNeeded =
      "x f32, indices i32[...,q] with q >= 1, and batch_dims leading dimensions shared by both, "
      "before the q indexed dimensions of x";

  static std::optional<Shape> gathered(const TensorType& x, const TensorType& indices, const Attributes& attributes) {
    if (!attributes.has("batch_dims") || indices.shape.empty() || indices.shape.back() < 1) {
      return std::nullopt;
    }
    const std::int64_t batch = attributes.integer("batch_dims");
    const std::int64_t behind = batch + indices.shape.back();
    if (batch < 0 || batch >= static_cast<std::int64_t>(indices.shape.size()) ||
        behind > static_cast<std::int64_t>(x.shape.size()) ||
        !std::equal(x.shape.begin(), x.shape.begin() + batch, indices.shape.begin())) {
      return std::nullopt;
    }
    Shape y(indices.shape.begin(), indices.shape.end() - 1);
    y.insert(y.end(), x.shape.begin() + behind, x.shape.end());
    return y;
  }

  static Places places(const TensorType& x, const TensorType& indices, const Attributes& attributes) {
    const std::int64_t batch = attributes.integer("batch_dims");
    const std::int64_t q = indices.shape.back();
    const Shape strides = strides_of(x.shape);
    const auto product = [](auto begin, auto end) {
      return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>{});
    };
    Places places{.R = product(x.shape.begin() + batch + q, x.shape.end()),
                  .bases = {},
                  .sizes = {x.shape.begin() + batch, x.shape.begin() + batch + q},
                  .strides = {strides.begin() + batch, strides.begin() + batch + q}};
    const std::int64_t item = product(x.shape.begin() + batch, x.shape.end());
    const std::int64_t rows = indices.elements() / q;
    const std::int64_t per_item = product(indices.shape.begin() + batch, indices.shape.end() - 1);
    for (std::int64_t p = 0; p < rows; ++p) {
      places.bases.push_back(p / per_item * item);
    }
    return places;
  }
};

/// Returns the type of the elements of x (input 0) that the indices (input 1) select, or nothing if the inputs do not
/// fit the operator.
template <typename Way>
std::optional<TensorType> gathered(const Signature& s) {
  const bool fits = s.inputs.size() >= 2 && s.inputs[0].data == DataType::kF32 &&
                    s.inputs[0].layout == Layout::kRowMajor && s.inputs[0].elements() > 0 &&
                    s.inputs[1].data == DataType::kI32 && s.inputs[1].layout == Layout::kRowMajor;
  const auto shape = fits ? Way::gathered(s.inputs[0], s.inputs[1], s.attributes) : std::nullopt;
  return shape ? std::optional(TensorType{DataType::kF32, *shape, {}}) : std::nullopt;
}

template <typename Way>
Result<std::vector<TensorType>> gather_shape(const Signature& s) {
  const auto y = gathered<Way>(s);
  if (!y || s.inputs.size() != 2) {
    return shape_error(Way::kGather, s, Way::kNeeded);
  }
  return std::vector{*y};
}

template <typename Way>
std::unique_ptr<Kernel> gather_numerics(const Signature& s) {
  return make_kernel([places = Way::places(s.inputs[0], s.inputs[1], s.attributes)](const Operands& t) {
    places.for_each(t, [&](std::int64_t row, std::int64_t from) {
      float* y = t.output_f32(0) + row * places.R;
      if (from < 0) {
        std::fill_n(y, places.R, 0.0F);
      } else {
        std::copy_n(t.input_f32(0) + from, places.R, y);
      }
    });
  });
}

Work gather_work(const Signature& s) {
  Work work;
  work.memory_traffic = s.outputs[0].bytes() * 2 + s.inputs[1].bytes();
  work.exchanged = s.outputs[0].bytes();
  return work;
}

/// How an update is combined with the element at its place.
enum class Reduction : std::uint8_t { kNone, kAdd, kMul, kMin, kMax };

std::optional<Reduction> reduction_of(const Attributes& attributes) {
  constexpr std::array kNames = {"none", "add", "mul", "min", "max"};
  if (!attributes.has("reduction")) {
    return std::nullopt;
  }
  const auto* const found = std::ranges::find(kNames, attributes.text("reduction"));
  return found == kNames.end() ? std::nullopt : std::optional(static_cast<Reduction>(found - kNames.begin()));
}

/// Returns the combination of an element y and an update u. NaN stays NaN.
float combined(Reduction reduction, float y, float u) {
  switch (reduction) {
    case Reduction::kNone:
      return u;
    case Reduction::kAdd:
      return y + u;
    case Reduction::kMul:
      return y * u;
    case Reduction::kMin:
      return u < y || std::isnan(u) ? u : y;
    case Reduction::kMax:
      return u > y || std::isnan(u) ? u : y;
  }
  return u;
}

template <typename Way>
Result<std::vector<TensorType>> scatter_shape(const Signature& s) {
  const auto updates = gathered<Way>(s);
  if (!updates || s.inputs.size() != 3 || s.inputs[2] != *updates || !reduction_of(s.attributes)) {
    return shape_error(Way::kScatter, s,
                       std::string{Way::kNeeded} +
                           "; updates f32, of the shape that the indices select; reduction=\"none\", \"add\", "
                           "\"mul\", \"min\" or \"max\"");
  }
  return std::vector{s.inputs[0]};
}

/// Applies the updates (input 2) to y, in order.
void update(const Places& places, const Operands& t, Reduction reduction, float* y) {
  places.for_each(t, [&](std::int64_t row, std::int64_t to) {
    const float* u = t.input_f32(2) + row * places.R;
    for (std::int64_t i = 0; i < places.R && to >= 0; ++i) {
      y[to + i] = combined(reduction, y[to + i], u[i]);
    }
  });
}

template <typename Way>
std::unique_ptr<Kernel> scatter_numerics(const Signature& s) {
  return make_kernel([places = Way::places(s.inputs[0], s.inputs[1], s.attributes),
                      bytes = static_cast<std::size_t>(s.inputs[0].bytes().count()),
                      reduction = reduction_of(s.attributes).value()](const Operands& t) {
    std::memcpy(t.outputs[0], t.inputs[0], bytes);
    update(places, t, reduction, t.output_f32(0));
  });
}

template <typename Way>
Result<std::vector<TensorType>> scatter_gradient_shape(const Signature& s) {
  const auto updates = gathered<Way>(s);
  const auto reduction = reduction_of(s.attributes);
  if (!updates || s.inputs.size() != 4 || s.inputs[2] != *updates || s.inputs[3] != s.inputs[0] || !reduction ||
      *reduction == Reduction::kNone || *reduction == Reduction::kAdd) {
    return shape_error(Way::kScatterGradient, s, "the scatter's x, indices and updates, dy, and its attributes");
  }
  return std::vector{s.inputs[0], s.inputs[2]};
}

/// For each element of y: the value of the reduction, and how many of the factors are zero, or how many elements equal
/// the minimum or maximum. In products, the value leaves out the zeros.
class ScatterGradient final : public Kernel {
 public:
  ScatterGradient(Places places, std::int64_t elements, Reduction reduction)
      : places_(std::move(places)), n_(elements), reduction_(reduction) {}

  void run(const Operands& t) override {
    float* value = reinterpret_cast<float*>(t.scratch);  // NOLINT: 64-byte aligned scratch.
    float* count = value + n_;
    std::copy_n(t.input_f32(0), n_, value);
    std::fill_n(count, n_, 0.0F);
    if (reduction_ == Reduction::kMul) {
      std::fill_n(value, n_, 1.0F);
    } else {
      update(places_, t, reduction_, value);
    }
    for_each_factor(t, [&](float x, std::int64_t at, float* /*dx*/) {
      if (reduction_ == Reduction::kMul) {
        value[at] *= x == 0 ? 1 : x;
        count[at] += x == 0 ? 1.0F : 0.0F;
      } else {
        count[at] += x == value[at] ? 1.0F : 0.0F;
      }
    });
    std::fill_n(t.output_f32(1), static_cast<std::int64_t>(places_.bases.size()) * places_.R, 0.0F);
    for_each_factor(
        t, [&](float x, std::int64_t at, float* dx) { *dx = t.input_f32(3)[at] * slope(x, value[at], count[at]); });
  }

  [[nodiscard]] Bytes scratch() const override { return Bytes{2 * n_ * static_cast<std::int64_t>(sizeof(float))}; }

 private:
  /// Calls visit(value, place, its gradient) for every element of x and every update.
  template <typename Visit>
  void for_each_factor(const Operands& t, Visit visit) const {
    for (std::int64_t i = 0; i < n_; ++i) {
      visit(t.input_f32(0)[i], i, t.output_f32(0) + i);
    }
    places_.for_each(t, [&](std::int64_t row, std::int64_t to) {
      for (std::int64_t i = 0; i < places_.R && to >= 0; ++i) {
        visit(t.input_f32(2)[row * places_.R + i], to + i, t.output_f32(1) + row * places_.R + i);
      }
    });
  }

  [[nodiscard]] float slope(float x, float value, float count) const {
    if (reduction_ != Reduction::kMul) {
      return x == value ? 1 / count : 0;
    }
    const float zeros_elsewhere = x == 0 ? count - 1 : count;
    return zeros_elsewhere > 0 ? 0 : value / (x == 0 ? 1 : x);
  }

  Places places_;
  std::int64_t n_;
  Reduction reduction_;
};

template <typename Way>
std::unique_ptr<Kernel> scatter_gradient_numerics(const Signature& s) {
  return std::make_unique<ScatterGradient>(Way::places(s.inputs[0], s.inputs[1], s.attributes), s.inputs[0].elements(),
                                           reduction_of(s.attributes).value());
}

Work scatter_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = reduction_of(s.attributes) == Reduction::kNone ? 0 : s.inputs[2].elements();
  work.exchanged = s.inputs[2].bytes();
  work.compute_sets = 2;  // One copies x, one applies the updates.
  return work;
}

/// Counts one pass that reduces and one that divides or compares.
Work scatter_gradient_work(const Signature& s) {
  Work work = elementwise_work(s, 2);
  work.vector_flops += 3 * s.inputs[2].elements();
  work.exchanged = s.inputs[2].bytes() * 2;
  work.compute_sets = 2;
  return work;
}

TensorId zeros(Differentiator& d, const Shape& shape, std::size_t of_input) {
  return d.add(kinds::kFill, {}, {{"shape", shape}, {"value", 0.0}}, {of_input})[0];
}

template <typename Way>
void gather_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const TensorId indices = op.inputs[1];
  const TensorId none = zeros(d, d.type(op.inputs[0]).shape, 0);
  Attributes attributes = d.operation().attributes;
  attributes.set("reduction", std::string{"add"});
  d.set_input_gradient(0, d.add(Way::kScatter, {none, indices, d.output_gradient(0)}, attributes, {0})[0]);
}

template <typename Way>
void scatter_gradient(Differentiator& d) {
  const std::vector<TensorId> inputs = d.operation().inputs;
  const Attributes attributes = d.operation().attributes;
  const Reduction reduction = reduction_of(attributes).value();
  const TensorId dy = d.output_gradient(0);
  if (reduction != Reduction::kNone && reduction != Reduction::kAdd) {
    const auto gradients = d.add(Way::kScatterGradient, {inputs[0], inputs[1], inputs[2], dy}, attributes, {0, 2});
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      if (d.wants(2 * k)) {
        d.set_input_gradient(2 * k, gradients[k]);
      }
    }
    return;
  }
  if (d.wants(0) && reduction == Reduction::kAdd) {
    d.set_input_gradient(0, dy);
  } else if (d.wants(0)) {
    const TensorId none = zeros(d, d.type(inputs[2]).shape, 0);
    d.set_input_gradient(0, d.add(Way::kScatter, {dy, inputs[1], none}, attributes, {0})[0]);
  }
  if (d.wants(2)) {
    d.set_input_gradient(2, d.add(Way::kGather, {dy, inputs[1]}, attributes, {2})[0]);
  }
}

}  // namespace

std::vector<Operator> operators() {
  return {{kinds::kGatherElements, gather_shape<Elements>, gather_gradient<Elements>, gather_work,
           gather_numerics<Elements>},
          {kinds::kGatherNd, gather_shape<Coordinates>, gather_gradient<Coordinates>, gather_work,
           gather_numerics<Coordinates>},
          {"scatter_elements", scatter_shape<Elements>, scatter_gradient<Elements>, scatter_work,
           scatter_numerics<Elements>},
          {Elements::kScatterGradient, scatter_gradient_shape<Elements>, nullptr, scatter_gradient_work,
           scatter_gradient_numerics<Elements>},
          {"scatter_nd", scatter_shape<Coordinates>, scatter_gradient<Coordinates>, scatter_work,
           scatter_numerics<Coordinates>},
          {Coordinates::kScatterGradient, scatter_gradient_shape<Coordinates>, nullptr, scatter_gradient_work,
           scatter_gradient_numerics<Coordinates>}};
}

}  // namespace poprun::ops::places
