#include <cstdint>

#include "replica/ops/broadcast/broadcast.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"

/// Elementwise comparison and selection. A mask is f32, 1 for true and 0 for false, so "and" is mul, "or" is max, and
/// "not" is subtraction from 1.
///
///   equal(a, b), greater(a, b), greater_equal(a, b)  ->  mask; two f32 or two i32 tensors
///   where(mask, a, b)  ->  mask != 0 ? a : b, all f32
///
/// Shapes broadcast, and layouts can be mixed, as in add. Comparisons with NaN are false. Comparisons pass no gradient.
namespace poprun::ops::choose {
namespace {

struct Equal {
  static constexpr const char* kKind = "equal";
  template <typename T>
  static bool holds(T a, T b) {
    return a == b;
  }
};
struct Greater {
  static constexpr const char* kKind = "greater";
  template <typename T>
  static bool holds(T a, T b) {
    return a > b;
  }
};
struct GreaterEqual {
  static constexpr const char* kKind = "greater_equal";
  template <typename T>
  static bool holds(T a, T b) {
    return a >= b;
  }
};

template <typename Comparison>
Result<std::vector<TensorType>> compare_shape(const Signature& s) {
  if (s.inputs.size() == 2 && s.inputs[0].data == s.inputs[1].data &&
      (s.inputs[0].data == DataType::kF32 || s.inputs[0].data == DataType::kI32)) {
    if (auto y = broadcast_type(s.inputs)) {
      y->data = DataType::kF32;
      return std::vector{*y};
    }
  }
  return shape_error(Comparison::kKind, s, "two f32 or two i32 tensors whose shapes broadcast");
}

template <typename Comparison, typename T>
std::unique_ptr<Kernel> compare(const Signature& s) {
  return make_kernel([loops = broadcast_loops(s.outputs[0], s.inputs)](const Operands& t) {
    const T* a = reinterpret_cast<const T*>(t.inputs[0]);  // NOLINT: a tensor of T.
    const T* b = reinterpret_cast<const T*>(t.inputs[1]);  // NOLINT: a tensor of T.
    float* y = t.output_f32(0);
    loops.for_each_row([&](std::int64_t at, const Shape& offsets) {
      for (std::int64_t i = 0; i < loops.row(); ++i) {
        y[at + i] = Comparison::holds(a[offsets[0] + i * loops.row_stride(0)], b[offsets[1] + i * loops.row_stride(1)])
                        ? 1.0F
                        : 0.0F;
      }
    });
  });
}

template <typename Comparison>
std::unique_ptr<Kernel> compare_numerics(const Signature& s) {
  if (s.inputs[0].data == DataType::kI32) {
    return compare<Comparison, std::int32_t>(s);
  }
  return compare<Comparison, float>(s);
}

Result<std::vector<TensorType>> where_shape(const Signature& s) {
  if (s.inputs.size() == 3 && s.inputs[0].data == DataType::kF32 && s.inputs[1].data == DataType::kF32 &&
      s.inputs[2].data == DataType::kF32) {
    if (const auto y = broadcast_type(s.inputs)) {
      return std::vector{*y};
    }
  }
  return shape_error("where", s, "mask, a and b, all f32, whose shapes broadcast");
}

std::unique_ptr<Kernel> where_numerics(const Signature& s) {
  return make_kernel([loops = broadcast_loops(s.outputs[0], s.inputs)](const Operands& t) {
    loops.for_each_row([&](std::int64_t at, const Shape& offsets) {
      const float* mask = t.input_f32(0) + offsets[0];
      const float* a = t.input_f32(1) + offsets[1];
      const float* b = t.input_f32(2) + offsets[2];
      float* y = t.output_f32(0) + at;
      for (std::int64_t i = 0; i < loops.row(); ++i) {
        y[i] = mask[i * loops.row_stride(0)] != 0.0F ? a[i * loops.row_stride(1)] : b[i * loops.row_stride(2)];
      }
    });
  });
}

/// Sets the gradient of each input to dy where the input was selected, and to 0 elsewhere.
void where_gradient(Differentiator& d) {
  const TensorId mask = d.operation().inputs[0];
  const TensorId dy = d.output_gradient(0);
  for (const std::size_t input : {1U, 2U}) {
    if (d.wants(input)) {
      const TensorId zero = d.add(kinds::kFill, {}, {{"shape", Shape{}}, {"value", 0.0}}, {input})[0];
      const std::vector<TensorId> chosen = input == 1 ? std::vector{mask, dy, zero} : std::vector{mask, zero, dy};
      set_broadcast_gradient(d, input, d.add("where", chosen, {}, {input})[0]);
    }
  }
}

Work one_flop(const Signature& s) {
  return elementwise_work(s, 1);
}

}  // namespace

std::vector<Operator> operators() {
  return {
      in_place({"equal", compare_shape<Equal>, flat, one_flop, compare_numerics<Equal>}, {0, 1}),
      in_place({"greater", compare_shape<Greater>, flat, one_flop, compare_numerics<Greater>}, {0, 1}),
      in_place({"greater_equal", compare_shape<GreaterEqual>, flat, one_flop, compare_numerics<GreaterEqual>}, {0, 1}),
      in_place({"where", where_shape, where_gradient, one_flop, where_numerics}, {0, 1, 2})};
}

}  // namespace poprun::ops::choose
