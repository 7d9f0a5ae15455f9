#include "replica/compiler/arithmetic/differentiation.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "replica/base/pattern.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/planner/product_options.h"
#include "replica/machine/operations.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/shaped.h"

namespace poprun {
namespace {

/// Returns the unfrozen parameters, and the tensors whose derivatives with respect to these parameters may not be 0.
std::set<TensorId> dependent_on_parameters(const Graph& graph, const std::vector<Operation>& operations,
                                           const std::set<TensorId>& frozen) {
  std::set<TensorId> dependent;
  const auto depends = [&](TensorId id) { return dependent.contains(id); };
  for (const Operation& operation : operations) {
    for (const TensorId input : operation.inputs) {
      if (graph.tensor(input).role == Role::kParameter && !frozen.contains(input)) {
        dependent.insert(input);
      }
    }
    const Operator* op = find_operator(operation.kind);
    const bool passes = op == nullptr || op->gradient != flat;
    if (passes && std::ranges::any_of(operation.inputs, depends)) {
      dependent.insert(operation.outputs.begin(), operation.outputs.end());
    }
  }
  return dependent;
}

class ReverseMode final : public Differentiator {
 public:
  ReverseMode(Builder& builder, std::vector<Operation> forward, const std::set<TensorId>& frozen)
      : builder_(builder),
        forward_(std::move(forward)),
        dependent_(dependent_on_parameters(builder.graph(), forward_, frozen)) {}

  Status run(const std::vector<ScaledLoss>& losses) {
    for (const auto& [loss, scale] : losses) {
      gradients_[loss] = scale;
    }
    for (auto it = forward_.rbegin(); it != forward_.rend(); ++it) {
      current_ = &*it;
      const bool reached =
          std::ranges::any_of(current_->outputs, [this](TensorId id) { return gradients_.contains(id); });
      const bool wanted =
          std::ranges::any_of(current_->inputs, [this](TensorId id) { return dependent_.contains(id); });
      if (reached && wanted) {
        POPRUN_TRY(visit());
      }
    }
    name_totals();
    return builder_.status();
  }

  [[nodiscard]] std::vector<ParameterGradient> parameter_gradients() const {
    std::vector<ParameterGradient> found;
    for (const auto& [parameter, uses] : by_use_) {
      for (const Use& use : uses) {
        found.push_back({parameter, use.gradient});
      }
    }
    const Graph& graph = builder_.graph();
    std::ranges::stable_sort(found, {}, [&graph](const ParameterGradient& p) -> const std::string& {
      return graph.tensor(p.parameter).name;
    });
    return found;
  }

  [[nodiscard]] const Operation& operation() const override { return *current_; }
  [[nodiscard]] const TensorType& type(TensorId id) const override { return builder_.type(id); }

  [[nodiscard]] bool wants(std::size_t input) const override { return dependent_.contains(current_->inputs[input]); }

  TensorId output_gradient(std::size_t output) override {
    const TensorId tensor = current_->outputs[output];
    const auto found = gradients_.find(tensor);
    if (found != gradients_.end()) {
      return found->second;
    }
    return gradients_[tensor] = zeros(tensor);
  }

  void set_input_gradient(std::size_t input, TensorId gradient) override {
    if (!wants(input)) {
      return;
    }
    const TensorId tensor = current_->inputs[input];
    if (TensorId* so_far = gradient_so_far(tensor)) {
      *so_far = contributed(tensor, builder_.add_one(kinds::kAdd, {*so_far, gradient}, {}, name_of(tensor)));
    } else if (is_parameter(tensor)) {
      by_use_[tensor].push_back({current_, gradient});
    } else {
      gradients_.emplace(tensor, gradient);
    }
  }

  /// Returns nothing for a parameter, because its uses have separate gradients.
  std::optional<TensorId> take_input_gradient(std::size_t input) override {
    const TensorId tensor = current_->inputs[input];
    const auto found = gradients_.find(tensor);
    if (!wants(input) || is_parameter(tensor) || found == gradients_.end()) {
      return std::nullopt;
    }
    const TensorId gradient = found->second;
    gradients_.erase(found);
    return gradient;
  }

  std::vector<TensorId> add(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                            const std::vector<std::size_t>& of_input) override {
    std::vector<std::string> names;
    names.reserve(of_input.size());
    for (const std::size_t input : of_input) {
      names.push_back(name_of(current_->inputs[input]));
    }
    inherit_options(kind, attributes);
    const std::vector<TensorId> added = builder_.add(std::move(kind), std::move(inputs), std::move(attributes), names);
    for (std::size_t k = 0; k < added.size(); ++k) {
      contributed(current_->inputs[of_input[k]], added[k]);
    }
    return added;
  }

 private:
  /// The part of a parameter's gradient that comes from one operation that reads the parameter.
  struct Use {
    const Operation* operation;
    TensorId gradient;
  };

  /// Copies the planner's options from a forward product to a product that computes its gradient.
  void inherit_options(const std::string& kind, Attributes& attributes) const {
    const Operator* op = find_operator(kind);
    attributes = without_options(attributes);
    if (op != nullptr && op->contraction != nullptr) {
      set_options(attributes,
                  {.permille = permille_of(current_->attributes), .partials = partials_of(current_->attributes)});
    }
  }

  [[nodiscard]] bool is_parameter(TensorId tensor) const {
    return builder_.graph().tensor(tensor).role == Role::kParameter;
  }

  /// Returns the gradient to which the next contribution is added, or null if there is none. For a parameter, only a
  /// gradient from the current operation counts.
  TensorId* gradient_so_far(TensorId tensor) {
    if (is_parameter(tensor)) {
      std::vector<Use>& uses = by_use_[tensor];
      return uses.empty() || uses.back().operation != current_ ? nullptr : &uses.back().gradient;
    }
    const auto found = gradients_.find(tensor);
    return found == gradients_.end() ? nullptr : &found->second;
  }

  /// Adds the gradient of a gather_rows: every replica's loss depends on the gathered rows, so that the gradient of a
  /// replica's own rows is a sum over all replicas.
  Status visit_gather() {
    const TensorId own = current_->inputs[0];
    const TensorId all = output_gradient(0);
    const std::int64_t replicas = type(all).shape.at(0) / type(own).shape.at(0);
    set_input_gradient(0, contributed(own, builder_.scatter_rows(all, replicas, name_of(own))));
    return builder_.status();
  }

  Status visit() {
    if (GatherRows::is(*current_)) {
      set_backward_origin();
      return visit_gather();
    }
    const Operator* op = find_operator(current_->kind);
    if (op == nullptr || op->gradient == nullptr) {
      return fail(ErrorCode::kUsage, fmt::format("operation '{}' ({}) has no gradient rule, but the loss depends on "
                                                 "a parameter through this operation",
                                                 builder_.graph().tensor(current_->outputs[0]).name, current_->kind));
    }
    set_backward_origin();
    op->gradient(*this);
    return builder_.status();
  }

  void set_backward_origin() {
    builder_.set_origin(
        {.layer = current_->origin.layer, .stage = current_->origin.stage, .direction = Direction::kBackward});
  }

  /// Gives the name `x.gradient` to the sum of a gradient's contributions, rather than to the first of them. For a
  /// parameter, the gradient of its last use keeps the name until the gradients of its uses are added up.
  void name_totals() {
    for (const auto& [tensor, gradient] : gradients_) {
      name_total(tensor, gradient);
    }
    for (const auto& [parameter, uses] : by_use_) {
      name_total(parameter, uses.front().gradient);
    }
  }

  void name_total(TensorId tensor, TensorId gradient) {
    const std::vector<TensorId>& all = contributions_[tensor];
    if (std::ranges::find(all, gradient) != all.end() && gradient != all.front()) {
      builder_.graph().swap_names(gradient, all.front());
    }
  }

  /// Records and returns a contribution to the gradient of `tensor`. The contribution's name is from `name_of(tensor)`.
  TensorId contributed(TensorId tensor, TensorId gradient) {
    contributions_[tensor].push_back(gradient);
    return gradient;
  }

  /// Adds a gradient of zeros. `fill` writes row-major tensors; for other layouts, a scalar is expanded.
  TensorId zeros(TensorId tensor) {
    const TensorType wanted = type(tensor);  // A copy, because adding operations may reallocate the tensors.
    if (wanted.layout == Layout::kRowMajor) {
      return contributed(
          tensor, builder_.add_one(kinds::kFill, {}, {{"shape", wanted.shape}, {"value", 0.0}}, name_of(tensor)));
    }
    const TensorId zero =
        contributed(tensor, builder_.add_one(kinds::kFill, {}, {{"shape", Shape{}}, {"value", 0.0}}, name_of(tensor)));
    return contributed(tensor,
                       builder_.add_one(kinds::kExpand, {zero}, shaped(wanted.shape, wanted.layout), name_of(tensor)));
  }

  /// Returns `conv1.weight.gradient`, with a number appended for further contributions.
  std::string name_of(TensorId tensor) {
    const std::size_t contribution = names_[tensor]++;
    return fmt::format("{}.gradient{}", builder_.graph().tensor(tensor).name,
                       contribution == 0 ? "" : fmt::format(".{}", contribution));
  }

  Builder& builder_;
  std::vector<Operation> forward_;
  std::set<TensorId> dependent_;
  std::map<TensorId, TensorId> gradients_;                   ///< Keyed by tensor; none for parameters.
  std::map<TensorId, std::vector<Use>> by_use_;              ///< Keyed by parameter; last use first.
  std::map<TensorId, std::size_t> names_;                    ///< Number of gradient names used so far for each tensor.
  std::map<TensorId, std::vector<TensorId>> contributions_;  ///< In the order of their names.
  const Operation* current_ = nullptr;
};

}  // namespace

Result<std::vector<ParameterGradient>> differentiate(Builder& builder, const std::vector<ScaledLoss>& losses,
                                                     const std::set<TensorId>& frozen) {
  ReverseMode reverse(builder, builder.operations(), frozen);
  POPRUN_TRY(reverse.run(losses));
  std::vector<ParameterGradient> gradients = reverse.parameter_gradients();
  if (gradients.empty()) {
    return fail(ErrorCode::kUsage,
                "the loss has no gradient with respect to any weight: each is frozen, or reaches the loss only through "
                "integers or comparisons");
  }
  for (const ParameterGradient& pair : gradients) {
    builder.graph().set_role(pair.gradient, Role::kGradient);
  }
  return gradients;
}

namespace passes::differentiation {
namespace {

constexpr std::string_view kName = "differentiation";

/// Returns the parameters that are not trained. Errors: kUsage if the pattern matches no parameter or all of them.
Result<std::set<TensorId>> frozen_parameters(const Graph& graph, const std::string& text) {
  std::set<TensorId> frozen;
  const auto parameters = tensors_by_name(graph, {Role::kParameter});
  if (text.empty() || parameters.empty()) {
    return frozen;
  }
  const Pattern pattern(text);
  std::ranges::copy_if(parameters, std::inserter(frozen, frozen.end()),
                       [&](TensorId id) { return pattern.finds(graph.tensor(id).name); });
  const auto buffers = tensors_by_name(graph, {Role::kBuffer});
  if (frozen.empty() &&
      std::ranges::any_of(buffers, [&](TensorId id) { return pattern.finds(graph.tensor(id).name); })) {
    return frozen;  // The pattern matches only statistics of batch norms.
  }
  if (frozen.empty() || frozen.size() == parameters.size()) {
    return fail(ErrorCode::kUsage, fmt::format("training.frozen = {} matches {} of the model's {} weights, such as "
                                               "'{}'; it must match some, but not all",
                                               text, frozen.empty() ? "none" : "all", parameters.size(),
                                               graph.tensor(parameters.at(0)).name));
  }
  return frozen;
}

Origin backward_of(const Job& job, TensorId tensor) {
  Origin origin = Writers(job.graph, job.training->micro_batch).of(tensor).front()->origin;
  origin.direction = Direction::kBackward;
  return origin;
}

/// Returns the factor by which the loss is multiplied: the host's loss scale or a constant.
TensorId loss_scale(const CompileOptions& options, Job& job, Builder& body, const std::string& name) {
  if (job.training->scalars.loss_scale) {
    return *job.training->scalars.loss_scale;
  }
  body.set_origin(backward_of(job, job.training->loss));
  const TensorId scale = body.add_one(kinds::kFill, {}, {{"shape", Shape{}}, {"value", options.loss_scaling}}, name);
  job.graph.set_role(scale, Role::kMetric);
  return scale;
}

/// Returns the terms of the loss, each with its scale: the loss scale times the ratio of the term's number of labels to
/// the mean number per micro-batch. The ratio is exactly 1 if all micro-batches have the same number of labels.
std::vector<ScaledLoss> weighted_terms(const CompileOptions& options, Job& job, Builder& body) {
  const TrainingStep& step = *job.training;
  const TensorId scale = loss_scale(options, job, body, job.graph.tensor(step.loss).name + ".scale");
  std::vector<ScaledLoss> losses;
  for (const LossTerm& term : step.terms) {
    const std::string name = job.graph.tensor(term.loss).name;
    body.set_origin(backward_of(job, term.loss));
    const TensorId weight =
        body.add_one("div", {term.count, step.scalars.mean_labels.at(term.labels)}, {}, name + ".weight");
    const TensorId gradient = body.add_one(kinds::kMul, {scale, weight}, {}, name + ".gradient");
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
  return a.kind == b.kind && a.inputs == b.inputs && a.outputs == b.outputs && a.attributes == b.attributes;
}

std::map<TensorId, std::size_t> count_uses(const std::vector<Operation>& operations) {
  std::map<TensorId, std::size_t> uses;
  for (const Operation& operation : operations) {
    for (const TensorId id : std::set(operation.inputs.begin(), operation.inputs.end())) {
      ++uses[id];
    }
  }
  return uses;
}

/// Checks that the forward pass is unchanged, and that every gradient has its parameter's type, is computed by the
/// backward pass, and belongs to a parameter that is not frozen and has no more gradients than uses.
Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  const Graph& graph = after.graph;
  const Place place = after.training->micro_batch;
  const std::vector<Operation>& forward = before.graph.at(place).operations;
  const std::vector<Operation>& all = graph.at(place).operations;
  if (all.size() < forward.size() || !std::equal(forward.begin(), forward.end(), all.begin(), same)) {
    return pass_bug(kName, graph, after.training->loss, "no longer has the same forward pass");
  }
  const Writers made(graph, place);
  const auto is_of_before = [&before](TensorId id) { return index_of(id) < before.graph.tensors().size(); };
  const Pattern frozen(options.frozen);
  std::map<TensorId, std::size_t> uses = count_uses(forward);
  for (const auto& [parameter, gradient] : after.training->gradients) {
    const std::string& name = graph.tensor(parameter).name;
    if (graph.tensor(parameter).role != Role::kParameter || uses[parameter]-- == 0) {
      return pass_bug(kName, graph, parameter, "is not a parameter, or has more gradients than uses");
    }
    if (!options.frozen.empty() && frozen.finds(name)) {
      return pass_bug(kName, graph, parameter, "is frozen and has a gradient");
    }
    if (graph.tensor(gradient).type != graph.tensor(parameter).type || is_of_before(gradient) ||
        made.of(gradient).empty()) {
      return pass_bug(kName, graph, gradient,
                      "is not produced by the backward pass, or does not have its parameter's type");
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, in_training, run, verify};
}

}  // namespace passes::differentiation

}  // namespace poprun
