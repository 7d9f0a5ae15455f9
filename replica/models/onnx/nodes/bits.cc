#include <optional>

#include <fmt/format.h>

#include "replica/models/onnx/node.h"

/// Functions of the bits of integers: BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot and BitShift.
namespace poprun::onnx_import::nodes::bits {
namespace {

using Proto = ::onnx::TensorProto;

/// Returns the bits that an element has, or nothing if the device cannot represent all values of its type.
std::optional<std::int64_t> mask_of(Element element) {
  switch (element) {
    case Proto::UINT8:
      return 0xFF;
    case Proto::UINT16:
      return 0xFFFF;
    case Proto::INT8:
    case Proto::INT16:
    case Proto::INT32:
    case Proto::INT64:
      return -1;
    default:
      return std::nullopt;
  }
}

Result<TensorId> number(Node& node, std::int64_t value, const char* suffix) {
  return node.device_constant(Constant::of_integers({value}, {}), suffix);
}

Status combine(Node& node, const std::string& kind, std::int64_t (*function)(std::int64_t, std::int64_t)) {
  if (!is_integer(node.element(0)) || !is_integer(node.element(1))) {
    return node.wrong("needs integers");
  }
  if (node.folds()) {
    POPRUN_ASSIGN(Constant y, folded(*node.value(0).constant, *node.value(1).constant, {function, nullptr, nullptr}));
    node.set(0, std::move(y));
    return {};
  }
  POPRUN_ASSIGN(const TensorId a, node.row_major(0));
  POPRUN_ASSIGN(const TensorId b, node.row_major(1));
  return node.set_result(node.add(kind, {a, b}), node.element(0));
}

Status invert(Node& node) {
  const auto mask = mask_of(node.element(0));
  if (!mask) {
    return node.unsupported(
        fmt::format("elements of type {}; available: uint8, uint16, int8 to int64", element_name(node.element(0))));
  }
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  POPRUN_ASSIGN(const TensorId ones, number(node, *mask, "ones"));
  return node.set_result(node.add("bit_xor", {x, ones}), node.element(0));
}

/// Moves the bits of unsigned integers. Bits shifted out of a narrow type are lost.
Status shift(Node& node) {
  const std::string direction = node.text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    return node.wrong("needs direction = LEFT or RIGHT");
  }
  POPRUN_ASSIGN(const TensorId a, node.row_major(0));
  POPRUN_ASSIGN(const TensorId b, node.row_major(1));
  POPRUN_ASSIGN(TensorId y, node.add(direction == "LEFT" ? "shift_left" : "shift_right", {a, b}));
  if (const auto mask = mask_of(node.element(0)); mask && *mask > 0 && direction == "LEFT") {
    POPRUN_ASSIGN(const TensorId ones, number(node, *mask, "ones"));
    POPRUN_ASSIGN(y, node.add("bit_and", {y, ones}));
  }
  node.set(0, y, node.element(0));
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"BitwiseAnd", 2,
           [](Node& node) { return combine(node, "bit_and", [](std::int64_t a, std::int64_t b) { return a & b; }); }},
          {"BitwiseOr", 2,
           [](Node& node) { return combine(node, "bit_or", [](std::int64_t a, std::int64_t b) { return a | b; }); }},
          {"BitwiseXor", 2,
           [](Node& node) { return combine(node, "bit_xor", [](std::int64_t a, std::int64_t b) { return a ^ b; }); }},
          {"BitwiseNot", 1, invert},
          {"BitShift", 2, shift}};
}

}  // namespace poprun::onnx_import::nodes::bits
