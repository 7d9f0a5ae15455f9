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

/// In the backward pass, where `tensor` was made.
Origin backward_of(const Job& job, TensorId tensor) {
  Origin origin = Writers(job.graph, job.training->micro_batch).of(tensor).front()->origin;
  origin.direction = Direction::kBackward;
  return origin;
}

/// What the loss is multiplied by.
TensorId loss_scale(const CompileOptions& options, Job& job, Builder& body,
                    const std::string& name) {
  if (job.training->scalars.loss_scale) {
    return *job.training->scalars.loss_scale;
  }
  body.set_origin(backward_of(job, job.training->loss));
  const TensorId scale =
      body.add_one("fill", {}, {{"shape", Shape{}}, {"value", options.loss_scaling}}, name);
  job.graph.set_role(scale, Role::kMetric);
  return scale;
}

/// The loss's terms, each times the scale and its labels by those of a mean micro-batch. Where all
/// micro-batches have equally many that is 1, exactly.
std::vector<ScaledLoss> weighted_terms(const CompileOptions& options, Job& job, Builder& body) {
  const TrainingStep& step = *job.training;
  const TensorId scale =
      loss_scale(options, job, body, job.graph.tensor(step.loss).name + ".scale");
  std::vector<ScaledLoss> losses;
  for (const LossTerm& term : step.terms) {
    const std::string name = job.graph.tensor(term.loss).name;
    body.set_origin(backward_of(job, term.loss));
    const TensorId weight = body.add_one(
        "div", {term.count, step.scalars.mean_labels.at(term.labels)}, {}, name + ".weight");
    const TensorId gradient = body.add_one("mul", {scale, weight}, {}, name + ".gradient");
    job.graph.set_role(weight, Role::kMetric);
    job.graph.set_role(gradient, Role::kMetric);
    losses.push_back({term.loss, gradient});
  }
  return losses;
}

Status run(const CompileOptions& options, Job& job) {
  TrainingStep& step = *job.training;
  Builder body(job.graph, step.micro_batch, "");
  std::vector<ScaledLoss> losses;
  if (options.weighted_by_labels) {
    losses = weighted_terms(options, job, body);
  } else {
    const std::string name = job.graph.tensor(step.loss).name + ".gradient";
    losses = {{step.loss, loss_scale(options, job, body, name)}};
  }
  POPRUN_TRY(body.status());
  POPRUN_ASSIGN(const std::set<TensorId> frozen, frozen_parameters(job.graph, options.frozen));
  POPRUN_ASSIGN(step.gradients, differentiate(body, losses, frozen));
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
