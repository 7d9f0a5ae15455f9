#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "replica/ops/face/operator.h"

/// Builds families of elementwise functions from a constexpr table: KIND(x) -> y and KIND_gradient(x, dy) -> dx, for
/// any shape and layout. Each row of the table has at least the members
///
///   const char* kind;
///   std::int64_t flops;  ///< Per element; a transcendental function counts as eight.
///
/// The family defines how its functions are computed, and which inputs' buffers the gradient may reuse:
///
///   struct Numerics {
///     static std::vector<std::size_t> backward_in_place();  ///< 0: x, 1: dy
///     template <std::size_t row>
///     static std::unique_ptr<Kernel> forward(const Signature& s);
///     template <std::size_t row>
///     static std::unique_ptr<Kernel> backward(const Signature& s);
///   };
namespace poprun::function_table {

template <const auto& table, std::size_t row>
Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32) {
    return shape_error(table[row].kind, s, "one f32 tensor");
  }
  return std::vector{s.inputs[0]};
}

template <const auto& table, std::size_t row>
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (s.inputs.size() != 2 || s.inputs[0] != s.inputs[1] || s.inputs[0].data != DataType::kF32) {
    return shape_error(std::string{table[row].kind} + "_gradient", s, "x and dy of the same f32 type");
  }
  return std::vector{s.inputs[0]};
}

inline void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  d.set_input_gradient(0, d.add(op.kind + "_gradient", {op.inputs[0], d.output_gradient(0)}, op.attributes, {0})[0]);
}

template <const auto& table, std::size_t row>
Work work(const Signature& s) {
  return elementwise_work(s, table[row].flops);
}

template <const auto& table, typename Numerics, std::size_t... rows>
std::vector<Operator> operators_of(std::index_sequence<rows...> /*all*/) {
  std::vector<Operator> all;
  (all.push_back(in_place(
       {table[rows].kind, shape<table, rows>, gradient, work<table, rows>, Numerics::template forward<rows>}, {0})),
   ...);
  (all.push_back(in_place({std::string{table[rows].kind} + "_gradient", gradient_shape<table, rows>, nullptr,
                           work<table, rows>, Numerics::template backward<rows>},
                          Numerics::backward_in_place())),
   ...);
  return all;
}

template <const auto& table, typename Numerics>
std::vector<Operator> operators() {
  return operators_of<table, Numerics>(std::make_index_sequence<table.size()>{});
}

}  // namespace poprun::function_table
