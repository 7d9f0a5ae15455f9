#include <algorithm>

#include "replica/compiler/passes/pass.h"
#include "replica/machine/stream_in.h"
#include "replica/program/host_contract.h"

/// Lets the host write the weights instead of their initialisers.
namespace poprun {
namespace {

constexpr std::string_view kName = "initial-weights";

bool applies(const CompileOptions& options) {
  return options.initial_weights_from_host;
}

Status run(const CompileOptions& /*options*/, Job& job) {
  const std::vector<TensorId> weights =
      tensors_by_name(job.graph, {Role::kParameter, Role::kBuffer, Role::kConstant});
  auto& operations = job.graph.at(job.graph.load()).operations;
  const std::set<TensorId> written(weights.begin(), weights.end());
  std::erase_if(operations, [&written](const Operation& operation) {
    return written.contains(operation.outputs[0]);
  });
  // First: master copies are made from them.
  operations.insert(operations.begin(),
                    StreamIn{name_of(JobStream::kWeights), weights}.operation());
  return {};
}

/// Of what outlives the job the host writes all, before anything else is set up, and nothing else
/// does.
Status verify(const CompileOptions& /*options*/, const Job& /*before*/, const Job& after) {
  const Graph& graph = after.graph;
  const Operation& first = graph.at(graph.load()).operations.front();
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    const Role role = graph.tensors()[t].role;
    const bool weight =
        role == Role::kParameter || role == Role::kBuffer || role == Role::kConstant;
    const bool from_host = std::ranges::find(first.outputs, TensorId{t}) != first.outputs.end();
    if (weight != from_host || (weight && writers(graph, graph.load(), TensorId{t}).size() != 1)) {
      return pass_bug(kName, graph, TensorId{t}, "is not set up as it must be");
    }
  }
  return {};
}

}  // namespace

Pass initial_weights_pass() {
  return {kName, applies, run, verify};
}

}  // namespace poprun
