#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "replica/compilation/job_inputs.h"
#include "replica/compiler/automatic.h"
#include "replica/program/timeline.h"
#include "tests/unit/replica/training_job.h"

/// Laws of device times that hold for any chip, whatever its numbers.
namespace poprun {
namespace {

/// A training job on images of 64 x 64.
struct Case {
  const char* model;
  const char* precision;
  std::uint32_t ipus_per_replica;
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.model << " " << one.precision << " on " << one.ipus_per_replica;
}

class DeviceClockLaws : public ::testing::TestWithParam<Case> {
 protected:
  proto::RunConfig job(std::uint32_t replicas = 2, std::uint32_t micro_batch = 4) {
    proto::RunConfig job = testing::config(replicas, micro_batch);
    job.mutable_model()->set_name(GetParam().model);
    job.mutable_model()->set_precision(GetParam().precision);
    job.mutable_training()->set_evaluate(false);
    job.mutable_training()->set_gradient_accumulation(4);
    job.mutable_topology()->set_ipus_per_replica(GetParam().ipus_per_replica);
    return job;
  }

  /// Returns the seconds of a step on a changed device.
  double seconds(
      const proto::RunConfig& job, const std::function<void(Device&)>& change = [](Device&) {}) {
    proto::Dataset images = testing::dataset();
    for (const auto& [dimension, size] : {std::pair{0, 3U}, {1, 64U}, {2, 64U}}) {
      images.mutable_tensors(0)->set_sample_shape(dimension, size);
    }
    CompileOptions options = *compile_options(job, images);
    change(options.device);
    const Program program = *plan_program(options);
    const CallTime time = walk(program, *find_function(program, "train"));
    return static_cast<double>(time.length.count()) / options.device.clock_hz;
  }
};

TEST_P(DeviceClockLaws, TimeNeverFallsAsTheMicroBatchGrows) {
  double before = 0;
  for (const std::uint32_t micro_batch : {1U, 2U, 4U, 8U, 16U, 32U}) {
    const double now = seconds(job(2, micro_batch));
    EXPECT_GE(now, before) << micro_batch;
    before = now;
  }
}

TEST_P(DeviceClockLaws, TimeNeverRisesWithTheProportionOfMemoryForProducts) {
  double before = 1e9;
  for (const std::uint32_t permille : {0U, 50U, 100U, 200U, 400U, 600U, 900U}) {
    proto::RunConfig asked = job();
    asked.mutable_memory()->add_available_memory_proportion()->set_permille(permille);
    const double now = seconds(asked);
    EXPECT_LE(now, before) << permille;
    before = now;
  }
}

TEST_P(DeviceClockLaws, TimeNeverRisesWithARate) {
  using Rate = double Device::*;
  for (const Rate rate : {&Device::link_bytes_per_second, &Device::host_bytes_per_second,
                          &Device::gateway_bytes_per_second, &Device::streaming_bytes_per_second}) {
    double before = 1e9;
    for (const double factor : {0.25, 0.5, 1.0, 2.0, 4.0}) {
      const double now = seconds(job(128), [&](Device& device) { device.*rate *= factor; });
      EXPECT_LE(now, before) << factor;
      before = now;
    }
  }
}

TEST_P(DeviceClockLaws, SamplesPerSecondAndReplicaNeverRiseWithTheReplicas) {
  double before = 0;
  for (const std::uint32_t replicas : {1U, 2U, 4U, 16U, 64U, 128U, 256U}) {
    const double now = seconds(job(replicas));
    EXPECT_GE(now, before) << replicas;
    before = now;
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, DeviceClockLaws,
                         ::testing::Values(Case{"small-cnn", "float", 1}, Case{"resnet18", "half", 1},
                                           Case{"resnet18", "half", 2}));

}  // namespace
}  // namespace poprun
