#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "replica/compiler/arithmetic/slices.h"
#include "replica/compiler/job/pass.h"
#include "replica/ops/face/kinds.h"

/// Replaces each gradient (one per use of a parameter) with an accumulator of its sum or running mean over the step's
/// micro-batches. In half precision, the running mean neither overflows nor loses the last of many terms.
///
///   w.gradient = linear_weight_gradient(..)
///   w.accumulator = accumulate(w.accumulator, w.gradient)
///
/// A gradient is accumulated directly after the operation that computes it, so that it does not live to the end of the
/// backward pass. A gradient that the pass "slices" has divided gets an accumulator per slice; the update joins these
/// accumulators in a tensor that aliases them.
namespace poprun::passes::accumulation {
namespace {

constexpr std::string_view kName = "accumulation";

bool applies(const CompileOptions& options) {
  return in_training(options) && options.gradient_accumulation > 1;
}

bool keeps_mean(const CompileOptions& options) {
  return options.accumulation_kind == AccumulationKind::kRunningMean;
}

/// Returns `w.accumulator`, with a number appended for further uses of the parameter.
std::string accumulator_name(const Graph& graph, TensorId parameter) {
  return graph.free_name(graph.tensor(parameter).name + ".accumulator");
}

/// Inserts each operation of `moved` directly after the operation that computes its second input.
void put_after_gradients(std::vector<Operation>& operations, std::vector<Operation> moved) {
  std::multimap<TensorId, Operation> by_gradient;
  for (Operation& operation : moved) {
    by_gradient.emplace(operation.inputs[1], std::move(operation));
  }
  std::vector<Operation> ordered;
  for (Operation& operation : operations) {
    const std::vector<TensorId> outputs = operation.outputs;
    const Origin origin = operation.origin;
    ordered.push_back(std::move(operation));
    for (const TensorId output : outputs) {
      const auto [begin, end] = by_gradient.equal_range(output);
      for (auto it = begin; it != end; ++it) {
        it->second.origin = origin;
        ordered.push_back(std::move(it->second));
      }
      by_gradient.erase(begin, end);
    }
  }
  operations = std::move(ordered);
}

const Operation* join_of(const Writers& writers, TensorId gradient) {
  const auto& all = writers.of(gradient);
  return all.size() == 1 && all[0]->kind == kinds::kConcat && all[0]->attributes.has(kSlices) ? all[0] : nullptr;
}

class Accumulators {
 public:
  Accumulators(const CompileOptions& options, Job& job)
      : options_(options),
        job_(job),
        begin_(job.graph, job.training->begin, ""),
        update_(job.graph, job.training->update, "") {}

  /// Adds the accumulators of a gradient to the graph. Returns the tensor that replaces the gradient in the update.
  TensorId add(const ParameterGradient& pair, const Operation* join) {
    const std::string name = accumulator_name(job_.graph, pair.parameter);
    if (join == nullptr) {
      return add_one(pair.gradient, name);
    }
    std::vector<TensorId> sums;
    for (const TensorId slice : join->inputs) {
      sums.push_back(add_one(slice, fmt::format("{}.slice{}", name, sums.size())));
    }
    return settled(update_.add_one(join->kind, sums, join->attributes, name));
  }

  std::vector<Operation> accumulates;
  [[nodiscard]] Status status() const { return begin_.status() ? update_.status() : begin_.status(); }

 private:
  TensorId add_one(TensorId gradient, const std::string& name) {
    const TensorId sum =
        settled(begin_.add_one(kinds::kFill, {}, {{"shape", begin_.type(gradient).shape}, {"value", 0.0}}, name));
    accumulates.push_back(
        {kinds::kAccumulate, {sum, gradient}, {sum}, {{"mean", std::int64_t{keeps_mean(options_) ? 1 : 0}}}});
    return sum;
  }

  TensorId settled(TensorId sum) {
    job_.graph.set_role(sum, Role::kGradient);
    if (options_.float_accumulators) {
      job_.graph.keep_f32(sum);
    }
    return sum;
  }

  const CompileOptions& options_;
  Job& job_;
  Builder begin_;
  Builder update_;
};

Status run(const CompileOptions& options, Job& job) {
  TrainingStep& step = *job.training;
  Accumulators accumulators(options, job);
  std::set<TensorId> joined;
  {
    const Writers writers(job.graph, step.micro_batch);
    for (ParameterGradient& pair : step.gradients) {
      const Operation* join = join_of(writers, pair.gradient);
      if (join != nullptr) {
        joined.insert(pair.gradient);
      }
      pair.gradient = accumulators.add(pair, join);
    }
  }
  std::vector<Operation>& operations = job.graph.at(step.micro_batch).operations;
  std::erase_if(operations, [&](const Operation& operation) {
    return operation.outputs.size() == 1 && joined.contains(operation.outputs[0]);
  });
  put_after_gradients(operations, std::move(accumulators.accumulates));
  return accumulators.status();
}

std::vector<std::pair<std::size_t, const Operation*>> accumulations(const Region& region, TensorId sum) {
  std::vector<std::pair<std::size_t, const Operation*>> found;
  for (std::size_t i = 0; i < region.operations.size(); ++i) {
    if (std::ranges::count(region.operations[i].outputs, sum) > 0) {
      found.emplace_back(i, &region.operations[i]);
    }
  }
  return found;
}

/// Whether only accumulations separate position `i` from the operation that computes `gradient`.
bool is_directly_after(const Region& region, std::size_t i, TensorId gradient) {
  while (i > 0 && region.operations[i - 1].kind == kinds::kAccumulate) {
    --i;
  }
  return i > 0 && std::ranges::count(region.operations[i - 1].outputs, gradient) > 0;
}

/// Checks that an accumulator is zeroed once per step, and that its gradient is added to it once per micro-batch, as
/// soon as the gradient is computed.
Status verify_accumulator(const CompileOptions& options, const Job& job, TensorId sum, TensorId gradient) {
  const Graph& graph = job.graph;
  const Region& region = graph.at(job.training->micro_batch);
  const Writers begin(graph, job.training->begin);
  const auto& zeroes = begin.of(sum);
  if (zeroes.size() != 1 || zeroes[0]->kind != kinds::kFill || zeroes[0]->attributes.real("value") != 0) {
    return pass_bug(kName, graph, sum, "is not zero at the start of the step");
  }
  const auto adds = accumulations(region, sum);
  if (adds.size() != 1 || adds[0].second->kind != kinds::kAccumulate ||
      adds[0].second->inputs != std::vector{sum, gradient} ||
      (adds[0].second->attributes.integer("mean") != 0) != keeps_mean(options)) {
    return pass_bug(kName, graph, sum, "does not accumulate its gradient exactly once per micro-batch");
  }
  if (graph.tensor(sum).keeps_f32 != options.float_accumulators) {
    return pass_bug(kName, graph, sum, "is stored in the wrong precision");
  }
  if (!is_directly_after(region, adds[0].first, gradient)) {
    return pass_bug(kName, graph, sum, "does not accumulate its gradient as soon as the gradient is computed");
  }
  return {};
}

/// Checks that each gradient has an accumulator, or one per slice, and that the update joins the slices' accumulators.
Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  const Graph& graph = after.graph;
  const Writers made(before.graph, before.training->micro_batch);
  const Writers joins(graph, after.training->update);
  for (std::size_t i = 0; i < after.training->gradients.size(); ++i) {
    const TensorId sum = after.training->gradients[i].gradient;
    const TensorId gradient = before.training->gradients[i].gradient;
    const Operation* slices = join_of(made, gradient);
    if (slices == nullptr) {
      POPRUN_TRY(verify_accumulator(options, after, sum, gradient));
      continue;
    }
    const Operation* join = join_of(joins, sum);
    if (join == nullptr || join->attributes != slices->attributes || join->inputs.size() != slices->inputs.size()) {
      return pass_bug(kName, graph, sum, "does not join the accumulators of its slices");
    }
    for (std::size_t k = 0; k < join->inputs.size(); ++k) {
      POPRUN_TRY(verify_accumulator(options, after, join->inputs[k], slices->inputs[k]));
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify};
}

}  // namespace poprun::passes::accumulation
