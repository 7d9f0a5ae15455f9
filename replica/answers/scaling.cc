#include "replica/answers/scaling.h"

#include <algorithm>

#include "replica/choices/choices.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compilation/job_length.h"
#include "replica/compilation/profile.h"
#include "replica/compiler/automatic.h"
#include "replica/program/program.h"
#include "replica/program/timeline.h"

namespace poprun {
namespace {

/// Cycles of the tiles of all IPUs, by activity.
struct Parts {
  Cycles tiles;
  Cycles all_reduce;
  Cycles copy;
  Cycles host;
};

/// Returns the part to which a stretch on the tiles of an IPU belongs. An exchange with other replicas includes its
/// synchronisation and the tiles' sums.
Cycles Parts::*part_of(const Stretch& stretch) {
  if (is_between_replicas(stretch.step)) {
    return &Parts::all_reduce;
  }
  switch (stretch.doing) {
    case Doing::kLink:
      return &Parts::copy;
    case Doing::kHost:
    case Doing::kStreaming:
      return &Parts::host;
    case Doing::kSync:
    case Doing::kExchange:
    case Doing::kCompute:
      break;
  }
  return &Parts::tiles;
}

Parts parts_of(const Program& program, const proto::Function& function) {
  Parts parts;
  walk(program, function, [&](const Stretch& stretch) {
    if (stretch.lane == Lane::kTiles) {
      parts.*part_of(stretch) += stretch.length * static_cast<std::int64_t>(stretch.count);
    }
  });
  return parts;
}

}  // namespace

Status answer_scale(const proto::CompileQuestion& job, proto::ScaledJob& answer) {
  const proto::RunConfig& config = job.config();
  POPRUN_ASSIGN(const auto onnx, onnx_model_of(config.model(), job.onnx_model()));
  POPRUN_ASSIGN(const CompileOptions options, compile_options(config, job.dataset(), onnx));
  POPRUN_ASSIGN(const Program program, plan_program(options));
  JobLength length;
  if (config.inference()) {
    POPRUN_ASSIGN(length.test_batches, test_batches(config, job.dataset()));
    length.steps = length.test_batches;
  } else if (const Result<JobLength> whole = job_length(config, job.dataset())) {
    length = *whole;
  } else {  // A step has more samples than the dataset.
    length.steps = config.training().steps();
  }
  const proto::DeviceTime device = device_time(program, config, length);
  const JobFunction called = config.inference() ? JobFunction::kEvaluate : JobFunction::kTrain;
  const Parts parts = parts_of(program, *find_function(program, name_of(called)));
  const auto steps = static_cast<double>(config.inference() ? std::max<std::uint64_t>(length.test_batches, 1) : 1);
  const auto ipus = static_cast<double>(device.ipus_size());
  const auto mean = [&](Cycles cycles) { return device_seconds(program, cycles) / ipus / steps; };

  *answer.mutable_batch_sizes() = batch_sizes(config);
  answer.set_step_seconds(device.step_seconds());
  answer.set_samples_per_second(device.samples_per_second());
  answer.set_compared_error(device.compared_error());
  answer.set_tile_seconds(mean(parts.tiles));
  answer.set_all_reduce_seconds(mean(parts.all_reduce));
  answer.set_copy_seconds(mean(parts.copy));
  answer.set_host_seconds(mean(parts.host) + (device.host().calls_are_counted() ? device.host().call_seconds() : 0));
  for (const proto::IpuTime& ipu : device.ipus()) {
    answer.set_idle_seconds(answer.idle_seconds() + ipu.idle_seconds() / ipus);
  }
  answer.set_hidden_seconds(mean(Cycles{static_cast<std::int64_t>(device.step_cost().background_cycles())}));
  answer.set_steps(length.steps);
  answer.set_run_seconds(static_cast<double>(length.steps) * device.step_seconds());
  if (device.has_disturbed()) {
    *answer.mutable_disturbed() = device.disturbed();
    answer.set_samples_per_second(device.disturbed().samples_per_second());
    answer.set_run_seconds(device.disturbed().total_seconds());
  }
  const double ipu_hours = answer.run_seconds() / 3600 * ipus * static_cast<double>(config.topology().num_replicas());
  answer.set_run_kilowatt_hours(ipu_hours * config.device().watts() / 1000);
  answer.set_run_cost(ipu_hours * config.device().price());
  answer.set_fits(std::ranges::all_of(program.memory(), fits));
  answer.set_peak_bytes(fullest(program).peak());
  answer.set_capacity_bytes(fullest(program).capacity());
  return {};
}

}  // namespace poprun
