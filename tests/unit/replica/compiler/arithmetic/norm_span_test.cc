/// The pass "norm-span": norms over groups of replicas. (tests/e2e compares two replicas with one that has all
/// samples.)

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/passes.h"
#include "replica/machine/machine.h"

namespace poprun::norm_span_test {
namespace {

using ::testing::HasSubstr;

TensorType f32(Shape shape) {
  return {DataType::kF32, std::move(shape), Layout::kRowMajor};
}

/// A job on 8 replicas with a dense layer and, if `normalises`, a batch norm of its 8 rows; the loss is the sum of y^2.
CompileOptions options_of(bool normalises) {
  CompileOptions options;
  options.model = "tiny";
  options.device = *find_device("mk2");
  options.inputs = {{"x", f32({8, 3})}};
  options.optimizer.name = "sgd";
  options.replicas = 8;
  options.norm_span = 4;
  options.evaluate = false;
  options.forward = [normalises](Builder& builder, const std::vector<TensorId>& inputs, bool) {
    const auto variable = [&](const std::string& name, Shape shape, Role role) {
      return builder.variable(name, f32(std::move(shape)), role, {});
    };
    TensorId y = builder.add_one("linear", {inputs[0], variable("v", {5, 3}, Role::kParameter)}, {}, "mixed");
    if (normalises) {
      const auto norm = builder.add("batch_norm_training",
                                    {y, variable("w", {5}, Role::kParameter), variable("b", {5}, Role::kParameter)},
                                    {{"eps", 1e-5}}, {"y", "mean", "variance"});
      const TensorId running_mean = variable("running_mean", {5}, Role::kBuffer);
      const TensorId running_variance = variable("running_variance", {5}, Role::kBuffer);
      builder.update("batch_norm_update", {running_mean, running_variance, norm[1], norm[2]},
                     {{"momentum", 0.1}, {"elements", std::int64_t{8}}}, {running_mean, running_variance});
      y = norm[0];
    }
    const TensorId z = builder.add_one("mul", {y, y}, {}, "squares");
    ModelOutputs outputs;
    outputs.loss = builder.add_one("sum_to", {z}, {{"shape", Shape{}}, {"layout", "row-major"}}, "loss");
    outputs.scored = false;
    return outputs;
  };
  return options;
}

std::vector<Operation>& micro_batch(Job& job) {
  return job.graph.at(job.training->micro_batch).operations;
}

Operation& find(std::vector<Operation>& operations, std::string_view kind, int number = 0) {
  return *std::ranges::find_if(operations, [&](const Operation& o) { return o.kind == kind && number-- == 0; });
}

TEST(NormSpan, AveragesMomentsAndSumsOverTheGroup) {
  Result<Job> job = run_passes(options_of(true), "norm-span");

  ASSERT_TRUE(job) << job.error().message;
  std::vector<Operation>& all = micro_batch(*job);
  EXPECT_EQ(std::ranges::count(all, "batch_norm_training", &Operation::kind), 0);
  EXPECT_EQ(std::ranges::count(all, "batch_norm_training_gradient", &Operation::kind), 0);
  for (const int k : {0, 1}) {
    const auto exchange = AllReduce::from(find(all, "all_reduce", k));
    EXPECT_EQ(exchange->reduction, Reduction::kMean);
    EXPECT_EQ(exchange->group, 4);
    EXPECT_EQ(job->graph.tensor(exchange->tensors.at(0)).type.shape, (Shape{2, 5}));
  }
  EXPECT_EQ(find(all, "batch_norm_update").attributes.integer("elements"), 32);
}

TEST(NormSpan, OfAllReplicasNeedsNoGroup) {
  CompileOptions options = options_of(true);
  options.norm_span = 8;
  Result<Job> job = run_passes(options, "norm-span");

  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(AllReduce::from(find(micro_batch(*job), "all_reduce"))->group, 0);
}

TEST(NormSpan, IsRefusedWithoutABatchNorm) {
  const Result<Job> job = run_passes(options_of(false), "norm-span");

  ASSERT_FALSE(job);
  EXPECT_THAT(job.error().message, HasSubstr("model.norm-span = 4: tiny has no batch normalisation"));
}

TEST(NormSpan, MustKeepEveryNormAndAverageOverTheWholeGroup) {
  const CompileOptions options = options_of(true);
  const Result<Job> before = run_passes(options, "differentiation");
  const Result<Job> after = run_passes(options, "norm-span");
  ASSERT_TRUE(before && after);
  const Pass& pass = *std::ranges::find(all_passes(), "norm-span", &Pass::name);
  ASSERT_TRUE(pass.verify(options, *before, *after));
  const auto verdict = [&](const std::function<void(std::vector<Operation>&)>& damage) {
    Job job = *after;
    damage(micro_batch(job));
    const Status status = pass.verify(options, *before, job);
    return status ? "" : status.error().message;
  };

  EXPECT_THAT(verdict([](auto& all) { find(all, "all_reduce").attributes.set("group", std::int64_t{2}); }),
              HasSubstr("'y' is not what it was, over a group of replicas"));
  EXPECT_THAT(verdict([](auto& all) { find(all, "all_reduce").attributes.set("reduction", "sum"); }),
              HasSubstr("'y' is not"));
  EXPECT_THAT(verdict([](auto& all) { std::swap(find(all, "all_reduce"), find(all, "batch_norm_statistics")); }),
              HasSubstr("'y' is not"));
  EXPECT_THAT(verdict([](auto& all) { find(all, "all_reduce", 1).attributes.set("group", std::int64_t{8}); }),
              HasSubstr("gradient' is not"));
  EXPECT_THAT(verdict([](auto& all) {
                std::swap(find(all, "batch_norm_group_gradient").inputs[2],
                          find(all, "batch_norm_group_gradient").inputs[3]);
              }),
              HasSubstr("gradient' is not"));
  EXPECT_THAT(verdict([](auto& all) { find(all, "batch_norm_update").attributes.set("elements", std::int64_t{8}); }),
              HasSubstr("'running_mean' is not"));
  EXPECT_THAT(verdict([](auto& all) { find(all, "mul").inputs[0] = find(all, "linear").outputs[0]; }),
              HasSubstr("'squares' is not"));
}

}  // namespace
}  // namespace poprun::norm_span_test
