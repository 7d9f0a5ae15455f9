#include <cstdint>

#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"

/// Running sums and products of f32 tensors in any layout, and triangles of row-major f32 tensors.
///
///   cum_sum(x [O,A,R]) axis=. exclusive=0|1 reverse=0|1  ->  y, y[a] = x[0] + ... + x[a] in double, rounded once
///   cum_prod(x [O,A,R]) axis=. exclusive=0|1 reverse=0|1  ->  y, y[a] = x[0] * ... * x[a] in double, rounded once
///   cum_prod_gradient(x, dy) and cum_prod's attributes  ->  dx
///   trilu(x [...,M,N]) upper=0|1 k=.  ->  y, x on one side of diagonal k and 0 on the other
///
/// With exclusive=1, y[a] excludes x[a]. With reverse=1, sums and products start at the end. On diagonal k, column =
/// row + k. The diagonal belongs to both triangles.
namespace poprun::ops::scan {
namespace {

bool has_flag(const Attributes& attributes, const std::string& name) {
  return attributes.has(name) && attributes.integer(name) >= 0 && attributes.integer(name) <= 1;
}

Result<std::vector<TensorType>> scanned(const char* kind, const Signature& s, std::size_t inputs) {
  if (s.inputs.size() != inputs || s.inputs[0].data != DataType::kF32 || s.inputs.back() != s.inputs[0] ||
      !has_axis(s.inputs[0], s.attributes) || !has_flag(s.attributes, "exclusive") ||
      !has_flag(s.attributes, "reverse")) {
    return shape_error(kind, s,
                       inputs == 1 ? "one f32 tensor, axis within its rank, exclusive=0|1 and reverse=0|1"
                                   : "x, dy and cum_prod's attributes");
  }
  return std::vector{s.inputs[0]};
}

Result<std::vector<TensorType>> cum_sum_shape(const Signature& s) {
  return scanned("cum_sum", s, 1);
}

/// The rows of a running sum or product, each of A elements, and the order of their elements.
struct Rows {
  AxisView view;
  std::int64_t step;   ///< Distance between elements, negative if they are read from the end.
  std::int64_t first;  ///< Offset of the first element that is read.
  bool exclusive;

  explicit Rows(const Signature& s) : view(view_along(s.inputs[0], s.attributes.integer("axis"))) {
    const bool reverse = s.attributes.integer("reverse") != 0;
    step = reverse ? -view.R : view.R;
    first = reverse ? (view.A - 1) * view.R : 0;
    exclusive = s.attributes.integer("exclusive") != 0;
  }

  /// Calls visit(offset of the first element that is read) for every row.
  template <typename Visit>
  void each(Visit visit) const {
    for (std::int64_t row = 0; row < view.O * view.R; ++row) {
      visit(row / view.R * view.A * view.R + row % view.R + first);
    }
  }
};

/// Computes y[a] = f(... f(f(start, x[0]), x[1]) ..., x[a]), or without x[a] if the scan is exclusive.
template <typename Function>
std::unique_ptr<Kernel> scan(const Signature& s, double start, Function f) {
  return make_kernel([rows = Rows(s), start, f](const Operands& t) {
    rows.each([&](std::int64_t at) {
      double value = start;
      for (std::int64_t a = 0; a < rows.view.A; ++a, at += rows.step) {
        const double before = value;
        value = f(value, static_cast<double>(t.input_f32(0)[at]));
        t.output_f32(0)[at] = static_cast<float>(rows.exclusive ? before : value);
      }
    });
  });
}

std::unique_ptr<Kernel> cum_sum_numerics(const Signature& s) {
  return scan(s, 0, [](double sum, double x) { return sum + x; });
}

Result<std::vector<TensorType>> cum_prod_shape(const Signature& s) {
  return scanned("cum_prod", s, 1);
}

std::unique_ptr<Kernel> cum_prod_numerics(const Signature& s) {
  return scan(s, 1, [](double product, double x) { return product * x; });
}

Result<std::vector<TensorType>> cum_prod_gradient_shape(const Signature& s) {
  return scanned("cum_prod_gradient", s, 2);
}

/// Computes dx[a] as the product of the elements before a times the sum, over all b after a, of dy[b] times the product
/// of the elements between a and b. No division is needed, so zeros are elements like others.
class CumProdGradient final : public Kernel {
 public:
  explicit CumProdGradient(const Signature& s) : rows_(s) {}

  void run(const Operands& t) override {
    auto* before = reinterpret_cast<double*>(t.scratch);  // NOLINT: 64-byte aligned scratch.
    const float* x = t.input_f32(0);
    const float* dy = t.input_f32(1);
    rows_.each([&](std::int64_t at) {
      double product = 1;
      for (std::int64_t a = 0; a < rows_.view.A; ++a, at += rows_.step) {
        before[a] = product;
        product *= static_cast<double>(x[at]);
      }
      double sum = 0;
      for (std::int64_t a = rows_.view.A; a-- > 0;) {
        at -= rows_.step;
        const auto own = static_cast<double>(dy[at]);
        // The sum over all b > a, times the elements after a and before b.
        const double after = sum;
        const double with_own = own + (rows_.exclusive ? static_cast<double>(x[at]) : 1) * after;
        t.output_f32(0)[at] = static_cast<float>(before[a] * (rows_.exclusive ? after : with_own));
        sum = rows_.exclusive ? with_own : with_own * static_cast<double>(x[at]);
      }
    });
  }

  [[nodiscard]] Bytes scratch() const override { return Bytes{rows_.view.A * 8}; }

 private:
  Rows rows_;
};

std::unique_ptr<Kernel> cum_prod_gradient_numerics(const Signature& s) {
  return std::make_unique<CumProdGradient>(s);
}

void cum_prod_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const TensorId x = op.inputs[0];
  const Attributes attributes = op.attributes;
  d.set_input_gradient(0, d.add("cum_prod_gradient", {x, d.output_gradient(0)}, attributes, {0})[0]);
}

Work one_flop(const Signature& s) {
  return elementwise_work(s, 1);
}

Work four_flops(const Signature& s) {
  return elementwise_work(s, 4);
}

/// Sets the gradient to the running sum of dy in the opposite direction, because x[a] contributes to all later sums.
void cum_sum_gradient(Differentiator& d) {
  Attributes attributes = d.operation().attributes;
  attributes.set("reverse", 1 - attributes.integer("reverse"));
  d.set_input_gradient(0, d.add("cum_sum", {d.output_gradient(0)}, attributes, {0})[0]);
}

Result<std::vector<TensorType>> trilu_shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32 || s.inputs[0].layout != Layout::kRowMajor ||
      s.inputs[0].shape.size() < 2 || !has_flag(s.attributes, "upper") || !s.attributes.has("k")) {
    return shape_error("trilu", s, "x f32[...,M,N] row-major, upper=0|1 and k");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> trilu_numerics(const Signature& s) {
  const Shape& d = s.inputs[0].shape;
  return make_kernel([n = s.inputs[0].elements(), M = d[d.size() - 2], N = d.back(),
                      upper = s.attributes.integer("upper") != 0, k = s.attributes.integer("k")](const Operands& t) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t column = i % N;
      const std::int64_t diagonal = i / N % M + k;
      const bool stays = upper ? column >= diagonal : column <= diagonal;
      t.output_f32(0)[i] = stays ? t.input_f32(0)[i] : 0.0F;
    }
  });
}

void trilu_gradient(Differentiator& d) {
  d.set_input_gradient(0, d.add("trilu", {d.output_gradient(0)}, d.operation().attributes, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{"cum_sum", cum_sum_shape, cum_sum_gradient, one_flop, cum_sum_numerics},
          {"cum_prod", cum_prod_shape, cum_prod_gradient, one_flop, cum_prod_numerics},
          {"cum_prod_gradient", cum_prod_gradient_shape, nullptr, four_flops, cum_prod_gradient_numerics},
          {"trilu", trilu_shape, trilu_gradient, one_flop, trilu_numerics}};
}

}  // namespace poprun::ops::scan
