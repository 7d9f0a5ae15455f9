#include <algorithm>
#include <cstring>

#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"

/// Slices, splits and joins tensors along one axis. All tensors of an operation have the same element type and layout;
/// any type and any layout are accepted.
///
///   A  size of the axis    O  dimensions before it    R  dimensions after it, all in memory order
///
///   slice(x [O,A,R]) axis=. begin=. count=. step=.  ->  y [O,count,R]: begin, begin + step (any sign, default 1), ...
///   split(x [O,A,R]) axis=. sizes=[..]              ->  y0, y1, ..., side by side in x
///   concat(x0, x1, ...) axis=.                      ->  y, the inputs side by side
///   insert(x [O,A,R], piece [O,count,R]) axis=. begin=.  ->  x with the slice from `begin` on replaced by `piece`
namespace poprun::ops::pieces {
namespace {

/// Returns the view along `axis`, with R in bytes.
AxisView bytes_along(const TensorType& type, std::int64_t axis) {
  AxisView view = view_along(type, axis);
  view.R *= size_of(type.data).count();
  return view;
}

/// Counts each byte as read once, written once and received from another tile once.
Work move_work(const Signature& s) {
  Work work;
  for (const TensorType& y : s.outputs) {
    work.memory_traffic += y.bytes() * 2;
    work.exchanged += y.bytes();
  }
  return work;
}

struct Steps {
  std::int64_t begin;
  std::int64_t count;
  std::int64_t step;

  explicit Steps(const Attributes& attributes)
      : begin(attributes.integer("begin")),
        count(attributes.integer("count")),
        step(attributes.has("step") ? attributes.integer("step") : 1) {}

  [[nodiscard]] bool within(std::int64_t size) const {
    const std::int64_t last = begin + (count - 1) * step;
    return count >= 1 && step != 0 && begin >= 0 && begin < size && last >= 0 && last < size;
  }
};

bool has_steps(const Attributes& attributes) {
  return attributes.has("begin") && attributes.has("count");
}

Result<std::vector<TensorType>> slice_shape(const Signature& s) {
  if (s.inputs.size() != 1 || !has_axis(s.inputs[0], s.attributes) || !has_steps(s.attributes) ||
      !Steps(s.attributes).within(size_along(s.inputs[0], s.attributes.integer("axis")))) {
    return shape_error(kinds::kSlice, s, "one tensor, an axis, and begin, count and step that stay within it");
  }
  return std::vector{resized(s.inputs[0], s.attributes.integer("axis"), Steps(s.attributes).count)};
}

/// Copies the rows of a slice, which are `step` apart in the whole tensor and contiguous in the slice.
struct SliceCopy {
  AxisView a;
  Steps steps;

  SliceCopy(const Signature& s, const TensorType& whole)
      : a(bytes_along(whole, s.attributes.integer("axis"))), steps(s.attributes) {}

  /// Calls copy(offset in the whole tensor, offset in the slice, bytes) for each contiguous run of bytes.
  template <typename Copy>
  void each(Copy copy) const {
    for (std::int64_t o = 0; o < a.O; ++o) {
      const std::int64_t whole = (o * a.A + steps.begin) * a.R;
      const std::int64_t slice = o * steps.count * a.R;
      if (steps.step == 1) {
        copy(whole, slice, static_cast<std::size_t>(steps.count * a.R));
        continue;
      }
      for (std::int64_t i = 0; i < steps.count; ++i) {
        copy(whole + i * steps.step * a.R, slice + i * a.R, static_cast<std::size_t>(a.R));
      }
    }
  }
};

std::unique_ptr<Kernel> slice_numerics(const Signature& s) {
  return make_kernel([slice = SliceCopy(s, s.inputs[0])](const Operands& t) {
    slice.each([&](std::int64_t whole, std::int64_t piece, std::size_t bytes) {
      std::memcpy(t.outputs[0] + piece, t.inputs[0] + whole, bytes);
    });
  });
}

std::vector<Overlay> slice_view(const Signature& s) {
  const AxisView x = bytes_along(s.inputs[0], s.attributes.integer("axis"));
  const Steps steps(s.attributes);
  if (s.inputs[0].data != s.outputs[0].data || x.O != 1 || (steps.step != 1 && steps.count != 1)) {
    return {};
  }
  return {{0, 0, Bytes{steps.begin * x.R}}};
}

/// slice_gradient(dy) axis=. begin=. count=. step=. size=.  ->  dx, zero outside the slice
/// Models also use this operator to spread elements apart, so it has a gradient.
Result<std::vector<TensorType>> slice_gradient_shape(const Signature& s) {
  if (s.inputs.size() != 1 || !has_axis(s.inputs[0], s.attributes) || !has_steps(s.attributes) ||
      !s.attributes.has("size") || !Steps(s.attributes).within(s.attributes.integer("size"))) {
    return shape_error(kinds::kSliceGradient, s, "dy, slice's attributes and size");
  }
  return std::vector{resized(s.inputs[0], s.attributes.integer("axis"), s.attributes.integer("size"))};
}

std::unique_ptr<Kernel> slice_gradient_numerics(const Signature& s) {
  return make_kernel([slice = SliceCopy(s, s.outputs[0]), n = s.outputs[0].bytes().count()](const Operands& t) {
    std::fill_n(t.outputs[0], n, std::byte{0});
    slice.each([&](std::int64_t whole, std::int64_t piece, std::size_t bytes) {
      std::memcpy(t.outputs[0] + whole, t.inputs[0] + piece, bytes);
    });
  });
}

void slice_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  Attributes attributes = op.attributes;
  attributes.set("size", size_along(d.type(op.inputs[0]), attributes.integer("axis")));
  d.set_input_gradient(0, d.add(kinds::kSliceGradient, {d.output_gradient(0)}, attributes, {0})[0]);
}

void slice_gradient_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  Attributes attributes{{"axis", op.attributes.integer("axis")},
                        {"begin", op.attributes.integer("begin")},
                        {"count", op.attributes.integer("count")}};
  if (op.attributes.has("step")) {
    attributes.set("step", op.attributes.integer("step"));
  }
  d.set_input_gradient(0, d.add(kinds::kSlice, {d.output_gradient(0)}, std::move(attributes), {0})[0]);
}

Result<std::vector<TensorType>> insert_shape(const Signature& s) {
  const auto bad = [&] {
    return shape_error(kinds::kInsert, s, "inputs x and piece, where piece fits into x at offset begin along axis");
  };
  if (s.inputs.size() != 2 || !has_axis(s.inputs[0], s.attributes) || !has_axis(s.inputs[1], s.attributes) ||
      !s.attributes.has("begin")) {
    return bad();
  }
  const std::int64_t axis = s.attributes.integer("axis");
  const std::int64_t begin = s.attributes.integer("begin");
  const std::int64_t size = size_along(s.inputs[0], axis);
  if (resized(s.inputs[1], axis, size) != s.inputs[0] || begin < 0 || begin + size_along(s.inputs[1], axis) > size) {
    return bad();
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> insert_numerics(const Signature& s) {
  const std::int64_t axis = s.attributes.integer("axis");
  Signature as_slice = s;
  as_slice.attributes.set("count", size_along(s.inputs[1], axis));
  return make_kernel([slice = SliceCopy(as_slice, s.inputs[0]), n = s.inputs[0].bytes().count()](const Operands& t) {
    if (t.outputs[0] != t.inputs[0]) {
      std::copy_n(t.inputs[0], n, t.outputs[0]);
    }
    slice.each([&](std::int64_t whole, std::int64_t piece, std::size_t bytes) {
      std::memcpy(t.outputs[0] + whole, t.inputs[1] + piece, bytes);
    });
  });
}

/// Counts only the piece, because x is usually updated in place.
Work insert_work(const Signature& s) {
  Work work;
  work.memory_traffic = s.inputs[1].bytes() * 2;
  work.exchanged = s.inputs[1].bytes();
  return work;
}

Result<std::vector<TensorType>> split_shape(const Signature& s) {
  const auto bad = [&] { return shape_error("split", s, "one tensor, an axis, and sizes >= 1 that fill it"); };
  if (s.inputs.size() != 1 || !has_axis(s.inputs[0], s.attributes) || !s.attributes.has("sizes")) {
    return bad();
  }
  const std::int64_t axis = s.attributes.integer("axis");
  std::vector<TensorType> outputs;
  std::int64_t sum = 0;
  for (const std::int64_t size : s.attributes.integers("sizes")) {
    if (size < 1 || size > size_along(s.inputs[0], axis)) {
      return bad();
    }
    outputs.push_back(resized(s.inputs[0], axis, size));
    sum += size;
  }
  return sum == size_along(s.inputs[0], axis) ? Result<std::vector<TensorType>>(outputs) : bad();
}

/// Locates the pieces in the whole tensor, which has O blocks, each with bytes[k] contiguous bytes of every piece k.
struct Runs {
  std::int64_t O;
  std::vector<std::size_t> bytes;

  Runs(const std::vector<TensorType>& pieces, std::int64_t axis) : O(view_along(pieces[0], axis).O) {
    for (const TensorType& piece : pieces) {
      const AxisView view = bytes_along(piece, axis);
      bytes.push_back(static_cast<std::size_t>(view.A * view.R));
    }
  }

  /// Calls copy(offset in the whole tensor, piece, offset in the piece, bytes), in the order of the whole tensor.
  template <typename Copy>
  void each(Copy copy) const {
    std::size_t whole = 0;
    for (std::int64_t o = 0; o < O; ++o) {
      for (std::size_t k = 0; k < bytes.size(); ++k) {
        copy(whole, k, static_cast<std::size_t>(o) * bytes[k], bytes[k]);
        whole += bytes[k];
      }
    }
  }
};

std::unique_ptr<Kernel> split_numerics(const Signature& s) {
  return make_kernel([runs = Runs(s.outputs, s.attributes.integer("axis"))](const Operands& t) {
    runs.each([&](std::size_t whole, std::size_t piece, std::size_t at, std::size_t bytes) {
      std::memcpy(t.outputs[piece] + at, t.inputs[0] + whole, bytes);
    });
  });
}

/// Returns overlay(k, begin) for each piece k, which begins at byte `begin` of `whole`; empty if pieces interleave.
std::vector<Overlay> pieces_view(const TensorType& whole, const std::vector<TensorType>& pieces, std::int64_t axis,
                                 Overlay (*overlay)(std::size_t k, Bytes begin)) {
  std::vector<Overlay> overlays;
  Bytes begin;
  for (const TensorType& piece : pieces) {
    if (piece.data != whole.data || view_along(whole, axis).O != 1) {
      return {};
    }
    overlays.push_back(overlay(overlays.size(), begin));
    begin += piece.bytes();
  }
  return overlays;
}

std::vector<Overlay> split_view(const Signature& s) {
  return pieces_view(s.inputs[0], s.outputs, s.attributes.integer("axis"), [](std::size_t k, Bytes begin) {
    return Overlay{0, k, begin};
  });
}

void split_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  std::vector<TensorId> pieces;
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    pieces.push_back(d.output_gradient(k));
  }
  d.set_input_gradient(0, d.add(kinds::kConcat, pieces, {{"axis", op.attributes.integer("axis")}}, {0})[0]);
}

Result<std::vector<TensorType>> concat_shape(const Signature& s) {
  const auto bad = [&] {
    return shape_error(kinds::kConcat, s, "tensors of the same type except for their size along the axis");
  };
  if (s.inputs.empty() || !has_axis(s.inputs[0], s.attributes)) {
    return bad();
  }
  const std::int64_t axis = s.attributes.integer("axis");
  std::int64_t sum = 0;
  for (const TensorType& x : s.inputs) {
    if (!has_axis(x, s.attributes) || resized(x, axis, size_along(s.inputs[0], axis)) != s.inputs[0]) {
      return bad();
    }
    sum += size_along(x, axis);
  }
  return std::vector{resized(s.inputs[0], axis, sum)};
}

std::unique_ptr<Kernel> concat_numerics(const Signature& s) {
  return make_kernel([runs = Runs(s.inputs, s.attributes.integer("axis"))](const Operands& t) {
    runs.each([&](std::size_t whole, std::size_t piece, std::size_t at, std::size_t bytes) {
      std::memcpy(t.outputs[0] + whole, t.inputs[piece] + at, bytes);
    });
  });
}

std::vector<Overlay> concat_view(const Signature& s) {
  return pieces_view(s.outputs[0], s.inputs, s.attributes.integer("axis"), [](std::size_t k, Bytes begin) {
    return Overlay{k, 0, Bytes{0} - begin};
  });
}

void concat_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const std::int64_t axis = op.attributes.integer("axis");
  std::int64_t begin = 0;
  for (std::size_t k = 0; k < op.inputs.size(); ++k) {
    const std::int64_t count = size_along(d.type(op.inputs[k]), axis);
    if (d.wants(k)) {
      d.set_input_gradient(k, d.add(kinds::kSlice, {d.output_gradient(0)},
                                    {{"axis", axis}, {"begin", begin}, {"count", count}}, {k})[0]);
    }
    begin += count;
  }
}

}  // namespace

std::vector<Operator> operators() {
  return {
      {.kind = kinds::kSlice,
       .shape = slice_shape,
       .gradient = slice_gradient,
       .work = move_work,
       .numerics = slice_numerics,
       .view = slice_view},
      {kinds::kSliceGradient, slice_gradient_shape, slice_gradient_gradient, move_work, slice_gradient_numerics},
      in_place({kinds::kInsert, insert_shape, nullptr, insert_work, insert_numerics}, {0}),
      {.kind = "split",
       .shape = split_shape,
       .gradient = split_gradient,
       .work = move_work,
       .numerics = split_numerics,
       .view = split_view},
      {.kind = kinds::kConcat,
       .shape = concat_shape,
       .gradient = concat_gradient,
       .work = move_work,
       .numerics = concat_numerics,
       .view = concat_view},
  };
}

}  // namespace poprun::ops::pieces
