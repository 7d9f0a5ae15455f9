#include <algorithm>

#include <fmt/format.h>

#include "replica/models/onnx/node.h"

/// The attributes of a node.
namespace poprun::onnx_import {

const ::onnx::AttributeProto* Node::attribute(const std::string& name) const {
  const auto& all = proto_.attribute();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& attribute) { return attribute.name() == name; });
  return found == all.end() ? nullptr : &*found;
}

bool Node::has_attribute(const std::string& name) const {
  return attribute(name) != nullptr;
}

std::int64_t Node::integer(const std::string& name, std::int64_t otherwise) const {
  const auto* found = attribute(name);
  return found != nullptr ? found->i() : otherwise;
}

double Node::real(const std::string& name, double otherwise) const {
  const auto* found = attribute(name);
  return found != nullptr ? static_cast<double>(found->f()) : otherwise;
}

std::string Node::text(const std::string& name, const std::string& otherwise) const {
  const auto* found = attribute(name);
  return found != nullptr ? found->s() : otherwise;
}

std::vector<std::int64_t> Node::integers(const std::string& name) const {
  const auto* found = attribute(name);
  return found != nullptr ? std::vector<std::int64_t>(found->ints().begin(), found->ints().end())
                          : std::vector<std::int64_t>{};
}

std::vector<float> Node::reals(const std::string& name) const {
  const auto* found = attribute(name);
  return found != nullptr ? std::vector<float>(found->floats().begin(), found->floats().end()) : std::vector<float>{};
}

const ::onnx::TensorProto* Node::tensor_attribute(const std::string& name) const {
  const auto* found = attribute(name);
  return found != nullptr && found->has_t() ? &found->t() : nullptr;
}

Result<std::vector<std::int64_t>> Node::sizes(const std::string& name, std::size_t count, std::int64_t least,
                                              std::int64_t otherwise) const {
  if (!has_attribute(name)) {
    return std::vector<std::int64_t>(count, otherwise);
  }
  auto values = integers(name);
  if (values.size() != count || std::ranges::any_of(values, [&](auto v) { return v < least || v > kMostElements; })) {
    return wrong(fmt::format("{} must contain {} numbers, each of them at least {}", name, count, least));
  }
  return values;
}

Result<std::optional<std::vector<std::int64_t>>> Node::integers_from(const std::string& attribute, std::size_t i) {
  if (has_attribute(attribute)) {
    return integers(attribute);
  }
  if (!has(i)) {
    return std::nullopt;
  }
  POPRUN_ASSIGN(auto values, integers_of(i));
  return values;
}

const ::onnx::GraphProto& Node::graph_attribute(const std::string& name) const {
  const auto* found = attribute(name);
  return found != nullptr ? found->g() : ::onnx::GraphProto::default_instance();
}

}  // namespace poprun::onnx_import
