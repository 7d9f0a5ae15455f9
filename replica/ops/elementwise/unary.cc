#include <array>

#include "replica/ops/dnnl/kernel.h"
#include "replica/ops/elementwise/function_table.h"
#include "replica/ops/face/simd.h"

/// Elementwise functions (function_table.h). oneDNN computes both passes, vectorised, from each row's algorithm, alpha
/// and beta. oneDNN's exp, tanh and erf are polynomials with a relative error of about 1e-6.
namespace poprun::ops::unary {
namespace {

using dnnl::algorithm;

struct Function {
  const char* kind;
  algorithm way;
  float alpha;  ///< Overridden by the attribute `alpha` if `takes_alpha` is set.
  float beta;
  bool takes_alpha;
  float scale;  ///< Factor for the result and the derivative.
  std::int64_t flops;
};

// Klambauer, Unterthiner, Mayr and Hochreiter, "Self-normalizing neural networks", 2017.
constexpr float kSeluAlpha = 1.6732632423543772F;
constexpr float kSeluScale = 1.0507009873554805F;

//    y = f(x)                                               dy/dx
constexpr std::array kFunctions = {
    // x/2 (1 + erf(x / sqrt 2))                             (1 + erf)/2 + x exp(-x^2/2)/sqrt(2 pi)
    Function{"gelu", algorithm::eltwise_gelu_erf, 0, 0, false, 1, 12},
    // x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3)  (1 + tanh u)/2 (1 + x (1 - tanh u) du/dx)
    Function{"gelu_tanh", algorithm::eltwise_gelu_tanh, 0, 0, false, 1, 14},
    // tanh(x)                                               1 - tanh(x)^2
    Function{"tanh", algorithm::eltwise_tanh, 0, 0, false, 1, 8},
    // 1 / (1 + exp(-x))                                     y (1 - y)
    Function{"sigmoid", algorithm::eltwise_logistic, 0, 0, false, 1, 10},
    // exp(x)                                                exp(x)
    Function{"exp", algorithm::eltwise_exp, 0, 0, false, 1, 8},
    // sqrt(x)                                               1 / (2 sqrt(x))
    Function{"sqrt", algorithm::eltwise_sqrt, 0, 0, false, 1, 4},
    // -x                                                    -1
    Function{"neg", algorithm::eltwise_linear, -1, 0, false, 1, 1},
    // x tanh(ln(1 + exp(x)))
    Function{"mish", algorithm::eltwise_mish, 0, 0, false, 1, 24},
    // |x|                                                   sign(x)
    Function{"abs", algorithm::eltwise_abs, 0, 0, false, 1, 1},
    // x > 0 ? x : alpha x                                   x > 0 ? 1 : alpha
    Function{"leaky_relu", algorithm::eltwise_relu, 0.01F, 0, true, 1, 2},
    // x > 0 ? x : alpha (exp(x) - 1)                        x > 0 ? 1 : alpha exp(x)
    Function{"elu", algorithm::eltwise_elu, 1, 0, true, 1, 10},
    // scale (x > 0 ? x : alpha (exp(x) - 1))                scale (x > 0 ? 1 : alpha exp(x))
    Function{"selu", algorithm::eltwise_elu, kSeluAlpha, 0, false, kSeluScale, 11},
};

/// Describes a tensor to oneDNN as one row of elements, since the layout does not matter.
dnnl::memory::desc row_of(const TensorType& type) {
  return {{type.elements()}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a};
}

float alpha_of(const Function& f, const Signature& s) {
  return f.takes_alpha && s.attributes.has("alpha") ? static_cast<float>(s.attributes.real("alpha")) : f.alpha;
}

POPRUN_SIMD void multiply(float* y, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] *= factor;
  }
}

/// Wraps a oneDNN kernel so that its result is multiplied by the function's scale.
std::unique_ptr<Kernel> scaled(const Function& f, std::unique_ptr<Kernel> kernel, std::int64_t n) {
  class Scaled final : public Kernel {
   public:
    Scaled(std::unique_ptr<Kernel> kernel, std::int64_t n, float factor)
        : kernel_(std::move(kernel)), n_(n), factor_(factor) {}
    void run(const Operands& t) override {
      kernel_->run(t);
      multiply(t.output_f32(0), n_, factor_);
    }
    [[nodiscard]] Bytes scratch() const override { return kernel_->scratch(); }

   private:
    std::unique_ptr<Kernel> kernel_;
    std::int64_t n_;
    float factor_;
  };
  return f.scale == 1.0F ? std::move(kernel) : std::make_unique<Scaled>(std::move(kernel), n, f.scale);
}

dnnl::eltwise_forward::primitive_desc plan_forward(const Function& f, const Signature& s) {
  return {{dnnl::prop_kind::forward_training, f.way, row_of(s.inputs[0]), alpha_of(f, s), f.beta},
          dnnl_attributes(),
          dnnl_cpu()};
}

struct Numerics {
  /// Returns only dy, because oneDNN documents in-place operation for no other input.
  static std::vector<std::size_t> backward_in_place() { return {1}; }

  template <std::size_t row>
  static std::unique_ptr<Kernel> forward(const Signature& s) {
    const auto plan = plan_forward(kFunctions[row], s);
    const auto desc = row_of(s.inputs[0]);
    return scaled(kFunctions[row],
                  std::make_unique<DnnlKernel>(dnnl::eltwise_forward(plan), plan.scratchpad_desc(),
                                               std::vector<DnnlKernel::Argument>{{DNNL_ARG_SRC, false, 0, desc, desc},
                                                                                 {DNNL_ARG_DST, true, 0, desc, desc}}),
                  s.inputs[0].elements());
  }

  template <std::size_t row>
  static std::unique_ptr<Kernel> backward(const Signature& s) {
    const Function& f = kFunctions[row];
    const auto desc = row_of(s.inputs[0]);
    const dnnl::eltwise_backward::primitive_desc plan({f.way, desc, desc, alpha_of(f, s), f.beta}, dnnl_attributes(),
                                                      dnnl_cpu(), plan_forward(f, s));
    return scaled(
        f,
        std::make_unique<DnnlKernel>(dnnl::eltwise_backward(plan), plan.scratchpad_desc(),
                                     std::vector<DnnlKernel::Argument>{{DNNL_ARG_SRC, false, 0, desc, desc},
                                                                       {DNNL_ARG_DIFF_DST, false, 1, desc, desc},
                                                                       {DNNL_ARG_DIFF_SRC, true, 0, desc, desc}}),
        s.inputs[0].elements());
  }
};

}  // namespace

std::vector<Operator> operators() {
  return function_table::operators<kFunctions, Numerics>();
}

}  // namespace poprun::ops::unary
