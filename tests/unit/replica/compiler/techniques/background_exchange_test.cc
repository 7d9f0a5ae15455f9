/// Gradients that are exchanged during the backward pass.

#include "replica/compiler/techniques/background_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/program/timeline.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/training_job.h"

namespace poprun {
namespace {

using testing::config;
using testing::dataset;
using ::testing::HasSubstr;

/// The backward pass computes c, b and a; m is a metric. The operation that computes a reads b.
constexpr std::string_view kStep = R"(
    tensor x : f32[4] stream
    tensor a : f32[4] gradient
    tensor b : f32[4] gradient
    tensor c : f32[8] gradient
    tensor m : f32[3] metric
    function train
    repeat 1
    m = fill() shape=[3] value=0.0
    repeat 1
    x = stream_in() stream="train"
    c = relu(x)
    b = relu(x)
    a = relu(b)
    repeat 1
    a, b, c, m = all_reduce(a, b, c, m) reduction="mean"
    stream_out(m) stream="step"
)";

std::string in_buckets_of(std::int64_t bytes) {
  Graph graph = *parse_graph(kStep);
  exchange_in_background(graph, {0, 1}, {0, 2}, Bytes{bytes});
  const std::string text = to_text(graph);
  return text.substr(text.find("function"));
}

TEST(BackgroundExchange, BeginsBehindTheLastUseOfABucketsGradients) {
  EXPECT_EQ(in_buckets_of(1),
            "function train\n"
            "repeat 1\n"
            "m = fill() shape=[3] value=0.0\n"
            "repeat 1\n"
            "x = stream_in() stream=\"train\"\n"
            "c = relu(x)\n"
            "c = all_reduce(c) background=1 reduction=\"mean\"\n"
            "b = relu(x)\n"
            "a = relu(b)\n"
            "a = all_reduce(a) background=1 reduction=\"mean\"\n"
            "b = all_reduce(b) background=1 reduction=\"mean\"\n"
            "repeat 1\n"
            "c, a, b = await_all_reduces(c, a, b)\n"
            "m = all_reduce(m) reduction=\"mean\"\n"
            "stream_out(m) stream=\"step\"\n");
}

TEST(BackgroundExchange, FillsABucketToItsSizeAtLeast) {
  const std::string text = in_buckets_of(33);
  EXPECT_THAT(text, HasSubstr("a = relu(b)\nc, a = all_reduce(c, a) background=1"));
  EXPECT_THAT(text, HasSubstr("b = all_reduce(b) background=1"));
}

TEST(BackgroundExchange, LeavesNoEmptyExchangeWhereGradientsAreExchangedAlone) {
  std::string step{kStep};
  const std::string together = "a, b, c, m = all_reduce(a, b, c, m) reduction=\"mean\"\n";
  step.replace(step.find(together), together.size(),
               "a, b, c = all_reduce(a, b, c) reduction=\"sum\"\n"
               "m = all_reduce(m) reduction=\"mean\"\n");
  Graph graph = *parse_graph(step);
  exchange_in_background(graph, {0, 1}, {0, 2}, Bytes{1000});
  const std::string text = to_text(graph);
  EXPECT_THAT(text, HasSubstr("c, a, b = all_reduce(c, a, b) background=1 reduction=\"sum\"\n"
                              "repeat 1\n"
                              "c, a, b = await_all_reduces(c, a, b)\n"
                              "m = all_reduce(m) reduction=\"mean\"\n"));
}

TEST(BackgroundExchange, ChangesNoBitOfATrainingJob) {
  for (const std::uint32_t replicas : {1U, 3U, 4U}) {
    const testing::Outcome together = testing::run(config(replicas, 2));
    for (const std::uint64_t bucket : {1U, 100'000U, 1'000'000'000U}) {
      proto::RunConfig job = config(replicas, 2);
      job.mutable_training()->set_gradient_bucket_bytes(bucket);
      job.mutable_memory()->set_poison_dead(true);
      const testing::Outcome apart = testing::run(job);
      EXPECT_EQ(together.records[0].tensors, apart.records[0].tensors)
          << replicas << " replicas, buckets of " << bucket << " B";
    }
  }
}

proto::Cost cost_of_training(std::uint64_t bucket) {
  proto::RunConfig job = config(16, 64);
  job.mutable_training()->set_gradient_bucket_bytes(bucket);
  const Result<Program> program = compile(*compile_options(job, dataset()));
  return walk(*program, *find_function(*program, "train")).busy.at(0);
}

TEST(BackgroundExchange, HidesTheLinksTimeBehindCompute) {
  const proto::Cost behind = cost_of_training(0);
  const proto::Cost together = cost_of_training(1'000'000'000);
  const proto::Cost buckets = cost_of_training(1'000'000);

  EXPECT_EQ(behind.background_cycles(), 0);
  EXPECT_EQ(behind.compute_cycles(), buckets.compute_cycles());
  // A single bucket is ready only after the backward pass, so the step waits for its whole exchange, and then for the
  // separate exchange of the metrics.
  EXPECT_GE(together.link_cycles(), together.background_cycles());
  EXPECT_LT(buckets.link_cycles(), together.link_cycles());
  EXPECT_GT(buckets.background_cycles(), 0);
}

TEST(BackgroundExchange, TakesAtLeastTheLinksTimeAndAtMostItsSum) {
  for (const std::uint64_t bucket : {1'000U, 100'000U, 1'000'000U}) {
    const proto::Cost cost = cost_of_training(bucket);
    EXPECT_GE(total_cycles(cost).count(), static_cast<std::int64_t>(cost.background_cycles()));
    EXPECT_LE(cost.link_cycles(), cost_of_training(0).link_cycles() + cost.background_cycles());
  }
}

TEST(BackgroundExchange, SaysThatAccumulationLeavesItWithoutEffect) {
  proto::RunConfig job = config(2, 2);
  job.mutable_training()->set_gradient_accumulation(2);
  job.mutable_training()->set_gradient_bucket_bytes(1);

  const auto program = compile(*compile_options(job, dataset()));

  ASSERT_TRUE(program) << program.error().message;
  ASSERT_EQ(program->notes_size(), 1);
  EXPECT_THAT(program->notes(0).text(), HasSubstr("training.gradient-bucket has no effect"));
}

}  // namespace
}  // namespace poprun
