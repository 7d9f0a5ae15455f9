#include "replica/models/layers/layers.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::testing::drain_test {
namespace {

/// Builds a classifier of normalised images, whose running statistics change with every micro-batch.
ModelOutputs normalising_model(Builder& builder, const std::vector<TensorId>& inputs, bool training) {
  TensorId x = layers::normalize(builder, inputs[0], 0.25, 0.5);
  x = layers::batch_norm(builder, "bn", x, training);
  x = layers::linear(builder, "fc", layers::flatten(builder, "features", x), 10);
  const auto outputs = builder.add("softmax_cross_entropy", {x, inputs[1]}, {}, {"loss", "correct", "count"});
  return {outputs[0], outputs[1], outputs[2]};
}

constexpr std::uint64_t kMicroBatches = 4;

/// Returns a job with steps of four micro-batches on three replicas.
proto::RunConfig job_of(std::uint64_t steps) {
  proto::RunConfig job = config(3, 2);
  job.mutable_training()->set_steps(steps);
  job.mutable_training()->set_gradient_accumulation(kMicroBatches);
  job.mutable_training()->set_evaluate(false);
  return job;
}

/// Expects that the job, if stopped after `parts` parts, has the weights of a job of two steps.
void expect_the_weights_of_two_steps(proto::RunConfig job, std::uint64_t parts) {
  const Outcome whole = run(job_of(2), {}, kToTheEnd, normalising_model);

  const Outcome drained = run(job, {}, parts, normalising_model);

  for (const LoopResult& result : drained.results) {
    EXPECT_TRUE(result.drained);
    EXPECT_EQ(result.steps, 2U);
  }
  EXPECT_EQ(drained.records[0].steps.size(), 2U);
  EXPECT_EQ(drained.records[0].tensors, whole.records[0].tensors);
  EXPECT_EQ(drained.records[0].tensors.size(), 6U);
}

TEST(Drain, InAStepKeepsTheWeightsAndStatisticsOfTheLastWholeStep) {
  for (std::uint64_t done = 0; done < kMicroBatches; ++done) {
    expect_the_weights_of_two_steps(job_of(50), 2 * kMicroBatches + done);
  }
}

TEST(Drain, InAnEvaluationDropsItAndKeepsTheWeights) {
  proto::RunConfig job = job_of(50);
  job.mutable_training()->set_evaluate(true);
  job.mutable_training()->set_evaluate_every_epochs(1);
  job.mutable_data()->set_micro_batch_size(2);
  const std::uint64_t steps = 64 / (3 * 2 * kMicroBatches);  // Whole steps in an epoch of 64 items.
  ASSERT_EQ(steps, 2U);

  const Outcome drained = run(job, {}, 2 * kMicroBatches + 1, normalising_model);

  EXPECT_TRUE(drained.results[0].drained);
  EXPECT_TRUE(drained.records[0].evaluations.empty());
  expect_the_weights_of_two_steps(job, 2 * kMicroBatches + 1);
}

TEST(Drain, AfterTheLastPartChangesNothing) {
  const Outcome outcome = run(job_of(2), {}, 2 * kMicroBatches, normalising_model);

  EXPECT_FALSE(outcome.results[0].drained);
  EXPECT_EQ(outcome.results[0].steps, 2U);
}

TEST(Drain, LeavesNothingOfAHalfStepInPoisonedMemoryEither) {
  proto::RunConfig job = job_of(50);
  job.mutable_memory()->set_poison_dead(true);
  expect_the_weights_of_two_steps(job, 2 * kMicroBatches + 3);
}

/// Stops the job, once asked, after the parts that have begun.
class AskedToStop final : public ProgressSink {
 public:
  void progress(ReplicaId /*replica*/, std::uint64_t /*step*/, std::string_view /*activity*/) override {}
  void operators(ReplicaId /*replica*/, std::uint64_t /*steps*/, double /*seconds*/) override {}
  void begin_parts(ReplicaId /*replica*/, std::uint64_t /*parts*/) override {}
  [[nodiscard]] bool begin_part(ReplicaId /*replica*/) override { return !asked_ && ++begun_ != 0; }
  void ask() { asked_ = true; }
  [[nodiscard]] std::uint64_t begun() const { return begun_; }

 private:
  bool asked_ = false;
  std::uint64_t begun_ = 0;
};

/// A stream that asks the job to stop while the job waits for a batch that never comes.
class DyingStream final : public HostStream {
 public:
  DyingStream(std::uint64_t batches, AskedToStop& progress)
      : source_(0, 64, 0, 1, 2), left_(batches), progress_(progress) {}

  Result<HostBatch> next() override {
    if (left_ > 0) {
      --left_;
      return source_.next();
    }
    progress_.ask();
    return fail(ErrorCode::kUnreachable, "data server 127.0.0.1:1 did not answer");
  }

 private:
  SampleStream source_;
  std::uint64_t left_;
  AskedToStop& progress_;
};

TEST(Drain, NeedsNoBatchForAPartThatHasNotBegun) {
  proto::RunConfig job = job_of(50);
  job.mutable_topology()->set_num_replicas(1);
  const Program program = *plan_program(*compile_options(job, dataset()));
  const auto world = LocalWorld::create({.replicas = 1});
  AskedToStop progress;
  Record record;
  const HostWeights none;
  TrainingLoop loop(program, *training_options(job, dataset()),
                    {.communicator = (*world)->communicator(ReplicaId{0}),
                     .progress = progress,
                     .reporter = &record,
                     .initial_weights = none,
                     .streams = [&](JobStream, std::uint64_t) {
                       return std::make_unique<DyingStream>(kMicroBatches + 1, progress);
                     }});

  const auto result = loop.run();

  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->drained);
  EXPECT_EQ(result->steps, 1U);
  EXPECT_EQ(progress.begun(), kMicroBatches + 1);
  EXPECT_FALSE(record.tensors.empty());
}

}  // namespace
}  // namespace poprun::testing::drain_test
