#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/compiler/job/pass.h"
#include "replica/machine/machine.h"
#include "replica/ops/face/kinds.h"

/// Lets batch norms use the statistics of several consecutive replicas, `model.norm-span` of them, because those of a
/// small micro-batch are too noisy (MLPerf's ResNet-50). Two small all-reduces per norm exchange them:
///
///   y, mean, variance = batch_norm_training(x, w, b)      moments = batch_norm_moments(x), averaged over the group
///                                                    ->   mean, variance = batch_norm_statistics(moments)
///                                                         y = batch_norm_inference(x, w, b, mean, variance)
///   dx, dw, db = batch_norm_training_gradient(..., dy)    dw, db, sums = batch_norm_sums(...); sums averaged
///                                                    ->   dx = batch_norm_group_gradient(..., dy, sums)
///
/// Weights' gradients are averaged over the replicas later, with all others. Statistics cannot be recomputed, because
/// the all-reduce writes in place; y can. Results are those of one replica with the group's samples, but for rounding.
namespace poprun::passes::norm_span {
namespace {

constexpr std::string_view kName = "norm-span";

bool applies(const CompileOptions& options) {
  return in_training(options) && options.norm_span > 1;
}

class Rewriter {
 public:
  Rewriter(Graph& graph, Place place, std::int64_t span, std::int64_t replicas)
      : operations_(std::move(graph.at(place).operations)),
        out_(graph, place, ""),
        span_(span),
        group_(span == replicas ? 0 : span) {}

  Status run() {
    for (Operation& operation : operations_) {
      out_.set_origin(operation.origin);
      if (operation.kind == kinds::kBatchNormTraining) {
        forward(operation);
      } else if (operation.kind == kinds::kBatchNormTrainingGradient) {
        backward(operation);
      } else {
        if (operation.kind == kinds::kBatchNormUpdate && grouped_.contains(operation.inputs[2])) {
          operation.attributes.set("elements", operation.attributes.integer("elements") * span_);
        }
        out_.append(std::move(operation));
      }
    }
    return out_.status();
  }

  [[nodiscard]] std::size_t norms() const { return grouped_.size(); }

 private:
  void average(TensorId tensor, const Origin& origin) {
    Operation reduced = AllReduce{Reduction::kMean, false, {tensor}, group_}.operation();
    reduced.origin = origin;
    out_.append(std::move(reduced));
  }

  void forward(const Operation& norm) {
    const TensorId y = norm.outputs[0];
    const TensorId moments =
        out_.add_one(kinds::kBatchNormMoments, {norm.inputs[0]}, {}, out_.graph().tensor(y).name + ".moments");
    average(moments, norm.origin);
    out_.update(kinds::kBatchNormStatistics, {moments}, {}, {norm.outputs[1], norm.outputs[2]});
    std::vector<TensorId> inputs = norm.inputs;
    inputs.insert(inputs.end(), norm.outputs.begin() + 1, norm.outputs.end());
    out_.update(kinds::kBatchNormInference, std::move(inputs), norm.attributes, {y});
    grouped_.insert(norm.outputs[1]);
  }

  void backward(const Operation& gradient) {
    const TensorId dx = gradient.outputs[0];
    const std::vector<TensorId>& in = gradient.inputs;  // x, w, mean, variance, dy
    const TensorId sums = out_.graph().add_tensor(sums_of(gradient));
    Operation local{kinds::kBatchNormSums,
                    {in[0], in[2], in[3], in[4]},
                    {gradient.outputs[1], gradient.outputs[2]},
                    gradient.attributes};
    local.outputs.push_back(sums);
    local.origin = gradient.origin;
    out_.append(std::move(local));
    average(sums, gradient.origin);
    std::vector<TensorId> inputs = in;
    inputs.push_back(sums);
    out_.update(kinds::kBatchNormGroupGradient, std::move(inputs), gradient.attributes, {dx});
  }

  Tensor sums_of(const Operation& gradient) {
    const Tensor& w = out_.graph().tensor(gradient.outputs[1]);
    return {w.name + ".sums", {DataType::kF32, {2, w.type.shape[0]}, Layout::kRowMajor}, Role::kActivation};
  }

  std::vector<Operation> operations_;
  Builder out_;
  std::int64_t span_;
  std::int64_t group_;          ///< As an attribute of all-reduces: 0 stands for all replicas.
  std::set<TensorId> grouped_;  ///< The mean of each norm.
};

Status run(const CompileOptions& options, Job& job) {
  Rewriter rewriter(job.graph, job.training->micro_batch, options.norm_span, options.replicas);
  POPRUN_TRY(rewriter.run());
  if (rewriter.norms() == 0) {
    return fail(ErrorCode::kUsage, fmt::format("model.norm-span = {}: {} has no batch normalisation that uses the "
                                               "statistics of its batch; leave the option out",
                                               options.norm_span, options.model));
  }
  return {};
}

/// Traces the results of norms and of their gradients back to their operands.
class Verifier {
 public:
  Verifier(const CompileOptions& options, const Job& before, const Job& after)
      : span_(options.norm_span),
        replicas_(options.replicas),
        was_(before.graph.at(before.training->micro_batch).operations),
        after_(after.graph),
        writers_(after.graph, after.training->micro_batch) {}

  Status run() {
    std::set<TensorId> means;
    for (const Operation& operation : was_) {
      if (operation.kind == kinds::kBatchNormTraining) {
        means.insert(operation.outputs[1]);
      }
    }
    for (const Operation& was : was_) {
      const bool updates = was.kind == kinds::kBatchNormUpdate && means.contains(was.inputs[2]);
      const bool holds = was.kind == kinds::kBatchNormTraining           ? norm_holds(was)
                         : was.kind == kinds::kBatchNormTrainingGradient ? gradient_holds(was)
                                                                         : is_kept(was, updates);
      if (!holds) {
        return pass_bug(kName, after_, was.outputs.at(0), "is not what it was, over a group of replicas");
      }
    }
    return {};
  }

 private:
  /// Returns the only operation that writes a tensor, or nothing.
  [[nodiscard]] const Operation* writer(TensorId id) const {
    const auto& all = writers_.of(id);
    return all.size() == 1 ? all[0] : nullptr;
  }

  /// Returns the operation that computes a tensor which is then averaged over the group, before `reader`.
  [[nodiscard]] const Operation* averaged(TensorId id, const Operation* reader) const {
    const auto& all = writers_.of(id);
    const auto average = all.size() == 2 ? AllReduce::from(*all[1]) : std::nullopt;
    const std::int64_t group = average && average->group == 0 ? replicas_ : average ? average->group : 0;
    return group == span_ && average->reduction == Reduction::kMean && !average->in_background &&
                   average->tensors == std::vector{id} && all[1] < reader
               ? all[0]
               : nullptr;
  }

  [[nodiscard]] bool norm_holds(const Operation& was) const {
    const std::vector<TensorId>& out = was.outputs;
    const Operation* y = writer(out[0]);
    const Operation* statistics = writer(out[1]);
    if (y == nullptr || statistics == nullptr || statistics->kind != kinds::kBatchNormStatistics ||
        statistics->outputs != std::vector{out[1], out[2]} || y->kind != kinds::kBatchNormInference ||
        y->attributes != was.attributes ||
        y->inputs != std::vector{was.inputs[0], was.inputs[1], was.inputs[2], out[1], out[2]}) {
      return false;
    }
    const Operation* moments = averaged(statistics->inputs[0], statistics);
    return moments != nullptr && moments->kind == kinds::kBatchNormMoments &&
           moments->inputs == std::vector{was.inputs[0]};
  }

  [[nodiscard]] bool gradient_holds(const Operation& was) const {
    const Operation* dx = writer(was.outputs[0]);
    if (dx == nullptr || dx->kind != kinds::kBatchNormGroupGradient || dx->attributes != was.attributes ||
        dx->inputs.size() != 6 || !std::equal(was.inputs.begin(), was.inputs.end(), dx->inputs.begin())) {
      return false;
    }
    const Operation* sums = averaged(dx->inputs[5], dx);
    return sums != nullptr && sums->kind == kinds::kBatchNormSums && sums->attributes == was.attributes &&
           sums->inputs == std::vector{was.inputs[0], was.inputs[2], was.inputs[3], was.inputs[4]} &&
           sums->outputs == std::vector{was.outputs[1], was.outputs[2], dx->inputs[5]};
  }

  /// Returns whether an operation is still there, if it updates running statistics with the group's elements.
  [[nodiscard]] bool is_kept(const Operation& was, bool updates) const {
    Operation wanted = was;
    if (updates) {
      wanted.attributes.set("elements", span_ * was.attributes.integer("elements"));
    }
    return was.outputs.empty() || std::ranges::any_of(writers_.of(was.outputs[0]), [&wanted](const Operation* is) {
             return is->kind == wanted.kind && is->inputs == wanted.inputs && is->outputs == wanted.outputs &&
                    is->attributes == wanted.attributes;
           });
  }

  std::int64_t span_;
  std::int64_t replicas_;
  const std::vector<Operation>& was_;
  const Graph& after_;
  Writers writers_;
};

Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  return Verifier(options, before, after).run();
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify};
}

}  // namespace poprun::passes::norm_span
