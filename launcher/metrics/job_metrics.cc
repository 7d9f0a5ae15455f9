#include "launcher/metrics/job_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace poprun::launcher {
namespace {

/// Returns `text` as one line: escapes newlines, backslashes and, if `quotes` is true, quotes.
std::string escaped(std::string_view text, bool quotes) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '\\' || (quotes && c == '"')) {
      result += '\\';
    }
    result += c;
  }
  return result;
}

/// Returns the shortest text that reads back as the same number.
std::string number_text(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "+Inf" : "-Inf";
  }
  return fmt::format("{}", value);
}

constexpr std::array<std::pair<JobPhase, std::string_view>, 6> kPhases{{{JobPhase::kStarting, "starting"},
                                                                        {JobPhase::kCompiling, "compiling"},
                                                                        {JobPhase::kRunning, "running"},
                                                                        {JobPhase::kSaving, "saving"},
                                                                        {JobPhase::kDraining, "draining"},
                                                                        {JobPhase::kStopping, "stopping"}}};

template <typename Number>
void gauge(Exposition& page, std::string_view name, std::string_view help, const std::optional<Number>& value) {
  if (value) {
    page.gauge(name, help);
    page.sample(static_cast<double>(*value));
  }
}

template <typename Number>
void counter(Exposition& page, std::string_view name, std::string_view help, const std::optional<Number>& value) {
  if (value) {
    page.counter(name, help);
    page.sample(static_cast<double>(*value));
  }
}

void gauge(Exposition& page, std::string_view name, std::string_view help, double value) {
  gauge(page, name, help, std::optional(value));
}

void add_job(Exposition& page, const JobMetrics& metrics) {
  page.gauge("poprun_emu_build_info", "Always 1, labelled with the version of poprun-emu.");
  page.sample(1, {{"version", metrics.version}});
  gauge(page, "poprun_emu_start_time_seconds", "Time at which the command started, in seconds since 1970.",
        metrics.start_time_seconds);
  page.gauge("poprun_emu_phase", "1 for the current phase of the job, 0 for the other phases.");
  for (const auto& [phase, name] : kPhases) {
    page.sample(phase == metrics.phase ? 1 : 0, {{"phase", name}});
  }
  gauge(page, "poprun_emu_replicas", "Number of replicas in the job.", metrics.replicas);
  gauge(page, "poprun_emu_instances", "Number of processes that run the replicas.", metrics.instances);
  gauge(page, "poprun_emu_instances_joined", "Number of processes that have joined and are still connected.",
        metrics.instances_joined);
  gauge(page, "poprun_emu_heartbeat_age_seconds",
        "Time since the last heartbeat of the instance that has been silent longest.", metrics.heartbeat_age_seconds);
}

void add_training(Exposition& page, const JobMetrics& metrics) {
  gauge(page, "poprun_emu_step", "Training steps completed; falls if a job resumes from a checkpoint.", metrics.step);
  gauge(page, "poprun_emu_last_step", "The training step that completes the job.", metrics.last_step);
  gauge(page, "poprun_emu_epoch", "Epoch of the last step, counted from 1.", metrics.epoch);
  gauge(page, "poprun_emu_loss", "Mean loss over the global batch of the last step.", metrics.loss);
  gauge(page, "poprun_emu_accuracy_ratio", "Accuracy over the global batch of the last step.", metrics.accuracy);
  if (metrics.evaluation) {
    gauge(page, "poprun_emu_evaluation_loss", "Loss of the last evaluation.", metrics.evaluation->loss);
    gauge(page, "poprun_emu_evaluation_accuracy_ratio", "Accuracy of the last evaluation.",
          metrics.evaluation->accuracy);
  }
  counter(page, "poprun_emu_steps_total", "Training steps executed, including those repeated after a restart.",
          metrics.steps_executed);
  counter(page, "poprun_emu_samples_total", "Samples of all replicas in these steps.", metrics.samples);
  counter(page, "poprun_emu_items_total", "In inference: number of items whose outputs have been written.",
          metrics.items);
  gauge(page, "poprun_emu_samples_per_second",
        "Samples of all replicas per second of wall time, over the last few seconds in which steps were completed.",
        metrics.samples_per_second);
  if (metrics.slowest) {
    gauge(page, "poprun_emu_slowest_replica", "Number of the replica that computes most slowly.",
          metrics.slowest->replica);
    gauge(page, "poprun_emu_slowest_replica_step_seconds",
          "Wall time that the slowest replica spends in operators per step.", metrics.slowest->step_seconds);
    gauge(page, "poprun_emu_other_replicas_step_seconds",
          "Median wall time that other replicas spend in operators per step.", metrics.slowest->others_step_seconds);
  }
}

void add_survival(Exposition& page, const JobMetrics& metrics) {
  counter(page, "poprun_emu_restarts_total", "Number of times the launcher has restarted the job.", metrics.restarts);
  counter(page, "poprun_emu_checkpoints_total", "Number of checkpoints stored.", metrics.checkpoints);
  if (metrics.checkpoint) {
    gauge(page, "poprun_emu_checkpoint_step", "Training step of the last complete checkpoint.",
          std::optional(metrics.checkpoint->step));
    gauge(page, "poprun_emu_checkpoint_age_seconds", "Time since the last complete checkpoint was written.",
          metrics.checkpoint->age_seconds);
  }
}

void add_goodput(Exposition& page, const proto::Goodput& goodput) {
  page.counter(
      "poprun_emu_wall_seconds_total",
      "Wall time up to the last completed step, by part: step and evaluation are productive, the others lost.");
  for (const auto& [part, seconds] : parts_of(goodput)) {
    page.sample(seconds, {{"part", part}});
  }
  page.counter("poprun_emu_redone_steps_total", "Steps executed again after a restart.");
  page.sample(static_cast<double>(goodput.redone_steps()));
  if (goodput.total_seconds() > 0) {
    gauge(page, "poprun_emu_goodput_ratio", "Fraction of this wall time that was productive.", goodput.ratio());
  }
}

}  // namespace

std::string_view name_of(JobPhase phase) {
  return std::ranges::find(kPhases, phase, &decltype(kPhases)::value_type::first)->second;
}

GoodputParts parts_of(const proto::Goodput& goodput) {
  return {{{"step", goodput.step_seconds()},
           {"evaluation", goodput.evaluation_seconds()},
           {"start", goodput.start_seconds()},
           {"data", goodput.data_seconds()},
           {"saving", goodput.saving_seconds()},
           {"redone", goodput.redone_seconds()},
           {"down", goodput.down_seconds()}}};
}

void Exposition::begin(std::string_view name, std::string_view help, std::string_view type) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(help, /*quotes=*/false), name, type);
}

void Exposition::sample(double value, std::initializer_list<Label> labels) {
  text_ += name_;
  char before = '{';
  for (const Label& label : labels) {
    text_ += fmt::format("{}{}=\"{}\"", before, label.name, escaped(label.value, /*quotes=*/true));
    before = ',';
  }
  text_ += fmt::format("{} {}\n", labels.size() > 0 ? "}" : "", number_text(value));
}

std::string exposition_of(const JobMetrics& metrics) {
  Exposition page;
  add_job(page, metrics);
  add_training(page, metrics);
  add_survival(page, metrics);
  if (metrics.goodput) {
    add_goodput(page, *metrics.goodput);
  }
  return page.text();
}

}  // namespace poprun::launcher
