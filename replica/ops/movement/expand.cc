#include <algorithm>
#include <cstdint>

#include "replica/ops/broadcast/broadcast.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"

/// expand(x) shape=[..] layout="row-major" | "nhwc"  ->  y, x broadcast to `shape` as in NumPy. Accepts any element
/// type and any mixture of layouts. The gradient is `sum_to`.
namespace poprun::ops::expand {
namespace {

Result<std::vector<TensorType>> shape(const Signature& s) {
  const auto y = s.inputs.size() == 1 ? shaped_type(s.inputs[0].data, s.attributes) : std::nullopt;
  if (!y || broadcast_shape(s.inputs[0].shape, y->shape) != y->shape) {
    return shape_error(kinds::kExpand, s,
                       "one tensor, a shape=[..] to which its shape broadcasts, and layout (nhwc only for rank 4)");
  }
  return std::vector{*y};
}

/// Copies elements as values of a type T that has the same size.
template <typename T>
std::unique_ptr<Kernel> numerics_of(const Signature& s) {
  return make_kernel([loops = broadcast_loops(s.outputs[0], s.inputs)](const Operands& t) {
    const T* x = reinterpret_cast<const T*>(t.inputs[0]);  // NOLINT: elements of T's size.
    T* y = reinterpret_cast<T*>(t.outputs[0]);             // NOLINT: elements of T's size.
    const std::int64_t stride = loops.row_stride(0);
    loops.for_each_row([&](std::int64_t at, const Shape& offsets) {
      const T* from = x + offsets[0];
      if (stride == 0) {
        std::fill_n(y + at, loops.row(), *from);
      } else if (stride == 1) {
        std::copy_n(from, loops.row(), y + at);
      } else {
        for (std::int64_t i = 0; i < loops.row(); ++i) {
          y[at + i] = from[i * stride];
        }
      }
    });
  });
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return size_of(s.inputs[0].data) == Bytes{1} ? numerics_of<std::uint8_t>(s) : numerics_of<std::uint32_t>(s);
}

Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.exchanged = s.outputs[0].bytes();
  return work;
}

void gradient(Differentiator& d) {
  const TensorType& x = d.type(d.operation().inputs[0]);
  d.set_input_gradient(0, d.add("sum_to", {d.output_gradient(0)}, shaped(x.shape, x.layout), {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{kinds::kExpand, shape, gradient, work, numerics}};
}

}  // namespace poprun::ops::expand
