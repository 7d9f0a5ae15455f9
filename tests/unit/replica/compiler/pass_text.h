#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/passes.h"
#include "tests/unit/replica/texts.h"

/// Runs single passes on jobs that are given as text.
namespace poprun::pass_text {

inline const Pass& pass_of(std::string_view name) {
  return *std::ranges::find(all_passes(), name, &Pass::name);
}

/// Reads a partly built job from its graph's text: "train" has the regions begin, micro-batch and update, and
/// NAME.gradient or NAME.accumulator is the gradient of parameter NAME; the suffix .1 marks that of a second use.
inline Job job_of(std::string_view text) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph) << graph.error().message;
  Job job;
  job.graph = *graph;
  const auto train = std::ranges::find(job.graph.functions, "train", &Function::name);
  if (train == job.graph.functions.end()) {
    return job;
  }
  const auto index = static_cast<std::size_t>(train - job.graph.functions.begin());
  const auto find = [&](const std::string& name) { return job.graph.has(name) ? job.graph.find(name) : TensorId{0}; };
  job.training = TrainingStep{.begin = {index, 0},
                              .micro_batch = {index, 1},
                              .update = {index, 2},
                              .scalars = {.rate = find("learning-rate"), .step = find("step")},
                              .metrics = find("train.metrics"),
                              .loss = find("loss")};
  for (const TensorId id : tensors_by_name(job.graph, {Role::kParameter})) {
    for (const char* suffix : {".accumulator", ".gradient"}) {
      const std::string name = job.graph.tensor(id).name + suffix;
      if (job.graph.has(name)) {
        job.training->gradients.push_back({id, job.graph.find(name)});
        if (job.graph.has(name + ".1")) {
          job.training->gradients.push_back({id, job.graph.find(name + ".1")});
        }
        break;
      }
    }
  }
  return job;
}

/// Runs a pass; returns the new tensors and the functions of its result as text, or why it is refused.
inline std::string after(std::string_view name, std::string_view text, const CompileOptions& options) {
  const Job before = job_of(text);
  Job job = before;
  const Pass& pass = pass_of(name);
  EXPECT_TRUE(pass.applies(options));
  if (const Status status = pass.run(options, job); !status) {
    return status.error().message;
  }
  if (const Status status = pass.verify(options, before, job); !status) {
    return status.error().message;
  }
  std::string lines;
  for (std::size_t t = 0; t < job.graph.tensors().size(); ++t) {
    const bool is_new =
        t >= before.graph.tensors().size() || job.graph.tensors()[t].type != before.graph.tensors()[t].type;
    if (is_new) {
      lines += job.graph.tensors()[t].name + " : " + to_text(job.graph.tensors()[t].type) + "\n";
    }
  }
  const std::string graph = to_text(job.graph);
  return lines + graph.substr(graph.find("function train"));
}

/// Returns the verdict of a pass's verifier after `damage` to the pass's result.
inline std::string verdict_on(std::string_view name, std::string_view text, const CompileOptions& options,
                              const std::function<void(Job&)>& damage) {
  const Job before = job_of(text);
  Job job = before;
  EXPECT_TRUE(pass_of(name).run(options, job));
  EXPECT_TRUE(pass_of(name).verify(options, before, job)) << "before the damage";
  damage(job);
  const Status status = pass_of(name).verify(options, before, job);
  return status ? "" : status.error().message;
}

inline std::vector<Operation>& operations(Job& job, Place place) {
  return job.graph.at(place).operations;
}

/// Removes the only operation of a kind.
inline void remove(Job& job, Place place, std::string_view kind) {
  EXPECT_EQ(std::erase_if(operations(job, place), [&](const Operation& operation) { return operation.kind == kind; }),
            1);
}

inline CompileOptions options() {
  CompileOptions options;
  options.optimizer.name = "sgd";
  return options;
}

inline CompileOptions options_with(const std::function<void(CompileOptions&)>& change) {
  CompileOptions changed = options();
  change(changed);
  return changed;
}

/// A training step with a gradient and running statistics that no operation uses yet.
inline constexpr std::string_view kBackward = R"(
    tensor w : f32[2] parameter
    tensor v : f32[2] parameter
    tensor running : f32[2] buffer
    tensor x : f32[2] stream
    tensor learning-rate : f32[] stream
    tensor step : f32[] stream
    tensor train.metrics : f32[3,3] metric
    tensor loss : f32[] activation
    tensor w.gradient : f32[2] gradient
    function load
    repeat 1
    w = initialise() uniform=0.5
    v = initialise() constant=1.0
    running = initialise() constant=0.0
    function train
    repeat 1
    learning-rate, step = stream_in() stream="control"
    train.metrics = fill() shape=[3,3] value=0.0
    repeat 1
    x = stream_in() stream="train"
    w.gradient = mul(x, v)
    repeat 1
)";

}  // namespace poprun::pass_text
