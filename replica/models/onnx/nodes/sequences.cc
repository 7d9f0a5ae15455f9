#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "replica/models/onnx/node.h"
#include "replica/models/onnx/sequence.h"

/// Sequences of tensors, whose lengths must be known at import, and optional values, which are present or not.
namespace poprun::onnx_import {

bool takes_sequences(const std::string& op) {
  constexpr std::array kOps = {"SequenceAt",
                               "SequenceInsert",
                               "SequenceErase",
                               "SequenceLength",
                               "ConcatFromSequence",
                               "OptionalGetElement",
                               "OptionalHasElement",
                               "Identity",
                               "Loop",
                               "If",
                               "Scan"};
  return std::ranges::find(kOps, op) != kOps.end();
}

namespace nodes::sequences {
namespace {

using Sequence = std::vector<Value>;

Result<Sequence> sequence_of(Node& node) {
  if (node.value(0).sequence == nullptr) {
    return node.wrong("needs a sequence");
  }
  return *node.value(0).sequence;
}

void set_sequence(Node& node, Sequence sequence) {
  Value value;
  value.sequence = std::make_shared<const Sequence>(std::move(sequence));
  node.set(0, std::move(value));
}

/// Returns a place in a sequence from input i, which may count from the end; `otherwise` if it is left out. The place
/// after the last element is allowed if `end` is set.
Result<std::size_t> place_of(Node& node, std::size_t i, std::size_t length, std::size_t otherwise, bool end) {
  if (!node.has(i)) {
    return otherwise;
  }
  POPRUN_ASSIGN(const auto given, node.integers_of(i));
  const auto n = static_cast<std::int64_t>(length);
  if (given.size() != 1 || given[0] < -n || given[0] >= n + (end ? 1 : 0)) {
    return node.wrong(fmt::format("needs a position in a sequence of {}", length));
  }
  return static_cast<std::size_t>(given[0] < 0 ? given[0] + n : given[0]);
}

Status construct(Node& node) {
  Sequence sequence;
  for (std::size_t i = 0; i < node.inputs(); ++i) {
    sequence.push_back(node.value(i));
  }
  set_sequence(node, std::move(sequence));
  return {};
}

Status insert(Node& node) {
  if (node.value(1).sequence != nullptr) {
    return node.wrong("needs a tensor to insert");
  }
  POPRUN_ASSIGN(Sequence sequence, sequence_of(node));
  POPRUN_ASSIGN(const std::size_t at, place_of(node, 2, sequence.size(), sequence.size(), /*end=*/true));
  sequence.insert(sequence.begin() + static_cast<std::ptrdiff_t>(at), node.value(1));
  set_sequence(node, std::move(sequence));
  return {};
}

Status erase(Node& node) {
  POPRUN_ASSIGN(Sequence sequence, sequence_of(node));
  if (sequence.empty()) {
    return node.wrong("needs a sequence that is not empty");
  }
  POPRUN_ASSIGN(const std::size_t at, place_of(node, 1, sequence.size(), sequence.size() - 1, /*end=*/false));
  sequence.erase(sequence.begin() + static_cast<std::ptrdiff_t>(at));
  set_sequence(node, std::move(sequence));
  return {};
}

Status at(Node& node) {
  POPRUN_ASSIGN(const Sequence sequence, sequence_of(node));
  POPRUN_ASSIGN(const std::size_t place, place_of(node, 1, sequence.size(), 0, /*end=*/false));
  node.scope().values[node.label()] = sequence[place];
  return {};
}

Status length(Node& node) {
  POPRUN_ASSIGN(const Sequence sequence, sequence_of(node));
  node.set(0, Constant::of_integers({static_cast<std::int64_t>(sequence.size())}, {}));
  return {};
}

/// Joins the elements along an axis, which with new_axis = 1 is added first.
Status join(Node& node) {
  POPRUN_ASSIGN(const Sequence sequence, sequence_of(node));
  if (sequence.empty()) {
    return node.unsupported("a tensor without elements, from an empty sequence");
  }
  const bool stacks = node.integer("new_axis", 0) != 0;
  std::vector<TensorId> parts;
  std::int64_t axis = 0;
  for (const Value& value : sequence) {
    POPRUN_ASSIGN(TensorId part, node.on_device(value));
    Shape shape = node.type(part).shape;
    POPRUN_ASSIGN(const std::size_t place, normal_axis(node.integer("axis", 0), shape.size() + (stacks ? 1 : 0)));
    axis = static_cast<std::int64_t>(place);
    if (stacks) {
      shape.insert(shape.begin() + axis, 1);
      POPRUN_ASSIGN(part, node.reshape(part, shape));
    }
    parts.push_back(part);
  }
  TensorId y = parts[0];
  if (parts.size() > 1) {
    POPRUN_ASSIGN(y, node.add("concat", parts, {{"axis", axis}}));
  }
  node.set(0, y, sequence[0].element);
  return {};
}

/// Splits x along an axis into parts of one row each, without the axis unless keepdims = 1, or of the given sizes.
Status split(Node& node) {
  const Shape s = node.shape(0);
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", 0), s.size()));
  const bool drops = !node.has(1) && node.integer("keepdims", 1) == 0;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(s[axis]), 1);
  if (node.has(1)) {
    POPRUN_ASSIGN(sizes, node.integers_of(1));
    if (node.shape(1).empty()) {  // A single number: the size of all parts but the last, which may be smaller.
      const std::int64_t each = sizes[0];
      if (each < 1) {
        return node.wrong(fmt::format("cannot split into parts of {}", each));
      }
      sizes.assign(static_cast<std::size_t>(s[axis] / each), each);
      if (s[axis] % each != 0) {
        sizes.push_back(s[axis] % each);
      }
    }
  }
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  Sequence sequence;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    if (size < 1 || size > s[axis] - begin) {
      return node.wrong("needs parts of at least one row that add up to the size of the axis");
    }
    POPRUN_ASSIGN(TensorId part, node.slice(x, static_cast<std::int64_t>(axis), begin, size));
    begin += size;
    if (drops) {
      Shape shape = s;
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
      POPRUN_ASSIGN(part, node.reshape(part, shape));
    }
    Value value;
    value.element = node.element(0);
    value.tensor = part;
    sequence.push_back(std::move(value));
  }
  if (begin != s[axis]) {
    return node.wrong("needs parts of at least one row that add up to the size of the axis");
  }
  set_sequence(node, std::move(sequence));
  return {};
}

Status has_element(Node& node) {
  Constant y = Constant::of_integers({node.has(0) ? 1 : 0}, {});
  y.element = ::onnx::TensorProto::BOOL;
  node.set(0, std::move(y));
  return {};
}

Status get_element(Node& node) {
  node.pass(0, 0);
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"SequenceConstruct", 1, construct},
          {"SequenceEmpty", 0,
           [](Node& node) -> Status {
             set_sequence(node, {});
             return {};
           }},
          {"SequenceInsert", 2, insert},
          {"SequenceErase", 1, erase},
          {"SequenceAt", 2, at},
          {"SequenceLength", 1, length},
          {"ConcatFromSequence", 1, join},
          {"SplitToSequence", 1, split},
          {"OptionalHasElement", 0, has_element},
          {"OptionalGetElement", 1, get_element}};
}

}  // namespace nodes::sequences
}  // namespace poprun::onnx_import
