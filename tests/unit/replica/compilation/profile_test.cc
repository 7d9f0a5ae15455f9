/// A step's device time in the profile: the time of each stage, and the host overhead.

#include "replica/compilation/profile.h"

#include <map>
#include <string>

#include <gmock/gmock.h>

#include "replica/compiler/automatic.h"
#include "replica/device/calibration.h"
#include "replica/program/lanes.h"
#include "tests/unit/replica/pipeline_program.h"
#include "tests/unit/replica/training_job.h"

namespace poprun {
namespace {

using testing::add_execute;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::pipeline_program;
using testing::program_of_ipus;

proto::RunConfig one_replica() {
  proto::RunConfig config;
  config.mutable_data()->set_micro_batch_size(1);
  config.mutable_training()->set_gradient_accumulation(4);
  config.mutable_topology()->set_num_replicas(1);
  return config;
}

TEST(DeviceTime, ListsStagesWithTheirIpuLayersAndCycles) {
  // The last stage is on the same IPU as the first.
  Program program = pipeline_program(make_timetable(Schedule::kGrouped, {0, 1, 0}, 4, true),
                                     {{.forward = 3, .backward = 7},
                                      {.forward = 20, .backward = 40, .recomputation = 20},
                                      {.forward = 5, .backward = 6}});
  const std::vector<std::vector<std::string>> layers = {{"embeddings"}, {"h.0", "h.1"}, {"head"}};
  for (std::uint32_t s = 0; s < 3; ++s) {
    proto::Stage& stage = *program.add_stages();
    stage.set_ipu(s % 2);
    stage.mutable_layers()->Assign(layers[s].begin(), layers[s].end());
  }

  const proto::DeviceTime time = device_time(program, one_replica(), {});

  ASSERT_EQ(time.stages_size(), 3);
  const auto expect = [&](int s, std::uint32_t ipu, std::uint64_t forward, std::uint64_t backward) {
    EXPECT_EQ(time.stages(s).ipu(), ipu);
    EXPECT_EQ(time.stages(s).forward_cycles(), forward);
    EXPECT_EQ(time.stages(s).backward_cycles(), backward);
  };
  expect(0, 0, 3, 7);
  expect(1, 1, 20, 60);
  expect(2, 0, 5, 6);
  EXPECT_THAT(time.stages(1).layers(), ElementsAre("h.0", "h.1"));
}

/// Returns a Program that streams 100 B in, and then 10 B in and 1 B out in each of 4 rounds.
Program streaming_program(const std::string& name) {
  Program program = program_of_ipus(1);
  for (const std::uint64_t bytes : {10U, 1U, 100U}) {
    program.add_tensors()->set_bytes(bytes);
  }
  proto::Function& function = *program.add_functions();
  function.set_name(name);
  proto::Step& first = *function.add_steps();
  first.mutable_stream_in()->add_tensors(3);
  first.mutable_cost()->set_host_cycles(50);
  proto::Repeat& repeat = *function.add_steps()->mutable_repeat();
  repeat.set_count(4);
  proto::Step& call = *repeat.add_steps();
  call.mutable_call()->set_function("part");
  proto::Function& part = *program.add_functions();
  part.set_name("part");
  proto::Step& in = *part.add_steps();
  in.mutable_stream_in()->add_tensors(1);
  in.mutable_cost()->set_host_cycles(5);
  add_execute(*part.mutable_steps(), 0, 1000);
  part.add_steps()->mutable_stream_out()->add_tensors(2);
  return program;
}

TEST(HostTraffic, CountsEveryRoundOfEveryCall) {
  const Program program = streaming_program("train");

  const HostTraffic traffic = host_traffic(program, program.functions(0));

  EXPECT_EQ(traffic.to_device, Bytes{140});
  EXPECT_EQ(traffic.from_device, Bytes{4});
}

TEST(DeviceTime, OfAStepHasTheTrafficOfTheHost) {
  const proto::DeviceTime time = device_time(streaming_program("train"), one_replica(), {});

  EXPECT_DOUBLE_EQ(time.step_seconds(), 4070e-9);  // At 1 GHz.
  EXPECT_EQ(time.host().bytes_to_device(), 140);
  EXPECT_EQ(time.host().bytes_from_device(), 4);
  EXPECT_DOUBLE_EQ(time.host().stream_seconds(), 70e-9);
  EXPECT_EQ(time.host().calls(), 1);
  EXPECT_EQ(time.host().call_seconds(), 0);  // Unknown in training, without device.host-call.
  EXPECT_THAT(time.stages(), IsEmpty());
}

TEST(DeviceTime, OfAStepIncludesTheHostCallIfTheJobAsksForIt) {
  proto::RunConfig config = one_replica();
  Program program = streaming_program("train");
  program.set_parameter_count(100'000'000);
  const proto::DeviceTime without = device_time(program, config, {});
  EXPECT_FALSE(without.host().calls_are_counted());
  for (const auto& [text, seconds] :
       std::map<std::string, double>{{"0.25", 0.25}, {"popart", 0.16}, {"poptorch", 0.3}, {"0", 0}}) {
    config.mutable_device()->set_host_call(text);
    const proto::DeviceTime time = device_time(program, config, {});
    EXPECT_TRUE(time.host().calls_are_counted());
    EXPECT_DOUBLE_EQ(time.host().call_seconds(), seconds);
    EXPECT_DOUBLE_EQ(time.step_seconds(), without.step_seconds() + seconds);
    EXPECT_DOUBLE_EQ(time.samples_per_second(), 4 / time.step_seconds());
  }
}

TEST(DeviceTime, IsComparedWithChipsOnlyForJobsLikeThePublishedOnes) {
  proto::RunConfig config = one_replica();
  config.mutable_model()->set_name("resnet50");
  config.mutable_model()->set_precision("half");
  const auto error = [&config] { return device_time(streaming_program("train"), config, {}).compared_error(); };
  EXPECT_EQ(error(), compared_error("resnet50"));
  config.mutable_model()->set_norm_span(2);
  EXPECT_EQ(error(), 0);
  config.mutable_model()->set_norm_span(1);
  config.mutable_model()->set_precision("float");
  EXPECT_EQ(error(), 0);
}

TEST(DeviceTime, SharesTheHostCallAmongTheStepsOfACall) {
  proto::RunConfig config = one_replica();
  const proto::DeviceTime without = device_time(streaming_program("train"), config, {});
  config.mutable_device()->set_host_call("0.5");
  config.mutable_device()->set_steps_per_call(50);

  const proto::DeviceTime time = device_time(streaming_program("train"), config, {});

  EXPECT_DOUBLE_EQ(time.host().calls(), 0.02);
  EXPECT_DOUBLE_EQ(time.step_seconds(), without.step_seconds() + 0.01);
}

TEST(DeviceTime, OfABatchIncludesTheHostCallIfTheJobAsksForIt) {
  proto::RunConfig config = one_replica();
  config.set_inference(true);

  const proto::DeviceTime time = device_time(streaming_program("evaluate"), config, {.test_batches = 4});

  EXPECT_EQ(time.host().bytes_to_device(), 35);
  EXPECT_EQ(time.host().calls(), 0.25);
  const double copying = 35 * 0.2012e-3 / 602'112;
  EXPECT_DOUBLE_EQ(time.host().call_seconds(), 1.68e-3 / 4 + copying);
  EXPECT_FALSE(time.host().calls_are_counted());

  config.mutable_device()->set_host_call("poptorch");  // One call per batch, and its time is part of the batch.
  const proto::DeviceTime counted = device_time(streaming_program("evaluate"), config, {.test_batches = 4});
  EXPECT_EQ(counted.host().calls(), 1);
  EXPECT_DOUBLE_EQ(counted.step_seconds(), time.step_seconds() + 1.68e-3 + copying);

  config.mutable_device()->set_host_call("0.5");
  config.mutable_device()->set_steps_per_call(2);
  EXPECT_DOUBLE_EQ(device_time(streaming_program("evaluate"), config, {.test_batches = 4}).step_seconds(),
                   time.step_seconds() + 0.25);
}

TEST(Compile, SaysWhatEachStageHolds) {
  const auto stages_of = [](std::uint32_t ipus) {
    proto::RunConfig config = testing::config(1, 4);
    config.mutable_topology()->set_ipus_per_replica(ipus);
    if (ipus == 2) {
      config.mutable_pipeline()->add_split("fc1");
      config.mutable_pipeline()->set_schedule("grouped");
    }
    const auto options = compile_options(config, testing::dataset());
    EXPECT_TRUE(options) << options.error().message;
    const auto program = plan_program(*options);
    EXPECT_TRUE(program) << program.error().message;
    std::vector<std::string> texts;
    for (const proto::Stage& stage : program->stages()) {
      std::string text = std::to_string(stage.ipu()) + ":";
      for (const std::string& layer : stage.layers()) {
        text += " " + layer;
      }
      texts.push_back(text);
    }
    return texts;
  };
  EXPECT_THAT(stages_of(1), ElementsAre("0: conv1 conv2 fc1 fc2"));
  EXPECT_THAT(stages_of(2), ElementsAre("0: conv1 conv2", "1: fc1 fc2"));
}

TEST(JobLength, OfAProfileHasNoEvaluationAndFewBatchesOfInference) {
  proto::RunConfig job = testing::config(2, 4);
  job.mutable_profile()->set_steps(2);
  EXPECT_EQ(job_length(job, testing::dataset())->test_items, 0U);
  job.set_inference(true);
  EXPECT_EQ(job_length(job, testing::dataset())->test_items, 16U);
  EXPECT_EQ(job_length(job, testing::dataset())->test_batches, 2U);
  job.mutable_profile()->set_steps(100);
  EXPECT_EQ(job_length(job, testing::dataset())->test_items, 24U) << "all there are";
}

}  // namespace
}  // namespace poprun
