#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"

/// Selects the largest elements along an axis, and routes rows to experts by such a selection. All tensors are
/// row-major.
///
///   top_k(x f32) axis=. k=. largest=0|1  ->  values f32, indices i32, both of x's shape with size k along the axis
///
/// The k largest elements (or smallest, with largest=0) along the axis, the first of them first, and their positions.
/// If elements are equal, those at lower positions come first. NaN counts as larger than any number. The gradient of a
/// value goes to the element that it was read from; no gradient passes through the indices.
///
///   N  rows (tokens)    K  choices of each row    E  experts    C  capacity of an expert, in rows
///
///   expert_slots(chosen i32[N,K]) experts=E capacity=C  ->  slots i32[N,K], rows i32[E C]
///
/// Every expert has C slots; those of expert e are e C to e C + C - 1. The choices are visited in row-major order, and
/// each gets the next free slot of its expert, or E C (no slot) if all of them are taken. `rows` is the inverse: for
/// each slot, the row that has it, or N (no row). A `gather` with outside="zeros" therefore collects the rows of each
/// expert, and another one collects the experts' results.
namespace poprun::ops::top_k {
namespace {

constexpr const char* kTopK = "top_k";
constexpr const char* kExpertSlots = "expert_slots";

Result<std::vector<TensorType>> shape(const Signature& s) {
  const auto bad = [&] {
    return shape_error(kTopK, s, "one row-major f32 tensor, an axis, 1 <= k <= the size of the axis, and largest=0|1");
  };
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32 || s.inputs[0].layout != Layout::kRowMajor ||
      !has_axis(s.inputs[0], s.attributes) || !s.attributes.has("k") || !s.attributes.has("largest")) {
    return bad();
  }
  const std::int64_t axis = s.attributes.integer("axis");
  const std::int64_t k = s.attributes.integer("k");
  if (k < 1 || k > size_along(s.inputs[0], axis)) {
    return bad();
  }
  const TensorType values = resized(s.inputs[0], axis, k);
  TensorType indices = values;
  indices.data = DataType::kI32;
  return std::vector{values, indices};
}

/// Returns whether a comes before b among the largest elements.
bool is_larger(float a, float b) {
  return a > b || (a != a && b == b);
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([view = view_along(s.inputs[0], s.attributes.integer("axis")), k = s.attributes.integer("k"),
                      largest = s.attributes.integer("largest") != 0,
                      order = std::vector<std::int32_t>(static_cast<std::size_t>(
                          size_along(s.inputs[0], s.attributes.integer("axis"))))](const Operands& t) mutable {
    auto* indices = reinterpret_cast<std::int32_t*>(t.outputs[1]);  // NOLINT: i32 tensor.
    for (std::int64_t o = 0; o < view.O; ++o) {
      for (std::int64_t r = 0; r < view.R; ++r) {
        const float* x = t.input_f32(0) + o * view.A * view.R + r;
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](std::int32_t a, std::int32_t b) {
          const float first = x[(largest ? a : b) * view.R];
          const float second = x[(largest ? b : a) * view.R];
          return is_larger(first, second) || (!is_larger(second, first) && a < b);
        });
        for (std::int64_t i = 0; i < k; ++i) {
          const std::int64_t to = (o * k + i) * view.R + r;
          indices[to] = order[static_cast<std::size_t>(i)];
          t.output_f32(0)[to] = x[order[static_cast<std::size_t>(i)] * view.R];
        }
      }
    }
  });
}

/// Counts a comparison of every element with each of the k best so far.
Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = s.inputs[0].elements() * s.attributes.integer("k");
  return work;
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const TensorId none = d.add(kinds::kFill, {}, {{"shape", d.type(op.inputs[0]).shape}, {"value", 0.0}}, {0})[0];
  const Attributes attributes{{"axis", op.attributes.integer("axis")}, {"reduction", std::string{"add"}}};
  d.set_input_gradient(0, d.add("scatter_elements", {none, op.outputs[1], d.output_gradient(0)}, attributes, {0})[0]);
}

Result<std::vector<TensorType>> slots_shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kI32 || s.inputs[0].layout != Layout::kRowMajor ||
      s.inputs[0].shape.size() != 2 || !s.attributes.has("experts") || s.attributes.integer("experts") < 1 ||
      !s.attributes.has("capacity") || s.attributes.integer("capacity") < 1) {
    return shape_error(kExpertSlots, s, "chosen i32[N,K], experts >= 1 and capacity >= 1");
  }
  const std::int64_t slots = s.attributes.integer("experts") * s.attributes.integer("capacity");
  return std::vector{s.inputs[0], TensorType{DataType::kI32, {slots}, {}}};
}

std::unique_ptr<Kernel> slots_numerics(const Signature& s) {
  const std::int64_t E = s.attributes.integer("experts");
  return make_kernel([N = s.inputs[0].shape[0], K = s.inputs[0].shape[1], E, C = s.attributes.integer("capacity"),
                      used = std::vector<std::int64_t>(static_cast<std::size_t>(E))](const Operands& t) mutable {
    const auto* chosen = reinterpret_cast<const std::int32_t*>(t.inputs[0]);  // NOLINT: i32 tensor.
    auto* slots = reinterpret_cast<std::int32_t*>(t.outputs[0]);              // NOLINT: i32 tensor.
    auto* rows = reinterpret_cast<std::int32_t*>(t.outputs[1]);               // NOLINT: i32 tensor.
    std::ranges::fill(used, 0);
    std::fill_n(rows, E * C, static_cast<std::int32_t>(N));
    for (std::int64_t i = 0; i < N * K; ++i) {
      const std::int64_t e = chosen[i];
      slots[i] = static_cast<std::int32_t>(E * C);
      if (e < 0 || e >= E) {
        t.report({.index = e, .size = E, .element = i});
      } else if (used[static_cast<std::size_t>(e)] < C) {
        slots[i] = static_cast<std::int32_t>(e * C + used[static_cast<std::size_t>(e)]++);
        rows[slots[i]] = static_cast<std::int32_t>(i / K);
      }
    }
  });
}

Work slots_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = 2 * s.inputs[0].elements();
  work.exchanged = s.inputs[0].bytes() + s.outputs[1].bytes();
  return work;
}

}  // namespace

std::vector<Operator> operators() {
  return {{kTopK, shape, gradient, work, numerics}, {kExpertSlots, slots_shape, flat, slots_work, slots_numerics}};
}

}  // namespace poprun::ops::top_k
