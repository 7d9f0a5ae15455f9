#include <algorithm>

#include "replica/ops/face/operator.h"

/// assign(target, value)  ->  target, in place: a copy of value in storage order, converted if the precisions differ.
namespace poprun::ops::assign {
namespace {

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 2 || s.inputs[0] != s.inputs[1] || s.inputs[0].data != DataType::kF32) {
    return shape_error("assign", s, "target and value of the same f32 type");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel(
      [n = s.inputs[0].elements()](const Operands& t) { std::copy_n(t.input_f32(1), n, t.output_f32(0)); });
}

Work work(const Signature& s) {
  Work work;
  work.memory_traffic = s.inputs[1].bytes() + s.outputs[0].bytes();
  return work;
}

}  // namespace

std::vector<Operator> operators() {
  return {on_shards({"assign", shape, nullptr, work, numerics}, {.inputs = 2, .outputs = 1})};
}

}  // namespace poprun::ops::assign
