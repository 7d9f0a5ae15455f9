#include <algorithm>
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
///   scatter_elements(x, indices, updates) axis=. reduction="none" | "add"
///   scatter_nd(x, indices, updates) batch_dims=. reduction="none" | "add"
///       ->  x, in which updates, in order, replace or are added to the elements (rows) that a gather would read
///
/// A negative index counts from the end. Since indices come from data, places outside x read as zeros, updates to them
/// are dropped, and their indices are reported, which ends the job. With "none", a place that occurs twice gets the
/// last update, but the gradient treats each of its updates as the last one.
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

bool adds(const Attributes& attributes) {
  return attributes.text("reduction") == "add";
}

template <typename Way>
Result<std::vector<TensorType>> scatter_shape(const Signature& s) {
  const auto updates = gathered<Way>(s);
  if (!updates || s.inputs.size() != 3 || s.inputs[2] != *updates || !s.attributes.has("reduction") ||
      (s.attributes.text("reduction") != "none" && !adds(s.attributes))) {
    return shape_error(Way::kScatter, s,
                       std::string{Way::kNeeded} +
                           "; updates f32, of the shape that the indices select; reduction=\"none\" or \"add\"");
  }
  return std::vector{s.inputs[0]};
}

template <typename Way>
std::unique_ptr<Kernel> scatter_numerics(const Signature& s) {
  return make_kernel([places = Way::places(s.inputs[0], s.inputs[1], s.attributes),
                      bytes = static_cast<std::size_t>(s.inputs[0].bytes().count()),
                      add = adds(s.attributes)](const Operands& t) {
    std::memcpy(t.outputs[0], t.inputs[0], bytes);
    places.for_each(t, [&](std::int64_t row, std::int64_t to) {
      if (to < 0) {
        return;
      }
      const float* update = t.input_f32(2) + row * places.R;
      float* y = t.output_f32(0) + to;
      for (std::int64_t i = 0; i < places.R; ++i) {
        y[i] = add ? y[i] + update[i] : update[i];
      }
    });
  });
}

Work scatter_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = adds(s.attributes) ? s.inputs[2].elements() : 0;
  work.exchanged = s.inputs[2].bytes();
  work.compute_sets = 2;  // One copies x, one applies the updates.
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
  const TensorId dy = d.output_gradient(0);
  if (d.wants(0) && adds(attributes)) {
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
          {"scatter_nd", scatter_shape<Coordinates>, scatter_gradient<Coordinates>, scatter_work,
           scatter_numerics<Coordinates>}};
}

}  // namespace poprun::ops::places
