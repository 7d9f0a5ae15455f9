#include <cstdint>

#include "replica/ops/broadcast/broadcast.h"
#include "replica/ops/face/operator.h"

/// Functions of the bits of two i32 tensors, whose shapes broadcast, and whose layouts can be mixed, as in add. Hashes
/// of indices use them.
///
///   bit_and(a, b), bit_or(a, b), bit_xor(a, b)  ->  i32
///   shift_left(a, b), shift_right(a, b)         ->  i32: a moved by b places, as an unsigned number; 0 for 32 and more
namespace poprun::ops::bits {
namespace {

struct And {
  static constexpr const char* kKind = "bit_and";
  static std::uint32_t of(std::uint32_t a, std::uint32_t b) { return a & b; }
};
struct Or {
  static constexpr const char* kKind = "bit_or";
  static std::uint32_t of(std::uint32_t a, std::uint32_t b) { return a | b; }
};
struct Xor {
  static constexpr const char* kKind = "bit_xor";
  static std::uint32_t of(std::uint32_t a, std::uint32_t b) { return a ^ b; }
};
struct Left {
  static constexpr const char* kKind = "shift_left";
  static std::uint32_t of(std::uint32_t a, std::uint32_t b) { return b < 32 ? a << b : 0; }
};
struct Right {
  static constexpr const char* kKind = "shift_right";
  static std::uint32_t of(std::uint32_t a, std::uint32_t b) { return b < 32 ? a >> b : 0; }
};

template <typename Function>
Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() == 2 && s.inputs[0].data == DataType::kI32 && s.inputs[1].data == DataType::kI32) {
    if (const auto y = broadcast_type(s.inputs)) {
      return std::vector{*y};
    }
  }
  return shape_error(Function::kKind, s, "two i32 tensors whose shapes broadcast");
}

template <typename Function>
std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([loops = broadcast_loops(s.outputs[0], s.inputs)](const Operands& t) {
    const auto* a = reinterpret_cast<const std::uint32_t*>(t.inputs[0]);  // NOLINT: the bits of an i32 tensor.
    const auto* b = reinterpret_cast<const std::uint32_t*>(t.inputs[1]);  // NOLINT: the same.
    auto* y = reinterpret_cast<std::uint32_t*>(t.outputs[0]);             // NOLINT: the same.
    loops.for_each_row([&](std::int64_t at, const Shape& offsets) {
      for (std::int64_t i = 0; i < loops.row(); ++i) {
        y[at + i] = Function::of(a[offsets[0] + i * loops.row_stride(0)], b[offsets[1] + i * loops.row_stride(1)]);
      }
    });
  });
}

Work work(const Signature& s) {
  return elementwise_work(s, 1);
}

template <typename Function>
Operator made() {
  return {Function::kKind, shape<Function>, flat, work, numerics<Function>};
}

}  // namespace

std::vector<Operator> operators() {
  return {made<And>(), made<Or>(), made<Xor>(), made<Left>(), made<Right>()};
}

}  // namespace poprun::ops::bits
