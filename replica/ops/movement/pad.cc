#include <algorithm>
#include <cstdint>
#include <numeric>

#include "replica/ops/face/operator.h"

/// pad(x) begin=[..] end=[..] mode="constant" | "reflect" | "edge" value=.  ->  y, of x's layout
///
/// begin and end are the numbers of elements added at the two ends of each dimension. Negative numbers remove elements.
/// As in numpy.pad, the modes fill new elements with `value` (default 0), with the elements of x mirrored at its first
/// and last element (repeatedly if necessary), or with copies of the nearer of these two. The gradient of an element of
/// x is the sum of dy over all its copies, in y's order.
namespace poprun::ops::pad {
namespace {

enum class Mode : std::uint8_t { kConstant, kReflect, kEdge };

constexpr std::int64_t kOutside = -1;

/// Returns the element to read at position i of a dimension of size n; i may be negative or >= n.
std::int64_t source(std::int64_t i, std::int64_t n, Mode mode) {
  if (i >= 0 && i < n) {
    return i;
  }
  if (mode == Mode::kConstant) {
    return kOutside;
  }
  if (mode == Mode::kEdge || n == 1) {
    return i < 0 ? 0 : n - 1;
  }
  const std::int64_t period = 2 * (n - 1);
  const std::int64_t within = (i % period + period) % period;
  return within < n ? within : period - within;
}

Mode mode_of(const Attributes& attributes) {
  const std::string& mode = attributes.text("mode");
  return mode == "reflect" ? Mode::kReflect : mode == "edge" ? Mode::kEdge : Mode::kConstant;
}

bool has_padding(const Attributes& attributes, std::size_t rank) {
  if (!attributes.has("begin") || !attributes.has("end") || !attributes.has("mode")) {
    return false;
  }
  const std::string& mode = attributes.text("mode");
  return attributes.integers("begin").size() == rank && attributes.integers("end").size() == rank &&
         (mode == "constant" || mode == "reflect" || mode == "edge");
}

/// Returns y's type. Errors: kUsage if x or y is empty or the attributes do not fit.
Result<std::vector<TensorType>> padded(std::string_view kind, const Signature& s, const TensorType& x) {
  const auto bad = [&] {
    return shape_error(kind, s,
                       "x f32 and not empty; begin=[..] and end=[..], one per dimension, that leave "
                       "at least one element; mode=\"constant\", \"reflect\" or \"edge\"");
  };
  if (x.data != DataType::kF32 || x.elements() == 0 || !has_padding(s.attributes, x.shape.size())) {
    return bad();
  }
  TensorType y = x;
  for (std::size_t d = 0; d < x.shape.size(); ++d) {
    y.shape[d] += s.attributes.integers("begin")[d] + s.attributes.integers("end")[d];
    if (y.shape[d] < 1) {
      return bad();
    }
  }
  return std::vector{y};
}

/// Maps each position of y, dimension by dimension in memory order, to its offset in x in elements, or to kOutside.
class Sources {
 public:
  Sources(const TensorType& x, const TensorType& y, const Attributes& attributes) {
    std::vector<std::size_t> order(x.shape.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (x.layout == Layout::kChannelsLast) {
      order = {0, 2, 3, 1};
    }
    std::int64_t stride = x.elements();
    for (const std::size_t d : order) {
      stride /= x.shape[d];
      std::vector<std::int64_t> offsets;
      for (std::int64_t i = 0; i < y.shape[d]; ++i) {
        const std::int64_t from = source(i - attributes.integers("begin")[d], x.shape[d], mode_of(attributes));
        offsets.push_back(from == kOutside ? kOutside : from * stride);
      }
      offsets_.push_back(std::move(offsets));
    }
    if (offsets_.empty()) {
      offsets_.push_back({0});
    }
  }

  /// Calls visit(element of y, element of x or kOutside) in y's order.
  template <typename Visit>
  void for_each(Visit visit) const {
    std::int64_t at = 0;
    walk(0, 0, at, visit);
  }

 private:
  template <typename Visit>
  void walk(std::size_t d, std::int64_t base, std::int64_t& at, Visit& visit) const {
    const bool innermost = d + 1 == offsets_.size();
    for (const std::int64_t offset : offsets_[d]) {
      const std::int64_t from = base == kOutside || offset == kOutside ? kOutside : base + offset;
      if (innermost) {
        visit(at++, from);
      } else {
        walk(d + 1, from, at, visit);
      }
    }
  }

  std::vector<std::vector<std::int64_t>> offsets_;
};

Result<std::vector<TensorType>> shape(const Signature& s) {
  return padded("pad", s, s.inputs.size() == 1 ? s.inputs[0] : TensorType{DataType::kU8, {}, {}});
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const double value = s.attributes.has("value") ? s.attributes.real("value") : 0.0;
  return make_kernel([sources = Sources(s.inputs[0], s.outputs[0], s.attributes),
                      outside = static_cast<float>(value)](const Operands& t) {
    const float* x = t.input_f32(0);
    float* y = t.output_f32(0);
    sources.for_each([&](std::int64_t to, std::int64_t from) { y[to] = from == kOutside ? outside : x[from]; });
  });
}

Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.exchanged = s.outputs[0].bytes();
  return work;
}

/// pad_gradient(dy) input_shape=[..] and pad's attributes  ->  dx
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (s.inputs.size() == 1 && s.attributes.has("input_shape")) {
    TensorType x = s.inputs[0];
    x.shape = s.attributes.integers("input_shape");
    const auto y = padded("pad_gradient", s, x);
    if (y && y->at(0) == s.inputs[0]) {
      return std::vector{x};
    }
  }
  return shape_error("pad_gradient", s, "dy of pad's output shape, input_shape=[..] and pad's attributes");
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  return make_kernel(
      [sources = Sources(s.outputs[0], s.inputs[0], s.attributes), n = s.outputs[0].elements()](const Operands& t) {
        float* dx = t.output_f32(0);
        std::fill_n(dx, n, 0.0F);
        sources.for_each([&](std::int64_t from, std::int64_t to) {
          if (to != kOutside) {
            dx[to] += t.input_f32(0)[from];
          }
        });
      });
}

Work gradient_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = s.inputs[0].elements();
  work.exchanged = s.inputs[0].bytes();
  return work;
}

void gradient(Differentiator& d) {
  Attributes attributes = d.operation().attributes;
  attributes.set("input_shape", d.type(d.operation().inputs[0]).shape);
  d.set_input_gradient(0, d.add("pad_gradient", {d.output_gradient(0)}, attributes, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{"pad", shape, gradient, work, numerics},
          {"pad_gradient", gradient_shape, nullptr, gradient_work, gradient_numerics}};
}

}  // namespace poprun::ops::pad
