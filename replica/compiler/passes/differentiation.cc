#include <algorithm>
#include <iterator>
#include <map>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "replica/compiler/passes/pass.h"

/// Behind the forward pass of a micro-batch its backward pass.
namespace poprun {
namespace {

constexpr std::string_view kName = "differentiation";

/// Parameters that are not trained. Errors: kUsage, the pattern matches none, or all.
Result<std::set<TensorId>> frozen_parameters(const Graph& graph, const std::string& text) {
  std::set<TensorId> frozen;
  const auto parameters = tensors_by_name(graph, {Role::kParameter});
  if (text.empty() || parameters.empty()) {
    return frozen;
  }
  const std::regex pattern(text);
  std::ranges::copy_if(parameters, std::inserter(frozen, frozen.end()), [&](TensorId id) {
    return std::regex_search(graph.tensor(id).name, pattern);
  });
  const auto buffers = tensors_by_name(graph, {Role::kBuffer});
  if (frozen.empty() && std::ranges::any_of(buffers, [&](TensorId id) {
        return std::regex_search(graph.tensor(id).name, pattern);
      })) {
    return frozen;  // Statistics of batch norms alone.
  }
  if (frozen.empty() || frozen.size() == parameters.size()) {
    return fail(ErrorCode::kUsage,
                fmt::format("training.frozen = {} matches {} of the model's {} weights, such as "
                            "'{}'; it must match some, but not all",
                            text, frozen.empty() ? "none" : "all", parameters.size(),
                            graph.tensor(parameters.at(0)).name));
  }
  return frozen;
}

Status run(const CompileOptions& options, Job& job) {
  TrainingStep& step = *job.training;
  Builder body(job.graph, step.micro_batch, "");
  TensorId scale{};
  if (step.scalars.loss_scale) {
    scale = *step.scalars.loss_scale;
  } else {
    Origin origin = Writers(job.graph, step.micro_batch).of(step.loss).front()->origin;
    origin.direction = Direction::kBackward;
    body.set_origin(origin);
    scale = body.add_one("fill", {}, {{"shape", Shape{}}, {"value", options.loss_scaling}},
                         job.graph.tensor(step.loss).name + ".gradient");
    job.graph.set_role(scale, Role::kMetric);
  }
  POPRUN_ASSIGN(const std::set<TensorId> frozen, frozen_parameters(job.graph, options.frozen));
  POPRUN_ASSIGN(step.gradients, differentiate(body, step.loss, scale, frozen));
  return body.status();
}

bool same(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.inputs == b.inputs && a.outputs == b.outputs &&
         a.attributes == b.attributes;
}

/// The number of operations that name each tensor.
std::map<TensorId, std::size_t> count_uses(const std::vector<Operation>& operations) {
  std::map<TensorId, std::size_t> uses;
  for (const Operation& operation : operations) {
    for (const TensorId id : std::set(operation.inputs.begin(), operation.inputs.end())) {
      ++uses[id];
    }
  }
  return uses;
}

/// The forward pass is as it was, and every gradient has its parameter's type, was made after it,
/// and is of a parameter that is not frozen and has no more gradients than uses.
Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  const Graph& graph = after.graph;
  const Place place = after.training->micro_batch;
  const std::vector<Operation>& forward = before.graph.at(place).operations;
  const std::vector<Operation>& all = graph.at(place).operations;
  if (all.size() < forward.size() ||
      !std::equal(forward.begin(), forward.end(), all.begin(), same)) {
    return pass_bug(kName, graph, after.training->loss, "has a different forward pass");
  }
  const Writers made(graph, place);
  const auto is_of_before = [&before](TensorId id) {
    return index_of(id) < before.graph.tensors().size();
  };
  const std::regex frozen(options.frozen);
  std::map<TensorId, std::size_t> uses = count_uses(forward);
  for (const auto& [parameter, gradient] : after.training->gradients) {
    const std::string& name = graph.tensor(parameter).name;
    if (graph.tensor(parameter).role != Role::kParameter || uses[parameter]-- == 0) {
      return pass_bug(kName, graph, parameter,
                      "is not a parameter, or has more gradients than uses");
    }
    if (!options.frozen.empty() && std::regex_search(name, frozen)) {
      return pass_bug(kName, graph, parameter, "is frozen and has a gradient");
    }
    if (graph.tensor(gradient).type != graph.tensor(parameter).type || is_of_before(gradient) ||
        made.of(gradient).empty()) {
      return pass_bug(kName, graph, gradient,
                      "is not produced by the backward pass in its parameter's type");
    }
  }
  return {};
}

}  // namespace

Pass differentiation_pass() {
  return {kName, in_training, run, verify};
}

}  // namespace poprun
