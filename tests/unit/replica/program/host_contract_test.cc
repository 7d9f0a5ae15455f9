/// The contract between a Program and its host, and the loops' compliance with it.

#include "replica/program/host_contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/loops/inference_loop.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/training_job.h"

namespace poprun {
namespace {

using testing::config;
using testing::dataset;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Storage for the tensors of a stream.
class Tensors {
 public:
  explicit Tensors(const std::vector<std::pair<std::string, std::size_t>>& floats_by_name) {
    for (const auto& [name, floats] : floats_by_name) {
      values_.emplace_back(name, std::vector<float>(floats));
    }
  }

  std::vector<NamedBytes> named() {
    std::vector<NamedBytes> tensors;
    for (auto& [name, floats] : values_) {
      tensors.push_back({name, std::as_writable_bytes(std::span(floats))});
    }
    return tensors;
  }

  [[nodiscard]] const std::vector<float>& operator[](std::size_t k) const { return values_[k].second; }

 private:
  std::vector<std::pair<std::string, std::vector<float>>> values_;
};

/// A weight may be called `step`, so the Program's tensor may have a different name, here `step.1`.
TEST(HostContract, BringsEachFieldToTheTensorInItsPlaceAndBack) {
  StepControl said{.learning_rate = 0.5F, .update = 7, .loss_scale = 4096.0F};
  Tensors tensors({{"learning-rate", 1}, {"step.1", 1}, {"loss-scale", 1}});

  ASSERT_TRUE(pack(JobStream::kControl, said.fields(), tensors.named()));

  EXPECT_THAT(tensors[0], ElementsAre(0.5F));
  EXPECT_THAT(tensors[1], ElementsAre(7.0F));
  EXPECT_THAT(tensors[2], ElementsAre(4096.0F));
  StepControl heard{.loss_scale = 0.0F};
  ASSERT_TRUE(unpack(JobStream::kControl, heard.fields(), tensors.named()));
  EXPECT_EQ(heard.learning_rate, 0.5F);
  EXPECT_EQ(heard.update, 7.0F);
  EXPECT_EQ(heard.loss_scale, 4096.0F);
}

TEST(HostContract, ReadsMetricsAsMeansOverTheItems) {
  StepOutcome said{.metrics = {.losses = {{4096, 2, 0.5F}}, .correct = {{0, 683, 0}}, .items = {{4096, -1364, 0}}},
                   .gradient_factor = 0.25F};
  Tensors tensors({{"train.metrics", 9}, {"gradient-factor", 1}});
  ASSERT_TRUE(pack(JobStream::kStep, said.fields(), tensors.named()));
  EXPECT_THAT(tensors[0], ElementsAre(4096.0F, 2.0F, 0.5F, 0.0F, 683.0F, 0.0F, 4096.0F, -1364.0F, 0.0F));

  StepOutcome heard{.gradient_factor = 0.0F};
  ASSERT_TRUE(unpack(JobStream::kStep, heard.fields(), tensors.named()));

  EXPECT_EQ(heard.metrics.loss(), 4098.5 / 2732);
  EXPECT_EQ(heard.metrics.accuracy(), 0.25);
  EXPECT_EQ(heard.gradient_factor, 0.25F);
  EXPECT_EQ(Metrics{}.loss(), 0.0) << "of no items";
}

TEST(HostContract, NamesTheTensorsOfWhichOneSideHasMore) {
  StepControl control;
  Tensors too_few({{"learning-rate", 1}});
  Tensors too_many({{"learning-rate", 1}, {"step", 1}, {"loss-scale", 1}});
  Tensors too_large({{"learning-rate", 1}, {"step", 2}});

  const auto error_with = [&control](Tensors& tensors) {
    return pack(JobStream::kControl, control.fields(), tensors.named()).error();
  };

  EXPECT_EQ(error_with(too_few).code, ErrorCode::kBug);
  EXPECT_EQ(error_with(too_few).message,
            "host stream control: the Program has 1 tensor, but needs 2, from 'learning-rate' to "
            "'step'");
  EXPECT_EQ(error_with(too_many).message,
            "host stream control: the Program has 3 tensors, but needs 2, from 'learning-rate' to "
            "'step'");
  EXPECT_EQ(error_with(too_large).message,
            "host stream control: the Program's tensor 'step' has 8 B, but 'step' needs 4 B");
}

/// Returns the tensors that a Program's function "train" reads from or writes to a stream.
google::protobuf::RepeatedField<std::uint32_t>& tensors_of_stream(Program& program, JobStream stream) {
  for (proto::Function& function : *program.mutable_functions()) {
    for (proto::Step& step : *function.mutable_steps()) {
      if (function.name() == "train" && step.stream_in().stream() == name_of(stream)) {
        return *step.mutable_stream_in()->mutable_tensors();
      }
      if (function.name() == "train" && step.stream_out().stream() == name_of(stream)) {
        return *step.mutable_stream_out()->mutable_tensors();
      }
    }
  }
  ADD_FAILURE() << "the Program has no stream " << name_of(stream);
  static google::protobuf::RepeatedField<std::uint32_t> none;
  return none;
}

TEST(TrainingLoop, RefusesAProgramThatLacksAField) {
  const proto::RunConfig job = config(1, 4);
  const auto failure_without_first_of = [&job](JobStream stream) {
    Program program = *compile(*compile_options(job, dataset()));
    auto& tensors = tensors_of_stream(program, stream);
    tensors.erase(tensors.begin());
    const auto options = training_options(job, dataset());
    auto world = LocalWorld::create({.replicas = 1});
    testing::Progress progress;
    const HostWeights none;
    TrainingLoop loop(program, *options,
                      {.communicator = (*world)->communicator(ReplicaId{0}),
                       .progress = progress,
                       .reporter = nullptr,
                       .initial_weights = none,
                       .streams = [](JobStream /*stream*/, std::uint64_t /*first*/) {
                         return std::make_unique<testing::SampleStream>(0, 64, 0, 1, 4);
                       }});
    return loop.run().error();
  };

  EXPECT_EQ(failure_without_first_of(JobStream::kControl).code, ErrorCode::kBug);
  EXPECT_THAT(failure_without_first_of(JobStream::kControl).message,
              HasSubstr("has 1 tensor, but needs 2, from 'learning-rate'"));
  EXPECT_THAT(failure_without_first_of(JobStream::kStep).message,
              HasSubstr("has 0 tensors, but needs 1, from 'train.metrics'"));
}

/// An outfeed that records what is pushed.
class Pushed final : public Outfeed {
 public:
  Status push(std::uint64_t batch, std::string_view type, std::span<const std::int64_t> shape,
              std::span<const std::byte> data) override {
    EXPECT_EQ(type, "f32");
    EXPECT_THAT(shape, ElementsAre(4, 10));
    batches.push_back(batch);
    bytes.insert(bytes.end(), data.begin(), data.end());
    return {};
  }

  std::vector<std::uint64_t> batches;
  std::vector<std::byte> bytes;
};

TEST(InferenceLoop, PushesEachBatchOnceAndCountsTheItems) {
  proto::RunConfig job = config(1, 4);
  job.set_inference(true);
  const Program program = *compile(*compile_options(job, dataset()));
  auto world = LocalWorld::create({.replicas = 1});
  ASSERT_TRUE(world);
  testing::Progress progress;
  testing::Record record;
  const HostWeights none;
  Pushed pushed;
  InferenceLoop loop(program, inference_options(job),
                     {.communicator = (*world)->communicator(ReplicaId{0}),
                      .progress = progress,
                      .reporter = &record,
                      .initial_weights = none,
                      .streams =
                          [](JobStream stream, std::uint64_t /*first*/) {
                            EXPECT_EQ(stream, JobStream::kTest);
                            return std::make_unique<testing::SampleStream>(0, 24, 0, 1, 4);
                          }},
                     pushed);

  const auto result = loop.run();

  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(pushed.batches, ElementsAre(0, 1, 2, 3, 4, 5)) << "24 items in batches of 4";
  EXPECT_EQ(pushed.bytes.size(), 24 * 10 * sizeof(float));
  ASSERT_EQ(record.evaluations.size(), 1U);
  EXPECT_EQ(record.evaluations[0].items, 24U);
  EXPECT_EQ(result->steps, 0U);
  EXPECT_TRUE(record.tensors.empty()) << "no weights are saved";
}

}  // namespace
}  // namespace poprun
