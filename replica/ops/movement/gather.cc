#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/simd.h"

/// Selects rows of a tensor by index. Embeddings are gathered from their table along axis 0.
///
///   S  batch dimensions, flattened       O  dimensions before the axis    A  size of the axis
///   P  indices per batch item            R  dimensions after the axis: one row
///
///   gather(x [S,O,A,R], indices i32[S,P]) axis=. batch_dims=. outside="zeros"  ->  y [S,O,P,R]
///
/// The first `batch_dims` dimensions of x (default 0, at most axis) correspond to those of the indices. A negative
/// index counts from the end, as in NumPy. Since indices come from data, an index outside [-A, A) selects a row of
/// zeros, through which no gradient passes. Such an index is reported, which ends the job, unless outside="zeros" (for
/// labels that do not count). With begin=. whole=. x is the piece from `begin` on of an axis of size `whole`, to which
/// the indices refer.
namespace poprun::ops::gather {
namespace {

struct Sizes {
  std::int64_t S, O, A, P, R;
  std::int64_t begin = 0;  ///< Start of this piece on the full axis. Indices refer to the full axis.
  std::int64_t whole = A;  ///< Size of the full axis.
};

std::int64_t axis_of(const Attributes& attributes) {
  return attributes.integer("axis");
}

std::int64_t batch_dims_of(const Attributes& attributes) {
  return attributes.has("batch_dims") ? attributes.integer("batch_dims") : 0;
}

std::int64_t product(const Shape& shape, std::int64_t begin, std::int64_t end) {
  return std::accumulate(shape.begin() + begin, shape.begin() + end, std::int64_t{1}, std::multiplies<>{});
}

Sizes sizes_of(const Shape& x, const Shape& indices, const Attributes& attributes) {
  const std::int64_t axis = axis_of(attributes);
  const std::int64_t batch = batch_dims_of(attributes);
  Sizes z{.S = product(x, 0, batch),
          .O = product(x, batch, axis),
          .A = x[static_cast<std::size_t>(axis)],
          .P = product(indices, batch, static_cast<std::int64_t>(indices.size())),
          .R = product(x, axis + 1, static_cast<std::int64_t>(x.size()))};
  if (attributes.has("begin")) {
    z.begin = attributes.integer("begin");
    z.whole = attributes.integer("whole");
  }
  return z;
}

/// Returns whether begin and whole are either absent or describe the axis of x, of shape `x`, as a piece.
bool lies_within(const Shape& x, const Attributes& attributes) {
  if (!attributes.has("begin") && !attributes.has("whole")) {
    return true;
  }
  return attributes.has("begin") && attributes.has("whole") && attributes.integer("begin") >= 0 &&
         attributes.integer("begin") + x.at(static_cast<std::size_t>(axis_of(attributes))) <=
             attributes.integer("whole");
}

/// Returns whether x and the indices match. If they do, sets y's shape.
bool shape_of(const Shape& x, const TensorType& indices, const Attributes& attributes, Shape& y) {
  if (indices.data != DataType::kI32 || indices.layout != Layout::kRowMajor || !attributes.has("axis")) {
    return false;
  }
  const std::int64_t axis = axis_of(attributes);
  const std::int64_t batch = batch_dims_of(attributes);
  if (axis < 0 || axis >= static_cast<std::int64_t>(x.size()) || batch < 0 || batch > axis ||
      batch > static_cast<std::int64_t>(indices.shape.size()) ||
      !std::equal(x.begin(), x.begin() + batch, indices.shape.begin())) {
    return false;
  }
  y.assign(x.begin(), x.begin() + axis);
  y.insert(y.end(), indices.shape.begin() + batch, indices.shape.end());
  y.insert(y.end(), x.begin() + axis + 1, x.end());
  return true;
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  Shape y;
  if (s.inputs.size() != 2 || s.inputs[0].data != DataType::kF32 || s.inputs[0].layout != Layout::kRowMajor ||
      !shape_of(s.inputs[0].shape, s.inputs[1], s.attributes, y) || !lies_within(s.inputs[0].shape, s.attributes)) {
    return shape_error(kinds::kGather, s,
                       "x f32, indices i32, axis within x's rank, and batch_dims <= axis, the number of "
                       "leading dimensions that x and indices share");
  }
  return std::vector{TensorType{DataType::kF32, y, {}}};
}

constexpr std::int64_t kOutside = -1;

/// Calls visit(row of y, row of x or kOutside, position of the index) for every index.
template <typename Visit>
void for_each_index(const Sizes& z, const std::int32_t* indices, Visit visit) {
  for (std::int64_t so = 0; so < z.S * z.O; ++so) {
    const std::int64_t first = so / z.O * z.P;
    for (std::int64_t p = 0; p < z.P; ++p) {
      const std::int64_t given = indices[first + p];
      const std::int64_t index = (given < 0 ? given + z.whole : given) - z.begin;
      visit(so * z.P + p, index < 0 || index >= z.A ? kOutside : so * z.A + index, first + p);
    }
  }
}

bool reports(const Attributes& attributes) {
  return !attributes.has("outside") || attributes.text("outside") != "zeros";
}

const std::int32_t* indices_of(const Operands& t, std::size_t input) {
  return reinterpret_cast<const std::int32_t*>(t.inputs[input]);  // NOLINT: i32 tensor.
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([z = sizes_of(s.inputs[0].shape, s.inputs[1].shape, s.attributes),
                      report = reports(s.attributes)](const Operands& t) {
    const std::int32_t* indices = indices_of(t, 1);
    const auto bytes = static_cast<std::size_t>(z.R) * sizeof(float);
    for_each_index(z, indices, [&](std::int64_t to, std::int64_t from, std::int64_t at) {
      if (from != kOutside) {
        std::memcpy(t.output_f32(0) + to * z.R, t.input_f32(0) + from * z.R, bytes);
        return;
      }
      std::fill_n(t.output_f32(0) + to * z.R, z.R, 0.0F);
      if (report) {
        t.report({.index = indices[at], .size = z.whole, .element = at});
      }
    });
  });
}

/// Counts only the selected rows, which move between tiles. The table stays in place.
Work work(const Signature& s) {
  const TensorType& y = s.outputs[0];
  Work work;
  work.memory_traffic = y.bytes() * 2 + s.inputs[1].bytes();
  work.exchanged = y.bytes();
  return work;
}

/// gather_gradient(dy, indices, base) axis=. batch_dims=. input_shape=[..]  ->  dx = base, with each row of dy added,
/// in index order, to the row from which it was gathered. base (default 0) holds the gradient that other uses of x have
/// contributed, unless x is a parameter. With begin=. whole=. the full axis has size `whole`, and dx is the piece from
/// `begin` on.
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  Shape y;
  if (s.inputs.size() < 2 || s.inputs.size() > 3 || !s.attributes.has("input_shape") ||
      !shape_of(s.attributes.integers("input_shape"), s.inputs[1], s.attributes, y) ||
      s.inputs[0] != TensorType{DataType::kF32, y, {}} ||
      (s.inputs.size() == 3 && s.inputs[2] != TensorType{DataType::kF32, s.attributes.integers("input_shape"), {}}) ||
      !lies_within(s.attributes.integers("input_shape"), s.attributes)) {
    return shape_error(kinds::kGatherGradient, s,
                       "dy with gather's output shape, indices and, optionally, base with the shape input_shape=[..]");
  }
  return std::vector{TensorType{DataType::kF32, s.attributes.integers("input_shape"), {}}};
}

POPRUN_SIMD void add_row(const float* __restrict dy, float* __restrict dx, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] += dy[i];
  }
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  const Sizes z = sizes_of(s.outputs[0].shape, s.inputs[1].shape, s.attributes);
  return make_kernel([z, n = s.outputs[0].elements()](const Operands& t) {
    if (t.inputs.size() == 3) {
      std::copy_n(t.input_f32(2), n, t.output_f32(0));
    } else {
      std::fill_n(t.output_f32(0), n, 0.0F);
    }
    for_each_index(z, indices_of(t, 1), [&](std::int64_t from, std::int64_t to, std::int64_t) {
      if (to != kOutside) {
        add_row(t.input_f32(0) + from * z.R, t.output_f32(0) + to * z.R, z.R);
      }
    });
  });
}

Work gradient_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = s.inputs[0].elements();
  work.exchanged = s.inputs[0].bytes();
  work.compute_sets = 2;  // One fills with zeros, one adds rows.
  return work;
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  Attributes attributes = op.attributes;
  attributes.set("input_shape", d.type(op.inputs[0]).shape);
  std::vector<TensorId> inputs = {d.output_gradient(0), op.inputs[1]};
  if (const auto so_far = d.take_input_gradient(0)) {
    inputs.push_back(*so_far);
  }
  d.set_input_gradient(0, d.add(kinds::kGatherGradient, inputs, attributes, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{kinds::kGather, shape, gradient, work, numerics},
          {kinds::kGatherGradient, gradient_shape, nullptr, gradient_work, gradient_numerics}};
}

}  // namespace poprun::ops::gather
