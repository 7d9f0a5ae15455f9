#include "replica/loops/tensor_dump.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/local/local_world.h"
#include "replica/loops/training_loop.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::tensor_dump_test {
namespace {

using namespace testing;  // NOLINT: the made-up job.
using ::testing::HasSubstr;

/// Returns the job with a request to dump all tensors of step 2.
proto::RunConfig dumping(proto::RunConfig job) {
  proto::DumpRequest& request = *job.mutable_report()->add_dump_tensors();
  request.set_pattern(".");
  request.set_step(2);
  return job;
}

TEST(Dump, HasGradientsBeforeAndAfterTheirExchange) {
  const Outcome outcome = run(dumping(config(2, 4)));

  const auto& mine = outcome.records[0].dumps.at(2);
  const auto& theirs = outcome.records[1].dumps.at(2);
  EXPECT_EQ(outcome.records[0].dumps.size(), 1U);
  for (const char* name : {"conv1.weight.gradient", "fc2.bias.gradient"}) {
    const std::vector<float> a = mine.at(name).floats();
    const std::vector<float> b = theirs.at(name).floats();
    EXPECT_NE(a, b);
    std::vector<float> mean(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      mean[i] = (a[i] + b[i]) / 2;
    }
    EXPECT_EQ(mine.at(std::string{name} + ".exchanged").floats(), mean) << name;
    EXPECT_EQ(theirs.at(std::string{name} + ".exchanged").floats(), mean) << name;
  }
}

TEST(Dump, HasWeightsBeforeAndAfterTheStep) {
  proto::RunConfig job = dumping(config(2, 4));
  job.mutable_report()->add_dump_tensors()->set_pattern("^fc2.weight$");
  job.mutable_report()->mutable_dump_tensors(1)->set_step(3);

  const Outcome outcome = run(job);

  const auto& dumps = outcome.records[0].dumps;
  EXPECT_EQ(dumps.at(2).at("fc2.weight.updated"), dumps.at(3).at("fc2.weight"));
  EXPECT_NE(dumps.at(2).at("fc2.weight"), dumps.at(3).at("fc2.weight"));
  EXPECT_EQ(dumps.at(3).at("fc2.weight.updated").floats(), outcome.records[0].tensors.at("fc2.weight"));
  EXPECT_EQ(dumps.at(3).size(), 2U);
}

TEST(Dump, IsOfTheLastMicroBatchAndUnchangedByPoison) {
  proto::RunConfig job = dumping(config(1, 2));
  job.mutable_training()->set_gradient_accumulation(3);
  const Outcome outcome = run(job);

  // Step 2 takes micro-batches 3, 4 and 5 of two samples each. The last micro-batch has samples 10 and 11.
  const auto& dump = outcome.records[0].dumps.at(2);
  std::vector<std::byte> images;
  for (const std::uint64_t index : {10U, 11U}) {
    for (const char pixel : sample(index).first) {
      images.push_back(static_cast<std::byte>(pixel));
    }
  }
  EXPECT_EQ(dump.at("images").bytes, images);
  EXPECT_EQ(dump.at("conv1").shape, (std::vector<std::int64_t>{2, 32, 28, 28}));

  job.mutable_memory()->set_poison_dead(true);
  const Outcome poisoned = run(job);
  EXPECT_EQ(dump, poisoned.records[0].dumps.at(2));
  EXPECT_EQ(outcome.records[0].tensors, poisoned.records[0].tensors);
}

/// The tensors that a single replica dumps in step 2, which ends early, and the error that ends the step.
struct BrokenOff {
  std::map<std::string, Record::Dumped> dump;
  Error error;
};

BrokenOff break_off(const proto::RunConfig& job) {
  const auto program = compile(*compile_options(job, dataset()));
  const auto training = training_options(job, dataset());
  auto world = LocalWorld::create({.replicas = 1});
  EXPECT_TRUE(program && training && world);
  Progress progress;
  Record record;
  const HostWeights none;
  TrainingLoop loop(*program, *training,
                    {.communicator = (*world)->communicator(ReplicaId{0}),
                     .progress = progress,
                     .reporter = &record,
                     .initial_weights = none,
                     .streams = [&](JobStream /*stream*/, std::uint64_t /*first*/) {
                       return std::make_unique<SampleStream>(0, ~std::uint64_t{0}, 0, 1, job.data().micro_batch_size());
                     }});
  const auto result = loop.run();
  EXPECT_FALSE(result);
  return {record.dumps[2], result ? Error{} : result.error()};
}

/// Expects a number that is not finite in the dump of the tensor that the error names.
void expect_the_culprit(const BrokenOff& outcome, const std::string& name) {
  EXPECT_EQ(outcome.error.code, ErrorCode::kData);
  EXPECT_THAT(outcome.error.message, HasSubstr("of '" + name + "' "));
  ASSERT_TRUE(outcome.dump.contains(name));
  EXPECT_TRUE(std::ranges::any_of(outcome.dump.at(name).floats(), [](float value) { return !std::isfinite(value); }));
}

/// Returns a job whose rate is so high that the weights after step 1 are finite but the results of step 2 are not.
proto::RunConfig exploding(std::uint32_t accumulation) {
  proto::RunConfig job = dumping(config(1, 2));
  set_optimizer(job, "sgd");
  job.mutable_training()->set_learning_rate(1e30);
  job.mutable_training()->set_gradient_accumulation(accumulation);
  return job;
}

TEST(Dump, HoldsWhatAStepMadeUpToANumberThatIsNotFinite) {
  const BrokenOff outcome = break_off(exploding(1));

  expect_the_culprit(outcome, "conv2");
  const auto& dump = outcome.dump;
  for (const char* before : {"images", "normalized", "conv1", "pool1", "conv1.weight"}) {
    EXPECT_TRUE(dump.contains(before)) << before;
  }
  EXPECT_FALSE(dump.contains("fc1")) << "made after it";
  EXPECT_FALSE(dump.contains("conv1.weight.gradient")) << "made after it";
  EXPECT_FALSE(dump.contains("conv1.weight.updated")) << "made after it";
}

TEST(Dump, HoldsTheMicroBatchThatANumberEnds) {
  proto::RunConfig job = exploding(3);
  const BrokenOff outcome = break_off(job);

  // The error occurs in the first of the step's three micro-batches, which has samples 6 and 7.
  expect_the_culprit(outcome, "conv2");
  const auto& dump = outcome.dump;
  EXPECT_TRUE(dump.contains("pool1")) << "its input, still live";
  const std::vector<float> sums = dump.at("fc1.weight.accumulator").floats();
  EXPECT_TRUE(std::ranges::all_of(sums, [](float value) { return value == 0; }));
  EXPECT_FALSE(dump.contains("fc1.weight.accumulator.exchanged"));

  job.mutable_memory()->set_poison_dead(true);
  EXPECT_EQ(dump, break_off(job).dump);
}

TEST(Dump, NamesWhatIsNearWhereNothingMatches) {
  const auto program = compile(*compile_options(config(1, 4), dataset()));
  ASSERT_TRUE(program);

  const auto plans = plan_dumps(*program, {{"conv3.weight$", 1}}, 3);

  ASSERT_FALSE(plans);
  EXPECT_EQ(plans.error().code, ErrorCode::kUsage);
  EXPECT_THAT(plans.error().message, HasSubstr("matches 'conv3.weight$'; did you mean "));
  EXPECT_THAT(plans.error().message, HasSubstr("fc1.weight"));
  EXPECT_FALSE(plan_dumps(*program, {{"conv1", 4}}, 3)) << "beyond the last step";
  EXPECT_FALSE(plan_dumps(*program, {{"conv1(", 1}}, 3)) << "no expression";
  EXPECT_TRUE(plan_dumps(*program, {{"^conv1$", 1}, {"^conv1$", 1}}, 3));
}

}  // namespace
}  // namespace poprun::tensor_dump_test
