#include "replica/compilation/profile.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "replica/choices/choices.h"
#include "replica/device/calibration.h"
#include "replica/program/host_contract.h"
#include "replica/program/lanes.h"
#include "replica/program/timeline.h"
#include "replica/program/virtual_pod.h"

namespace poprun {
namespace {

/// One replica's figures, as it sends them to the other replicas.
struct Figures {
  double startup;
  double training;
  double evaluation;
  double compute;
  double exchange;
  double host;
};

Result<std::vector<Figures>> figures_of_all(const Figures& mine, Communicator& communicator) {
  std::vector<Figures> all(communicator.size());
  POPRUN_TRY(communicator.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                                     "wall times"));
  return all;
}

double mean_of(const std::vector<Figures>& all, double Figures::*field) {
  double sum = 0;
  for (const Figures& figures : all) {
    sum += figures.*field;
  }
  return sum / static_cast<double>(all.size());
}

proto::Spread spread_of(const std::vector<Figures>& all, double Figures::*field, const proto::Topology& topology) {
  const auto by_field = [field](const Figures& figures) { return figures.*field; };
  const auto [min, max] = std::ranges::minmax_element(all, {}, by_field);
  const auto replica = static_cast<std::uint32_t>(max - all.begin());
  proto::Spread spread;
  spread.set_min((*min).*field);
  spread.set_mean(mean_of(all, field));
  spread.set_max((*max).*field);
  spread.set_max_replica(replica);
  const std::uint32_t instances = static_cast<std::uint32_t>(topology.instance_host_size());
  spread.set_max_host(topology.instance_host(static_cast<int>(replica / (topology.num_replicas() / instances))));
  return spread;
}

/// Returns the high-water mark of each IPU: that of its images or, if tensors live on tiles, of all its tiles together.
std::vector<Bytes> used(const LoopResult& result) {
  if (result.tile_high_water.empty()) {
    return result.high_water;
  }
  std::vector<Bytes> marks;
  for (const std::vector<Bytes>& tiles : result.tile_high_water) {
    marks.push_back(std::accumulate(tiles.begin(), tiles.end(), Bytes{0}));
  }
  return marks;
}

Result<std::vector<std::int64_t>> highest_marks(const std::vector<Bytes>& marks, Communicator& communicator) {
  std::vector<std::int64_t> mine;
  for (const Bytes mark : marks) {
    mine.push_back(mark.count());
  }
  std::vector<std::int64_t> all(mine.size() * communicator.size());
  POPRUN_TRY(communicator.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                                     "high-water marks"));
  for (std::size_t i = 0; i < all.size(); ++i) {
    mine[i % mine.size()] = std::max(mine[i % mine.size()], all[i]);
  }
  return mine;
}

proto::Outcome outcome_of(const LoopResult& result) {
  proto::Outcome outcome;
  outcome.set_steps(result.steps);
  outcome.set_epochs(result.last_step.epoch);
  outcome.set_final_loss(result.last_step.loss);
  outcome.set_train_accuracy(result.last_step.accuracy);
  const bool evaluated = result.last_evaluation.items > 0;
  outcome.set_test_accuracy(evaluated ? result.last_evaluation.accuracy : -1.0);
  outcome.set_test_loss(evaluated ? result.last_evaluation.loss : 0.0);
  outcome.set_test_items(result.last_evaluation.items);
  outcome.set_drained(result.drained);
  outcome.set_resumed_after_step(result.resumed_after);
  outcome.set_skipped_steps(result.skipped_steps);
  outcome.set_loss_scale(result.loss_scale);
  return outcome;
}

proto::WallTime wall_of(const std::vector<Figures>& all, const proto::RunConfig& config, double samples) {
  proto::WallTime wall;
  wall.set_startup_seconds(mean_of(all, &Figures::startup));
  wall.set_training_seconds(mean_of(all, &Figures::training));
  wall.set_evaluation_seconds(mean_of(all, &Figures::evaluation));
  *wall.mutable_compute_seconds() = spread_of(all, &Figures::compute, config.topology());
  *wall.mutable_exchange_seconds() = spread_of(all, &Figures::exchange, config.topology());
  *wall.mutable_host_stream_seconds() = spread_of(all, &Figures::host, config.topology());
  const double seconds = config.inference() ? wall.evaluation_seconds() : wall.training_seconds();
  wall.set_samples_per_second(seconds > 0 ? samples / seconds : 0);
  return wall;
}

}  // namespace

proto::BatchSizes batch_sizes(const proto::RunConfig& config) {
  const std::uint64_t micro = config.data().micro_batch_size();
  const std::uint64_t replica = micro * (config.inference() ? 1 : config.training().gradient_accumulation());
  proto::BatchSizes sizes;
  sizes.set_compute_batch_size(compute_batch_size(config));
  sizes.set_micro_batch_size(micro);
  sizes.set_replica_batch_size(replica);
  sizes.set_global_batch_size(replica * config.topology().num_replicas());
  return sizes;
}

namespace {

/// Returns the mean host time per step, if one call of `function` runs `steps` steps. The host makes no other call.
proto::HostTime host_time(const Program& program, const proto::Function& function, const CallTime& call,
                          std::uint64_t steps) {
  const auto mean = [steps](double sum) { return sum / static_cast<double>(steps); };
  const HostTraffic traffic = host_traffic(program, function);
  Cycles streams;
  for (const proto::Cost& busy : call.busy) {
    streams += Cycles{static_cast<std::int64_t>(busy.host_cycles())};
  }
  proto::HostTime host;
  host.set_bytes_to_device(mean(static_cast<double>(traffic.to_device.count())));
  host.set_bytes_from_device(mean(static_cast<double>(traffic.from_device.count())));
  host.set_stream_seconds(mean(device_seconds(program, streams)));
  host.set_calls(mean(1));
  return host;
}

/// Adds the time of the host's calls: what device.host-call asks for or, in inference without it, the fitted time of a
/// call, which is not part of the step.
void set_calls(const proto::RunConfig& config, std::uint64_t parameters, proto::HostTime& host) {
  const std::string& asked = config.device().host_call();
  if (!asked.empty()) {
    host.set_calls(1.0 / std::max(1U, config.device().steps_per_call()));
    host.set_calls_are_counted(true);
  }
  if (config.inference() && (asked.empty() || is_framework(asked))) {
    host.set_call_seconds(kInferenceCall.seconds * host.calls() +
                          kInferenceCall.seconds_per_byte * host.bytes_to_device());
  } else {
    host.set_call_seconds(host_call_seconds(asked, parameters) * host.calls());
  }
}

/// Adds the parts of stages that `steps` call to `parts`, keyed by name.
void find_parts(const Program& program, const google::protobuf::RepeatedPtrField<proto::Step>& steps,
                std::map<std::string, const proto::Function*>& parts) {
  for (const proto::Step& step : steps) {
    if (step.has_repeat()) {
      find_parts(program, step.repeat().steps(), parts);
    }
    const proto::Function* callee = step.has_call() ? find_function(program, step.call().function()) : nullptr;
    if (callee != nullptr && callee->has_part()) {
      parts.emplace(callee->name(), callee);
    }
  }
}

/// Returns the times of stages, or none if `function` calls no parts.
std::vector<proto::StageTime> stage_times(const Program& program, const proto::Function& function) {
  std::map<std::string, const proto::Function*> parts;
  find_parts(program, function.steps(), parts);
  std::vector<proto::StageTime> stages;
  for (const proto::Stage& stage : program.stages()) {
    proto::StageTime& time = stages.emplace_back();
    time.set_ipu(stage.ipu());
    *time.mutable_layers() = stage.layers();
  }
  for (const auto& [name, part] : parts) {
    proto::StageTime& time = stages.at(part->part().stage());
    const auto cycles = static_cast<std::uint64_t>(walk(program, *part).length.count());
    part->part().backward() ? time.set_backward_cycles(cycles) : time.set_forward_cycles(cycles);
  }
  return parts.empty() ? std::vector<proto::StageTime>{} : stages;
}

/// Returns the error of the clock on published results of such jobs, or 0 if there are none. They train the built-in
/// model in its own size, in half precision, on a whole IPU, with batch norms of each replica alone.
double error_of_such_jobs(const proto::RunConfig& config) {
  const proto::ModelConfig& model = config.model();
  const bool own_size = std::ranges::all_of(model.sizes(), [](const auto& size) { return size.first == "vocabulary"; });
  const bool whole = config.device().tiles() == 0 && config.device().bytes_per_tile() == 0;
  const bool half = open_choice<Precision>(model.precision()) == Precision::kHalf;
  const bool alone = model.norm_span() <= 1;
  return own_size && whole && half && alone && model.onnx().empty() && !config.inference()
             ? compared_error(model.name())
             : 0;
}

}  // namespace

VirtualPod virtual_pod(const Program& program, const proto::RunConfig& config) {
  return {program, config.what_if(), config.topology().num_replicas(), config.training().seed()};
}

proto::DeviceTime device_time(const Program& program, const proto::RunConfig& config, const JobLength& length) {
  const bool inference = config.inference();
  const JobFunction function = inference ? JobFunction::kEvaluate : JobFunction::kTrain;
  const proto::Function& called = *find_function(program, name_of(function));
  const CallTime call = walk(program, called);
  const std::uint64_t steps = inference ? std::max<std::uint64_t>(length.test_batches, 1) : 1;
  const auto seconds = [&](Cycles cycles) { return device_seconds(program, cycles) / static_cast<double>(steps); };
  proto::DeviceTime device;
  device.set_clock_hz(program.device().clock_hz());
  device.set_step_seconds(seconds(call.length));
  device.set_utilisation(call.utilisation());
  for (std::size_t ipu = 0; ipu < call.busy.size(); ++ipu) {
    add_cost(*device.mutable_step_cost(), call.busy[ipu]);
    const proto::Cost& busy = call.busy[ipu];
    if (busy.io_cycles() > 0) {
      const auto of = [&](std::uint64_t cycles) { return seconds(Cycles{static_cast<std::int64_t>(cycles)}); };
      device.set_io_seconds(device.io_seconds() + of(busy.io_cycles()));
      device.set_io_waited_seconds(device.io_waited_seconds() + of(busy.host_cycles() + busy.streaming_cycles()));
    }
    proto::IpuTime& time = *device.add_ipus();
    time.set_busy_seconds(seconds(call.busy_cycles(ipu)));
    time.set_idle_seconds(seconds(call.idle_cycles(ipu)));
  }
  device.set_compared_error(error_of_such_jobs(config));
  *device.mutable_host() = host_time(program, called, call, steps);
  set_calls(config, program.parameter_count(), *device.mutable_host());
  if (device.host().calls_are_counted()) {
    device.set_step_seconds(device.step_seconds() + device.host().call_seconds());
  }
  device.set_samples_per_second(static_cast<double>(batch_sizes(config).global_batch_size()) / device.step_seconds());
  for (const proto::StageTime& stage : stage_times(program, called)) {
    *device.add_stages() = stage;
  }
  if (config.has_what_if()) {
    VirtualPod pod = virtual_pod(program, config);
    const double call_seconds = device.host().calls_are_counted() ? device.host().call_seconds() : 0;
    *device.mutable_disturbed() = pod.job(length.steps, batch_sizes(config).global_batch_size(), call_seconds);
  }
  return device;
}

proto::JobShape job_shape(const Program& program, const proto::RunConfig& config, const JobLength& length) {
  proto::JobShape shape;
  shape.set_total_steps(config.inference() ? length.test_batches : length.steps);
  shape.set_steps_per_epoch(length.steps_per_epoch);
  shape.set_samples_per_step(batch_sizes(config).global_batch_size());
  shape.set_parameter_count(program.parameter_count());
  shape.set_operator_count(program.operator_count());
  *shape.mutable_notes() = program.notes();
  shape.set_planned_peak_bytes(fullest(program).peak());
  shape.set_memory_capacity_bytes(fullest(program).capacity());
  return shape;
}

namespace {

/// Returns the configuration after filling in the default for recomputation, which depends on the compiled stages.
proto::RunConfig with_defaults(proto::RunConfig config, const Program& program) {
  proto::PipelineConfig& pipeline = *config.mutable_pipeline();
  if (pipeline.recomputation().empty() && !config.inference()) {
    std::set<std::uint32_t> stages;
    for (const proto::Function& function : program.functions()) {
      if (function.has_part()) {
        stages.insert(function.part().stage());
      }
    }
    const Schedule schedule = schedule_of(choice_of<Schedule>(pipeline.schedule()), config.memory().phases());
    pipeline.set_recomputation(word_of(default_recomputation(stages.size(), schedule)));
  }
  return config;
}

}  // namespace

proto::Profile compiled_profile(const Program& program, const proto::RunConfig& config,
                                const proto::DeviceTime& device) {
  proto::Profile profile;
  profile.set_version(POPRUN_VERSION);
  (*profile.mutable_library_versions())["oneDNN"] = numerics_library_version();
  *profile.mutable_config() = with_defaults(config, program);
  profile.set_parameter_count(program.parameter_count());
  profile.set_operator_count(program.operator_count());
  *profile.mutable_notes() = program.notes();
  for (const proto::IpuMemory& memory : program.memory()) {
    *profile.add_planned_memory() = without_layout(memory);
  }
  profile.set_out_of_memory(!std::ranges::all_of(program.memory(), fits));
  *profile.mutable_batch_sizes() = batch_sizes(config);
  *profile.mutable_device() = device;
  return profile;
}

Result<proto::Profile> make_profile(const Program& program, const proto::RunConfig& config, const JobLength& length,
                                    const LoopResult& result, double startup_seconds, Communicator& communicator,
                                    const proto::DeviceTime& device) {
  POPRUN_ASSIGN(const std::vector<Figures> figures, figures_of_all({.startup = startup_seconds,
                                                                    .training = result.training_seconds,
                                                                    .evaluation = result.evaluation_seconds,
                                                                    .compute = result.wall.compute,
                                                                    .exchange = result.wall.exchange,
                                                                    .host = result.wall.host},
                                                                   communicator));
  POPRUN_ASSIGN(const std::vector<std::int64_t> marks, highest_marks(used(result), communicator));

  proto::Profile profile = compiled_profile(program, config, device);
  for (const std::int64_t mark : marks) {
    profile.add_measured_peak_bytes(static_cast<std::uint64_t>(mark));
  }
  profile.mutable_device()->set_total_seconds(device_seconds(program, result.device_time));
  for (const Note& note : result.notes) {
    *profile.add_notes() = to_proto(note);
  }

  const auto samples = static_cast<double>(
      config.inference() ? length.test_items : result.steps * profile.batch_sizes().global_batch_size());
  *profile.mutable_wall() = wall_of(figures, config, samples);
  *profile.mutable_outcome() = outcome_of(result);
  profile.mutable_outcome()->set_epochs(static_cast<std::uint32_t>(result.steps / length.steps_per_epoch));
  return profile;
}

}  // namespace poprun
