#include <algorithm>
#include <iterator>

#include "replica/compiler/job/pass.h"
#include "replica/machine/operations.h"
#include "replica/program/host_contract.h"

/// Replaces the initialisers of weights and constants with writes from the host, except for tensors in
/// CompileOptions::initialised_here. Weights that may be off-chip or sharded are sent one by one.
namespace poprun::passes::initial_weights {
namespace {

constexpr std::string_view kName = "initial-weights";

bool applies(const CompileOptions& options) {
  return options.initial_weights_from_host;
}

bool stays(const CompileOptions& options, const Graph& graph, TensorId id) {
  return options.initialised_here.contains(graph.tensor(id).name);
}

/// Returns one operation for all of the stream's tensors or, if `one_by_one`, one operation for each.
std::vector<Operation> operations_of(const StreamIn& weights, bool one_by_one) {
  if (!one_by_one) {
    return {weights.operation()};
  }
  std::vector<Operation> operations;
  for (std::size_t k = 0; k < weights.tensors.size(); ++k) {
    operations.push_back(StreamIn{weights.stream, {weights.tensors[k]}, {static_cast<std::int64_t>(k)}}.operation());
  }
  return operations;
}

Status run(const CompileOptions& options, Job& job) {
  auto& operations = job.graph.at(job.graph.load()).operations;
  std::set<TensorId> initialised;
  for (const Operation& operation : operations) {
    if (Initialise::is(operation)) {
      initialised.insert(operation.outputs[0]);
    }
  }
  StreamIn weights{name_of(JobStream::kWeights),
                   tensors_by_name(job.graph, {Role::kParameter, Role::kBuffer, Role::kConstant})};
  std::erase_if(weights.tensors,
                [&](TensorId id) { return !initialised.contains(id) || stays(options, job.graph, id); });
  if (weights.tensors.empty()) {
    return {};  // The host writes no weights.
  }
  const std::set<TensorId> written(weights.tensors.begin(), weights.tensors.end());
  std::erase_if(operations, [&written](const Operation& operation) { return written.contains(operation.outputs[0]); });
  // The host's weights come first, because master copies are made from them.
  std::vector<Operation> streams = operations_of(weights, streams_weights_one_by_one(options));
  operations.insert(operations.begin(), std::make_move_iterator(streams.begin()),
                    std::make_move_iterator(streams.end()));
  return {};
}

/// Checks that the host writes every parameter and buffer that does not keep its initialiser, and nothing else except
/// constants. It must write them in order, before anything else is set up. Every tensor must be set up as often as it
/// was before the pass.
Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  const Graph& graph = after.graph;
  const auto& operations = graph.at(graph.load()).operations;
  std::set<TensorId> from_host;
  std::int64_t field = 0;
  for (const Operation& operation : operations) {
    const std::optional<StreamIn> stream = StreamIn::from(operation);
    if (!stream) {
      break;
    }
    for (const std::int64_t named : stream->fields) {
      if (named != field++) {
        return pass_bug(kName, graph, stream->tensors[0], "is streamed out of order");
      }
    }
    from_host.insert(stream->tensors.begin(), stream->tensors.end());
  }
  const Writers now(graph, graph.load());
  const Writers then(before.graph, before.graph.load());
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    const TensorId id{t};
    const Role role = graph.tensor(id).role;
    const bool weight = (role == Role::kParameter || role == Role::kBuffer) &&
                        !options.initialised_here.contains(graph.tensor(id).name);
    if (from_host.contains(id) != weight && role != Role::kConstant) {
      return pass_bug(kName, graph, id, weight ? "does not come from the host" : "must not come from the host");
    }
    if (now.of(id).size() != then.of(id).size()) {
      return pass_bug(kName, graph, id, "is not set up as often as before");
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify};
}

}  // namespace poprun::passes::initial_weights
