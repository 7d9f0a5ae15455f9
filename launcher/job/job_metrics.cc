// The metrics of a job for a monitoring system (--metrics-port). Class Job begins in job.cc.
#include <chrono>

#include <fmt/format.h>

#include "launcher/job/job.h"

namespace poprun::launcher {
namespace {

/// Converts an accuracy from a report, in which -1 means that there is none.
std::optional<double> accuracy_of(double accuracy) {
  return accuracy < 0 ? std::nullopt : std::optional(accuracy);
}

/// Returns the phase that the metrics report. `started` says whether all instances have joined and received the job.
JobPhase phase_told(Phase phase, bool started, const JobRecord& record) {
  switch (phase) {
    case Phase::kEnding:
    case Phase::kClosing:
    case Phase::kWaitingForDisk:
      return JobPhase::kStopping;
    case Phase::kDraining:
    case Phase::kSavingEarly:
      return JobPhase::kDraining;
    case Phase::kRunning:
    case Phase::kAskingHosts:
    case Phase::kSaving:
      break;
  }
  const bool compiled = record.progress().shape_known() || record.results().check().plan().runs() > 0;
  return record.results().reported() ? JobPhase::kSaving
         : compiled                  ? JobPhase::kRunning
         : started                   ? JobPhase::kCompiling
                                     : JobPhase::kStarting;
}

void add_training(JobMetrics& metrics, const Progress& progress, bool inference) {
  if (const double speed = progress.samples_per_second(); speed > 0) {
    metrics.samples_per_second = speed;
  }
  if (inference) {
    metrics.items = progress.done();
  } else if (progress.shape_known()) {
    metrics.step = progress.steps();
    metrics.last_step = progress.total_steps();
  }
  if (const proto::StepMetrics& last = progress.last(); last.step() > 0) {
    metrics.epoch = last.epoch();
    metrics.loss = last.loss();
    metrics.accuracy = accuracy_of(last.accuracy());
  }
  if (const proto::EvaluationMetrics& last = progress.last_evaluation(); last.items() > 0) {
    metrics.evaluation = {.loss = last.loss(), .accuracy = accuracy_of(last.accuracy())};
  }
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Status Job::start_metrics() {
  if (options_.metrics.port == 0) {
    return {};
  }
  // The time of the launch is computed only once, since a later change of the clock must not move it.
  const double launched = seconds_since_1970() - (world_.now() - launched_at_);
  const auto page = [this, launched] {
    JobMetrics told = metrics(world_.now());
    told.start_time_seconds = launched;
    return exposition_of(told);
  };
  POPRUN_ASSIGN(metrics_server_, MetricsServer::start(loop_, metrics_address(), options_.metrics.port, page,
                                                      security_.identity(metrics_leave_loopback())));
  console_.say(fmt::format("metrics: {}", metrics_server_->url()));
  return {};
}

JobMetrics Job::metrics(double now) const {
  JobMetrics metrics;
  metrics.version = POPRUN_VERSION;
  metrics.phase = phase_told(phase_, data_waits_ && state_.all_joined(), record_);
  metrics.replicas = placement_.num_replicas;
  metrics.instances = placement_.num_instances;
  for (const InstanceView& instance : state_.instances()) {
    metrics.instances_joined += instance.joined && !instance.left && !instance.lost ? 1 : 0;
  }
  if (const std::optional<double> oldest = state_.oldest_heartbeat()) {
    metrics.heartbeat_age_seconds = now - *oldest;
  }
  add_training(metrics, record_.progress(), options_.config.inference());
  if (const std::optional<Straggler>& slowest = stragglers_.slowest()) {
    metrics.slowest = {.replica = slowest->replica,
                       .step_seconds = slowest->seconds_per_step,
                       .others_step_seconds = slowest->usual_seconds};
  }
  metrics.restarts = history_.restarts;
  if (checkpoints_.last_step() > 0) {
    metrics.checkpoint = {.step = checkpoints_.last_step(), .age_seconds = now - checkpoints_.last_at()};
  }
  return metrics;
}

}  // namespace poprun::launcher
