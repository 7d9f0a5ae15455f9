#include "replica/models/onnx/functions.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <onnx/defs/schema.h>

#include "replica/base/text.h"
#include "replica/models/onnx/schemas.h"

namespace poprun::onnx_import {
namespace {

using ::onnx::AttributeProto;
using ::onnx::FunctionProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;

constexpr std::size_t kDeepest = 64;

void add_names(const GraphProto& graph, std::set<std::string>& names) {
  for (const auto& input : graph.input()) {
    names.insert(input.name());
  }
  for (const auto& tensor : graph.initializer()) {
    names.insert(tensor.name());
  }
  for (const NodeProto& node : graph.node()) {
    names.insert(node.output().begin(), node.output().end());
    for (const AttributeProto& attribute : node.attribute()) {
      add_names(attribute.g(), names);
    }
  }
}

/// Returns the opset of the default domain, or 0 if there is none.
template <typename Imports>
int opset_of(const Imports& imports) {
  int opset = 0;
  for (const auto& import : imports) {
    if (import.domain().empty() || import.domain() == "ai.onnx") {
      opset = static_cast<int>(import.version());
    }
  }
  return opset;
}

/// Returns the opset that introduced the definition that the operator has in `opset`, or 0 if the operator is unknown.
int since(const NodeProto& node, int opset) {
  const auto* schema = schemas().GetSchema(node.op_type(), opset, node.domain());
  return schema == nullptr ? 0 : schema->SinceVersion();
}

std::string inputs(int count) {
  return counted(static_cast<std::uint64_t>(count), "input");
}
std::string outputs(int count) {
  return counted(static_cast<std::uint64_t>(count), "output");
}

/// Maps the names and attributes in a function's body to what they stand for in one call.
struct Call {
  int opset = 0;                                     ///< Opset of the body.
  std::string prefix;                                ///< Empty in the model's own graph.
  std::map<std::string, std::string> names;          ///< Maps the function's inputs and outputs to the caller's names.
  std::map<std::string, AttributeProto> attributes;  ///< Attributes that the call sets.

  [[nodiscard]] std::string name_of(const std::string& name) const {
    const auto found = names.find(name);
    return found != names.end() ? found->second : name.empty() ? name : prefix + name;
  }
};

/// Refuses fields that later ONNX versions added to FunctionProto. Our version keeps them as unknown fields.
Status check_known(const FunctionProto& function) {
  constexpr int kAttributeDefaults = 11;
  constexpr int kValueInfo = 12;
  constexpr int kOverload = 13;
  constexpr int kMetadata = 14;
  const auto& fields = function.unknown_fields();
  for (int i = 0; i < fields.field_count(); ++i) {
    const int number = fields.field(i).number();
    if (number == kValueInfo || number == kMetadata) {  // They do not change results.
      continue;
    }
    const std::string what = number == kAttributeDefaults ? "attribute defaults"
                             : number == kOverload        ? "an overload"
                                                          : fmt::format("field {}", number);
    return fail(ErrorCode::kUsage, fmt::format("function '{}': not supported: {}; export the model with its functions "
                                               "inlined",
                                               function.name(), what));
  }
  return {};
}

class Expansion {
 public:
  explicit Expansion(const ModelProto& model) : opset_(opset_of(model.opset_import())) {
    for (const FunctionProto& function : model.functions()) {
      functions_[{function.domain(), function.name()}] = &function;
    }
    add_names(model.graph(), taken_);
  }

  Status expand(const Call& call, const Nodes& from, Nodes& to) {
    for (const NodeProto& node : from) {
      POPRUN_ASSIGN(NodeProto copy, renamed(call, node));
      const auto found = functions_.find({copy.domain(), copy.op_type()});
      POPRUN_TRY(count_one());
      if (found != functions_.end()) {
        POPRUN_TRY(inline_call(copy, *found->second, to));
        continue;
      }
      if (call.opset != opset_ && copy.domain().empty() && since(copy, call.opset) != since(copy, opset_)) {
        return fail(ErrorCode::kUsage,
                    fmt::format("{} '{}': not supported: a function of opset {} in a model of "
                                "opset {}, which defines {} differently; export both with the same opset",
                                copy.op_type(), copy.name(), call.opset, opset_, copy.op_type()));
      }
      *to.Add() = std::move(copy);
    }
    return {};
  }

 private:
  /// Counts a new node or a call. Calls count too, since they can multiply even if the functions have no nodes.
  Status count_one() {
    if (++nodes_ > kMostNodes) {
      return fail(
          ErrorCode::kUsage,
          fmt::format("its functions expand to more than {} nodes and calls, the supported maximum", kMostNodes));
    }
    return {};
  }

  Result<NodeProto> renamed(const Call& call, const NodeProto& node) {
    NodeProto copy = node;
    if (!call.prefix.empty()) {
      copy.set_name(call.prefix + node.name());
    }
    for (std::string& name : *copy.mutable_input()) {
      name = call.name_of(name);
    }
    for (std::string& name : *copy.mutable_output()) {
      name = call.name_of(name);
    }
    copy.clear_attribute();
    for (const AttributeProto& attribute : node.attribute()) {
      POPRUN_TRY(add_attribute(call, attribute, copy));
    }
    return copy;
  }

  /// Adds an attribute, unless it refers to one that the call omits; the default then applies.
  Status add_attribute(const Call& call, const AttributeProto& attribute, NodeProto& node) {
    if (!attribute.ref_attr_name().empty()) {
      if (const auto given = call.attributes.find(attribute.ref_attr_name()); given != call.attributes.end()) {
        AttributeProto& added = *node.add_attribute();
        added = given->second;
        added.set_name(attribute.name());
      }
      return {};
    }
    AttributeProto& added = *node.add_attribute();
    added = attribute;
    if (!attribute.has_g()) {
      return {};
    }
    GraphProto& graph = *added.mutable_g();
    for (auto& input : *graph.mutable_input()) {
      input.set_name(call.name_of(input.name()));
    }
    for (auto& tensor : *graph.mutable_initializer()) {
      tensor.set_name(call.name_of(tensor.name()));
    }
    for (auto& output : *graph.mutable_output()) {
      output.set_name(call.name_of(output.name()));
    }
    graph.clear_node();
    return expand(call, attribute.g().node(), *graph.mutable_node());
  }

  Status inline_call(const NodeProto& node, const FunctionProto& function, Nodes& to) {
    if (!under_way_.insert(&function).second) {
      return fail(ErrorCode::kData, fmt::format("function '{}' calls itself", function.name()));
    }
    if (under_way_.size() > kDeepest) {
      return fail(ErrorCode::kUsage,
                  fmt::format("function '{}' is nested more than {} functions deep", function.name(), kDeepest));
    }
    if (node.input_size() > function.input_size() || node.output_size() > function.output_size()) {
      return fail(ErrorCode::kData,
                  fmt::format("function '{}' has {} and {}, but is called with {} and {}", function.name(),
                              inputs(function.input_size()), outputs(function.output_size()), inputs(node.input_size()),
                              outputs(node.output_size())));
    }
    const Call call = call_of(node, function);
    POPRUN_TRY(expand(call, function.node(), to));
    POPRUN_TRY(add_passed_on(node, function, call, to));
    under_way_.erase(&function);
    return {};
  }

  Call call_of(const NodeProto& node, const FunctionProto& function) {
    Call call;
    call.opset = opset_of(function.opset_import());
    call.prefix = free_prefix(node.name().empty() ? function.name() : node.name());
    for (const AttributeProto& attribute : node.attribute()) {
      call.attributes[attribute.name()] = attribute;
    }
    for (int k = 0; k < node.output_size(); ++k) {
      if (!node.output(k).empty()) {
        call.names[function.output(k)] = node.output(k);
      }
    }
    // Inputs that the call omits are also omitted from the function's nodes.
    for (int i = 0; i < function.input_size(); ++i) {
      call.names[function.input(i)] = i < node.input_size() ? node.input(i) : "";
    }
    return call;
  }

  /// Adds an Identity for each output of the function that is also an input, since no node of the function computes it.
  Status add_passed_on(const NodeProto& node, const FunctionProto& function, const Call& call, Nodes& to) {
    const std::set<std::string> inputs(function.input().begin(), function.input().end());
    for (int k = 0; k < node.output_size(); ++k) {
      if (inputs.contains(function.output(k)) && !node.output(k).empty()) {
        POPRUN_TRY(count_one());
        NodeProto& identity = *to.Add();
        identity.set_op_type("Identity");
        identity.set_name(call.prefix + function.output(k));
        identity.add_input(call.name_of(function.output(k)));
        identity.add_output(node.output(k));
      }
    }
    return {};
  }

  /// Returns "name/", with a number added to `name` if a name already in use begins with that prefix.
  std::string free_prefix(const std::string& name) {
    std::string prefix = name + "/";
    for (std::size_t n = 2;; ++n) {
      const auto next = taken_.lower_bound(prefix);
      if (next == taken_.end() || !next->starts_with(prefix)) {
        break;
      }
      prefix = fmt::format("{}~{}/", name, n);
    }
    taken_.insert(prefix);
    return prefix;
  }

  int opset_;
  std::map<std::pair<std::string, std::string>, const FunctionProto*> functions_;
  std::set<std::string> taken_;  ///< Names of values, and prefixes of calls.
  std::set<const FunctionProto*> under_way_;
  int nodes_ = 0;  ///< Number of nodes and calls so far.
};

}  // namespace

Status expand_functions(ModelProto& model) {
  if (model.functions().empty()) {
    return {};
  }
  for (const FunctionProto& function : model.functions()) {
    POPRUN_TRY(check_known(function));
  }
  Nodes nodes;
  const Call graph{.opset = opset_of(model.opset_import()), .prefix = {}, .names = {}, .attributes = {}};
  POPRUN_TRY(Expansion(model).expand(graph, model.graph().node(), nodes));
  model.mutable_graph()->mutable_node()->Swap(&nodes);
  model.clear_functions();
  return {};
}

}  // namespace poprun::onnx_import
