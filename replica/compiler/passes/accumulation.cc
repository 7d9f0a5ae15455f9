#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "replica/compiler/passes/pass.h"

/// Replaces each gradient, one for each use of a parameter, by an accumulator over the step's
/// micro-batches: their sum, or their running mean, which in half precision neither overflows nor
/// loses the last of many terms.
///
///   w.gradient = linear_weight_gradient(..)
///   w.accumulator = accumulate(w.accumulator, w.gradient)
///
/// A gradient is accumulated directly after the operation that makes it, so that it does not live
/// to the end of backward.
namespace poprun {
namespace {

constexpr std::string_view kName = "accumulation";
constexpr std::string_view kAccumulate = "accumulate";

bool applies(const CompileOptions& options) {
  return in_training(options) && options.gradient_accumulation > 1;
}

bool keeps_mean(const CompileOptions& options) {
  return options.accumulation_kind == AccumulationKind::kRunningMean;
}

/// `w.accumulator`; those of further uses are numbered.
std::string accumulator_name(const Graph& graph, TensorId parameter) {
  const std::string name = graph.tensor(parameter).name + ".accumulator";
  std::string free = name;
  for (int use = 1; graph.has(free); ++use) {
    free = fmt::format("{}.{}", name, use);
  }
  return free;
}

/// Moves each of `moved` directly after the operation that makes its second input.
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

Status run(const CompileOptions& options, Job& job) {
  TrainingStep& step = *job.training;
  Builder begin(job.graph, step.begin, "");
  const Attributes attributes{{"mean", std::int64_t{keeps_mean(options) ? 1 : 0}}};
  std::vector<Operation> accumulates;
  for (ParameterGradient& pair : step.gradients) {
    const TensorId sum =
        begin.add_one("fill", {}, {{"shape", begin.type(pair.parameter).shape}, {"value", 0.0}},
                      accumulator_name(job.graph, pair.parameter));
    job.graph.set_role(sum, Role::kGradient);
    if (options.float_accumulators) {
      job.graph.keep_f32(sum);
    }
    accumulates.push_back({std::string{kAccumulate}, {sum, pair.gradient}, {sum}, attributes});
    pair.gradient = sum;
  }
  put_after_gradients(job.graph.at(step.micro_batch).operations, std::move(accumulates));
  return begin.status();
}

/// The operations of the micro-batch that accumulate into `sum`, with the place of each.
std::vector<std::pair<std::size_t, const Operation*>> accumulations(const Region& region,
                                                                    TensorId sum) {
  std::vector<std::pair<std::size_t, const Operation*>> found;
  for (std::size_t i = 0; i < region.operations.size(); ++i) {
    if (std::ranges::count(region.operations[i].outputs, sum) > 0) {
      found.emplace_back(i, &region.operations[i]);
    }
  }
  return found;
}

/// Whether nothing but other accumulations stands between place `i` and the maker of `gradient`.
bool is_directly_after(const Region& region, std::size_t i, TensorId gradient) {
  while (i > 0 && region.operations[i - 1].kind == kAccumulate) {
    --i;
  }
  return i > 0 && std::ranges::count(region.operations[i - 1].outputs, gradient) > 0;
}

/// Each accumulator is zeroed once a step, and takes its use's gradient once a micro-batch, as soon
/// as that is made.
Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  const Graph& graph = after.graph;
  const TrainingStep& step = *after.training;
  const Writers begin(graph, step.begin);
  const Region& region = graph.at(step.micro_batch);
  for (std::size_t i = 0; i < step.gradients.size(); ++i) {
    const TensorId sum = step.gradients[i].gradient;
    const TensorId gradient = before.training->gradients[i].gradient;
    const auto& zeroes = begin.of(sum);
    if (zeroes.size() != 1 || zeroes[0]->kind != "fill" ||
        zeroes[0]->attributes.real("value") != 0) {
      return pass_bug(kName, graph, sum, "is not zero at the start of the step");
    }
    const auto adds = accumulations(region, sum);
    if (adds.size() != 1 || adds[0].second->kind != kAccumulate ||
        adds[0].second->inputs != std::vector{sum, gradient} ||
        (adds[0].second->attributes.integer("mean") != 0) != keeps_mean(options)) {
      return pass_bug(kName, graph, sum, "does not take its gradient exactly once per micro-batch");
    }
    if (graph.tensor(sum).keeps_f32 != options.float_accumulators) {
      return pass_bug(kName, graph, sum, "is stored in the wrong precision");
    }
    if (!is_directly_after(region, adds[0].first, gradient)) {
      return pass_bug(kName, graph, sum, "does not take its gradient as soon as that is made");
    }
  }
  return {};
}

}  // namespace

Pass accumulation_pass() {
  return {kName, applies, run, verify};
}

}  // namespace poprun
