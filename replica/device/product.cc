#include "replica/device/product.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace poprun {
namespace {

/// Returns the number of multiples of `step` in [first, last]. Requires step > 0.
std::int64_t multiples_between(std::int64_t first, std::int64_t last, std::int64_t step) {
  const auto floor_div = [step](std::int64_t a) { return a >= 0 ? a / step : -((-a + step - 1) / step); };
  return first > last ? 0 : floor_div(last) - floor_div(first - 1);
}

std::string_view text_of(ProductPass pass) {
  switch (pass) {
    case ProductPass::kForward:
      return "forward";
    case ProductPass::kInputGradient:
      return "input gradient";
    case ProductPass::kWeightGradient:
      return "weight gradient";
  }
  return "";
}

std::string_view text_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kF32:
      return "f32";
    case Arithmetic::kF16:
      return "f16 sums f32";
    case Arithmetic::kF16PartialsF16:
      return "f16";
  }
  return "";
}

/// Returns `2x3`, or `2` if both numbers are 2.
std::string pair_text(std::int64_t first, std::int64_t second) {
  return first == second ? std::to_string(first) : fmt::format("{}x{}", first, second);
}

/// Returns `word` and the two values, or nothing if both values are `usual`.
std::string unless(std::string_view word, std::int64_t first, std::int64_t second, std::int64_t usual) {
  return first == usual && second == usual ? std::string() : fmt::format("{}{}", word, pair_text(first, second));
}

std::string field_text(const FieldDimension& h, const FieldDimension& w) {
  return fmt::format(", {}x{} * {}x{}{}{}{}{} -> {}x{}", h.input, w.input, h.kernel, w.kernel,
                     unless(" / ", h.stride, w.stride, 1), unless(", padding ", h.padding, w.padding, 0),
                     unless(", input dilation ", h.input_dilation, w.input_dilation, 1),
                     unless(", kernel dilation ", h.kernel_dilation, w.kernel_dilation, 1), h.output, w.output);
}

}  // namespace

std::int64_t FieldDimension::useful_pairs() const {
  // For a fixed k, the values of y whose place p = y * stride + shift is inside the input form an interval. With an
  // input dilation, only multiples of the dilation are elements.
  std::int64_t pairs = 0;
  const std::int64_t last_place = (input - 1) * input_dilation;
  for (std::int64_t k = 0; k < kernel; ++k) {
    const std::int64_t shift = k * kernel_dilation - padding;
    if (input_dilation == 1) {
      // Count the multiples of the stride among the places 0..last_place, moved by the shift.
      const std::int64_t first = std::max<std::int64_t>(-shift, 0);
      const std::int64_t last = std::min(last_place - shift, (output - 1) * stride);
      pairs += multiples_between(first, last, stride);
      continue;
    }
    for (std::int64_t y = 0; y < output; ++y) {
      const std::int64_t place = y * stride + shift;
      pairs += place >= 0 && place <= last_place && place % input_dilation == 0 ? 1 : 0;
    }
  }
  return pairs;
}

std::int64_t Product::macs() const {
  std::int64_t count = groups * batch * input_channels * output_channels;
  for (const FieldDimension& d : field) {
    // The output of the forward pass is the input of the pass that computes the gradient of the inputs.
    count *= d.kernel * (pass == ProductPass::kInputGradient ? d.input : d.output);
  }
  return count;
}

std::int64_t Product::useful_macs() const {
  return groups * batch * input_channels * output_channels * field[0].useful_pairs() * field[1].useful_pairs();
}

std::int64_t Product::input_elements() const {
  return groups * batch * input_channels * field[0].input * field[1].input;
}

std::int64_t Product::weight_elements() const {
  return groups * input_channels * output_channels * field[0].kernel * field[1].kernel;
}

Product input_gradient(Product forward) {
  forward.pass = ProductPass::kInputGradient;
  std::swap(forward.input_channels, forward.output_channels);
  for (FieldDimension& d : forward.field) {
    std::swap(d.input, d.output);
    std::swap(d.stride, d.input_dilation);
    d.padding = (d.kernel - 1) * d.kernel_dilation - d.padding;
  }
  return forward;
}

Product weight_gradient(Product forward) {
  forward.pass = ProductPass::kWeightGradient;
  std::swap(forward.batch, forward.input_channels);
  for (FieldDimension& d : forward.field) {
    std::swap(d.kernel, d.output);
    std::swap(d.stride, d.kernel_dilation);
  }
  return forward;
}

Bytes element_bytes(Arithmetic arithmetic) {
  return Bytes{arithmetic == Arithmetic::kF32 ? 4 : 2};
}

Bytes partial_bytes(Arithmetic arithmetic) {
  return Bytes{arithmetic == Arithmetic::kF16PartialsF16 ? 2 : 4};
}

std::string to_text(const Product& p) {
  return fmt::format("{} {} {}:{} batch {}, {} -> {} channels{}", p.kind == ProductKind::kMatmul ? "matmul" : "conv",
                     text_of(p.pass), text_of(p.arithmetic),
                     unless(" groups ", p.groups, p.groups, 1) + (p.groups == 1 ? "" : ","), p.batch, p.input_channels,
                     p.output_channels,
                     p.field == std::array<FieldDimension, 2>{} ? "" : field_text(p.field[0], p.field[1]));
}

std::size_t ProductHash::operator()(const Product& p) const {
  std::size_t hash = 0;
  const auto add = [&hash](std::int64_t value) {
    // The multiplier of Knuth's MMIX generator.
    hash = (hash ^ static_cast<std::size_t>(value)) * 6364136223846793005ULL + (hash >> 32U);
  };
  add(static_cast<std::int64_t>(p.kind));
  add(static_cast<std::int64_t>(p.pass));
  add(static_cast<std::int64_t>(p.arithmetic));
  for (const std::int64_t size : {p.groups, p.batch, p.input_channels, p.output_channels}) {
    add(size);
  }
  for (const FieldDimension& d : p.field) {
    for (const std::int64_t value :
         {d.input, d.kernel, d.output, d.stride, d.input_dilation, d.kernel_dilation, d.padding}) {
      add(value);
    }
  }
  return hash;
}

}  // namespace poprun
