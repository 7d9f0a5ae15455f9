#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include <gmock/gmock.h>

#include "replica/ports/checkpoint_store.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::testing::checkpoint_test {
namespace {

using ::testing::HasSubstr;

/// A checkpoint in memory, assembled from the parts of all replicas.
struct Stored {
  proto::HostState host;
  std::map<std::string, std::string> variables;
  std::uint64_t missing = 0;  ///< Bytes that have not arrived.
  std::uint32_t parts = 0;
  std::set<std::uint32_t> came;
};

class Checkpoints {
 public:
  explicit Checkpoints(std::uint64_t every) : every_(every) {}

  CheckpointStore* store(std::uint32_t replica) {
    const std::lock_guard lock(mutex_);
    return stores_.emplace(replica, std::make_unique<Store>(*this, replica)).first->second.get();
  }

  void leave_out(std::uint64_t step) { left_out_.insert(step); }

  [[nodiscard]] const std::map<std::uint64_t, Stored>& stored() const { return stored_; }

 private:
  class Store final : public CheckpointStore {
   public:
    Store(Checkpoints& all, std::uint32_t replica) : all_(all), replica_(replica) {}

    [[nodiscard]] bool is_due(std::uint64_t step) const override { return all_.every_ > 0 && step % all_.every_ == 0; }
    std::optional<std::span<std::byte>> begin(proto::StatePart part, bool /*is_last*/) override {
      if (all_.left_out_.contains(part.host().step())) {
        return std::nullopt;
      }
      EXPECT_EQ(part.replica(), replica_);
      part_ = std::move(part);
      std::size_t bytes = 0;
      for (const proto::StateSlice& slice : part_.slices()) {
        bytes += slice.bytes();
      }
      bytes_.resize(bytes);
      return std::as_writable_bytes(std::span(bytes_));
    }
    void send() override { all_.take(part_, bytes_); }

   private:
    Checkpoints& all_;
    std::uint32_t replica_;
    proto::StatePart part_;
    std::string bytes_;
  };

  void take(const proto::StatePart& part, std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    Stored& stored = stored_[part.host().step()];
    if (stored.variables.empty()) {
      for (const proto::StateVariable& variable : part.variables()) {
        stored.variables[variable.name()].resize(variable.bytes());
        stored.missing += variable.bytes();
      }
    }
    EXPECT_TRUE(stored.came.insert(part.replica()).second);
    stored.parts = part.parts();
    if (part.replica() == 0) {
      stored.host = part.host();
    }
    for (const proto::StateSlice& slice : part.slices()) {
      const std::string& name = part.variables(static_cast<int>(slice.variable())).name();
      stored.variables.at(name).replace(slice.offset(), slice.bytes(), bytes.substr(0, slice.bytes()));
      bytes.remove_prefix(slice.bytes());
      stored.missing -= slice.bytes();
    }
    EXPECT_TRUE(bytes.empty());
  }

  std::uint64_t every_;
  std::set<std::uint64_t> left_out_;  ///< Steps at which the previous checkpoint is still in flight.
  std::mutex mutex_;
  std::map<std::uint32_t, std::unique_ptr<Store>> stores_;
  std::map<std::uint64_t, Stored> stored_;
};

class Source final : public CheckpointSource {
 public:
  explicit Source(const Stored& stored) : stored_(stored) {}

  Status read(const proto::StateVariable& variable, std::span<std::byte> into) override {
    const auto found = stored_.variables.find(variable.name());
    if (found == stored_.variables.end() || found->second.size() != into.size()) {
      return fail(ErrorCode::kData, "another job's");
    }
    std::memcpy(into.data(), found->second.data(), into.size());
    return {};
  }

 private:
  const Stored& stored_;
};

/// Compiles a job. If its loss scaling is automatic, the loss is made so large that the first steps overflow.
Program compiled(const proto::RunConfig& job) {
  CompileOptions options = *compile_options(job, dataset());
  if (job.training().loss_scaling() == 0) {
    options.forward = [plain = options.forward](Builder& builder, const std::vector<TensorId>& inputs, bool t) {
      ModelOutputs outputs = plain(builder, inputs, t);
      const TensorId factor = builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", 64.0}}, "large");
      outputs.loss = builder.add_one("mul", {outputs.loss, factor}, {}, "large-loss");
      return outputs;
    };
  }
  const auto program = compile(options);
  EXPECT_TRUE(program) << program.error().message;
  return *program;
}

/// Compares the results of a resumed job with those of a job that was not stopped.
void expect_equal(const Outcome& resumed, const Outcome& whole) {
  EXPECT_EQ(resumed.records[0].tensors, whole.records[0].tensors);
  EXPECT_FALSE(whole.records[0].tensors.empty());
  const auto& steps = resumed.records[0].steps;
  const auto& all = whole.records[0].steps;
  ASSERT_LE(steps.size(), all.size());
  for (std::size_t k = 1; k <= steps.size(); ++k) {
    EXPECT_EQ(steps[steps.size() - k].loss, all[all.size() - k].loss);
    EXPECT_EQ(steps[steps.size() - k].device_seconds, all[all.size() - k].device_seconds);
  }
  for (std::size_t r = 0; r < whole.results.size(); ++r) {
    EXPECT_EQ(resumed.results[r].steps, whole.results[r].steps);
    EXPECT_EQ(resumed.results[r].device_time, whole.results[r].device_time);
    EXPECT_EQ(resumed.results[r].loss_scale, whole.results[r].loss_scale);
    EXPECT_EQ(resumed.results[r].skipped_steps, whole.results[r].skipped_steps);
    EXPECT_EQ(resumed.results[r].last_evaluation.loss, whole.results[r].last_evaluation.loss);
    EXPECT_EQ(resumed.results[r].last_evaluation.items, whole.results[r].last_evaluation.items);
  }
}

Outcome resume(const proto::RunConfig& job, const Stored& stored) {
  EXPECT_EQ(stored.missing, 0U);
  EXPECT_EQ(stored.came.size(), stored.parts);
  Source source(stored);
  return run_program(job, compiled(job), {}, kToTheEnd, {.store = nullptr, .state = &source, .resume = stored.host});
}

/// Takes a checkpoint after every step, and resumes the job from each checkpoint.
void expect_to_go_on_from_each(const proto::RunConfig& job) {
  const Outcome whole = run_program(job, compiled(job));
  Checkpoints checkpoints(1);
  const Outcome stored =
      run_program(job, compiled(job), {}, kToTheEnd, {.store = [&](auto r) { return checkpoints.store(r); }});
  expect_equal(stored, whole);  // Taking checkpoints changes no result.
  ASSERT_EQ(checkpoints.stored().size(), job.training().steps());
  EXPECT_EQ(whole.results[0].skipped_steps > 0, job.training().loss_scaling() == 0);
  for (const auto& [step, checkpoint] : checkpoints.stored()) {
    SCOPED_TRACE(step);
    EXPECT_FALSE(checkpoint.host.evaluation_due());
    expect_equal(resume(job, checkpoint), whole);
  }
}

proto::RunConfig job_of(std::uint32_t replicas) {
  proto::RunConfig job = config(replicas, 2);
  job.mutable_training()->set_steps(4);
  job.mutable_training()->set_evaluate_every_epochs(1);
  return job;
}

TEST(Checkpoint, OfMomentumGoesOnWithTheSameBits) {
  expect_to_go_on_from_each(job_of(1));
  expect_to_go_on_from_each(job_of(3));
}

TEST(Checkpoint, IsLeftOutWhereTheOneBeforeIsStillOnItsWay) {
  const proto::RunConfig job = job_of(2);
  Checkpoints checkpoints(1);
  checkpoints.leave_out(2);
  run_program(job, compiled(job), {}, kToTheEnd, {.store = [&](auto r) { return checkpoints.store(r); }});
  EXPECT_EQ(checkpoints.stored().size(), job.training().steps() - 1);
  EXPECT_FALSE(checkpoints.stored().contains(2));
}

TEST(Checkpoint, OfShardsInGroupsOnAndOffTheChipGoesOnWithTheSameBits) {
  proto::RunConfig job = job_of(4);
  set_optimizer(job, "adam");
  for (const char* kind : {"weights", "optimizer-state"}) {
    job.mutable_memory()->add_replicated_tensor_sharding(kind);
  }
  job.mutable_memory()->set_sharding_min_elements(1);
  for (const std::uint32_t group : {0U, 2U}) {
    job.mutable_memory()->set_sharding_group(group);
    expect_to_go_on_from_each(job);
  }
  job.mutable_memory()->set_optimizer_state("off-chip");
  expect_to_go_on_from_each(job);
}

TEST(Checkpoint, OfALossScaleThatSkipsStepsGoesOnWithTheSameBits) {
  proto::RunConfig job = job_of(2);
  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_loss_scaling(0);
  job.mutable_training()->set_learning_rate(0.001);
  job.mutable_training()->set_steps(12);
  expect_to_go_on_from_each(job);
}

TEST(Checkpoint, OfTensorsThatLiveOnTilesGoesOnWithTheSameBits) {
  proto::RunConfig job = job_of(2);
  job.mutable_device()->set_tiles(24);
  job.mutable_memory()->set_tiles("exact");
  job.mutable_training()->set_steps(2);
  expect_to_go_on_from_each(job);
}

TEST(Checkpoint, OfADrainedJobIsThatOfItsLastWholeStepWithTheEvaluationThatIsDue) {
  proto::RunConfig job = job_of(2);
  job.mutable_training()->set_gradient_accumulation(4);
  const std::uint64_t epoch = 64 / (2 * 2 * 4);
  job.mutable_training()->set_steps(2 * epoch);
  const Outcome whole = run_program(job, compiled(job));
  ASSERT_EQ(whole.records[0].evaluations.size(), 2U);
  const std::uint64_t parts = epoch * 4;
  const std::uint64_t batches = 24 / (2 * 2);
  for (const std::uint64_t last_part :
       {parts - 1, parts, parts + 1, parts + batches - 1, parts + batches, parts + batches + 3}) {
    SCOPED_TRACE(last_part);
    Checkpoints checkpoints(0);
    const Outcome drained =
        run_program(job, compiled(job), {}, last_part, {.store = [&](auto r) { return checkpoints.store(r); }});
    ASSERT_EQ(checkpoints.stored().size(), 1U);
    const Stored& stored = checkpoints.stored().begin()->second;
    const bool in_evaluation = last_part >= parts && last_part < parts + batches;
    EXPECT_EQ(stored.host.step(), last_part < parts ? epoch - 1 : epoch);
    EXPECT_EQ(stored.host.evaluation_due(), in_evaluation);
    EXPECT_EQ(stored.host.metric_rows(), drained.records[0].steps.size() + drained.records[0].evaluations.size());
    const Outcome resumed = resume(job, stored);
    expect_equal(resumed, whole);
    EXPECT_EQ(drained.records[0].evaluations.size() + resumed.records[0].evaluations.size(), 2U);
  }
}

TEST(Checkpoint, OfAnotherJobIsRefused) {
  Checkpoints checkpoints(1);
  const proto::RunConfig job = job_of(1);
  run_program(job, compiled(job), {}, kToTheEnd, {.store = [&](auto r) { return checkpoints.store(r); }});
  proto::RunConfig other = job;
  set_optimizer(other, "adam");
  Source source(checkpoints.stored().begin()->second);
  auto training = training_options(other, dataset());
  training->resume = checkpoints.stored().begin()->second.host;
  const auto world = LocalWorld::create({.replicas = 1});
  Progress progress;
  const HostWeights none;
  const Program program = compiled(other);
  TrainingLoop loop(
      program, *training,
      {.communicator = (*world)->communicator(ReplicaId{0}),
       .progress = progress,
       .reporter = nullptr,
       .initial_weights = none,
       .streams = [](JobStream, std::uint64_t first) { return std::make_unique<SampleStream>(0, 64, 0, 1, 2, first); },
       .state = &source});
  const auto result = loop.run();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kData);
}

}  // namespace
}  // namespace poprun::testing::checkpoint_test
