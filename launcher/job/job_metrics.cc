// The metrics of a job for a monitoring system (--metrics-port). Class Job begins in job.cc.
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

}  // namespace

Status Job::start_metrics() {
  if (options_.metrics.port == 0) {
    return {};
  }
  // The time of the first launch is computed once per attempt, since a later change of the clock must not move it.
  const double launched = unix_seconds() - (world_.now() - history_.goodput.launched_at());
  const auto metrics_page = [this, launched] {
    JobMetrics told = metrics(world_.now());
    told.start_time_seconds = launched;
    return exposition_of(told);
  };
  const auto status_page = [this, launched] {
    JobStatus told = status(world_.now());
    told.metrics.start_time_seconds = launched;
    return status_json(told);
  };
  POPRUN_ASSIGN(metrics_server_, MetricsServer::start(loop_, metrics_address(), options_.metrics.port,
                                                      {.metrics = metrics_page, .status = status_page},
                                                      security_.identity(metrics_leave_loopback())));
  console_.say(fmt::format("metrics: {}metrics", metrics_server_->url()));
  console_.say(fmt::format("live page: {}", metrics_server_->url()));
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
  if (trains()) {
    metrics.steps_executed = history_.training.steps();
    metrics.samples = history_.training.samples();
    metrics.checkpoints = history_.checkpoints + checkpoints_.stored();
    metrics.goodput = history_.goodput.parts();
  }
  if (checkpoints_.last_step() > 0) {
    metrics.checkpoint = {.step = checkpoints_.last_step(), .age_seconds = now - checkpoints_.last_at()};
  }
  return metrics;
}

JobStatus Job::status(double now) const {
  JobStatus status;
  status.metrics = metrics(now);
  status.time = unix_seconds();
  status.model = options_.config.model().name();
  status.eta_seconds = record_.progress().eta_seconds();
  if (trains()) {
    status.history = &history_.training;
    status.pending_seconds = now - history_.goodput.known_until();
  }
  const std::vector<double> seconds = stragglers_.step_seconds();
  for (const InstanceView& instance : state_.instances()) {
    for (const ReplicaView& replica : instance.replicas) {
      status.replicas.push_back({.host = instance.host,
                                 .step = replica.step,
                                 .activity = replica.activity,
                                 .step_seconds = seconds[status.replicas.size()]});
    }
  }
  for (const Console::Said& said : console_.said()) {
    status.messages.push_back({.time = said.time, .text = said.text});
  }
  return status;
}

}  // namespace poprun::launcher
