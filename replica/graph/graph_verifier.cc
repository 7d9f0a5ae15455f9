#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "replica/graph/graph.h"

namespace poprun {
namespace {

// Kinds of operations, spelled as in machine/operations.h.
constexpr std::string_view kCopy = "copy";
constexpr std::string_view kAllGather = "all_gather";

/// Follows the operations as they run, through calls, and checks them against the tensors written so far.
class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), writers_(graph.tensors().size()) {}

  Status function(const Function& function) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        POPRUN_TRY(check(function, operation));
      }
    }
    return {};
  }

 private:
  /// Returns whether a tensor belongs to an outlined function, which writes it in each call.
  [[nodiscard]] bool is_of_outlined(TensorId id) const {
    return graph_.tensor(id).copy_of && graph_.tensor(id).name.starts_with(kOutlinedPrefix);
  }

  Status check(const Function& function, const Operation& operation) {
    const auto bug = [&](std::string_view what, TensorId id) {
      return fail(ErrorCode::kBug,
                  fmt::format("function {}: {} {} '{}'", function.name, operation.kind, what, graph_.tensor(id).name));
    };
    for (const TensorId id : operation.inputs) {
      if (writers_[index_of(id)] == nullptr) {
        return bug("reads the unwritten tensor", id);
      }
    }
    for (const TensorId id : operation.outputs) {
      const bool updates = std::ranges::find(operation.inputs, id) != operation.inputs.end();
      const Operation*& writer = writers_[index_of(id)];
      const Tensor& tensor = graph_.tensor(id);
      const bool comes_and_goes = tensor.residence || tensor.shard_of || tensor.is_remote() || is_of_outlined(id) ||
                                  operation.kind == kAllGather;
      const bool copies = operation.kind == kCopy &&
                          (writer == nullptr || writer->kind == kCopy || is_of_outlined(source_of(operation, id)) ||
                           copied_.contains({id, source_of(operation, id)}));
      if (writer != nullptr && writer != &operation && !updates && !copies && !comes_and_goes &&
          !operation.inputs.empty()) {
        return bug("rewrites the tensor", id);
      }
      writer = writer == nullptr ? &operation : writer;
    }
    if (operation.kind == kCopy) {
      for (std::size_t k = 0; k < operation.inputs.size() && k < operation.outputs.size(); ++k) {
        copied_.emplace(operation.inputs[k], operation.outputs[k]);
      }
    }
    const std::optional<Call> called = Call::from(operation);
    return called ? call(function, called->function) : Status{};
  }

  /// Returns the source from which a copy writes a tensor.
  static TensorId source_of(const Operation& copy, TensorId id) {
    const auto at = std::ranges::find(copy.outputs, id) - copy.outputs.begin();
    return at < std::ssize(copy.inputs) ? copy.inputs[static_cast<std::size_t>(at)] : id;
  }

  /// Checks each called function once, since its operations are the same in every call.
  Status call(const Function& caller, const std::string& name) {
    const Function* callee = find_function(graph_, name);
    if (callee == nullptr || callee == &caller) {
      return fail(
          ErrorCode::kBug,
          fmt::format("function {} calls '{}', which is undefined or the calling function itself", caller.name, name));
    }
    return called_.insert(callee).second ? function(*callee) : Status{};
  }

  const Graph& graph_;
  std::vector<const Operation*> writers_;           ///< For each tensor: its first writer, or null.
  std::set<std::pair<TensorId, TensorId>> copied_;  ///< Sources and destinations of copies.
  std::set<const Function*> called_;
};

}  // namespace

Status verify_graph(const Graph& graph) {
  const std::set<std::string> called = called_functions(graph);
  Verifier verifier(graph);
  for (const Function& function : graph.functions) {
    if (!called.contains(function.name)) {
      POPRUN_TRY(verifier.function(function));
    }
  }
  return {};
}

}  // namespace poprun
