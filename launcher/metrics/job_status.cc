#include "launcher/metrics/job_status.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace poprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

template <typename Number>
Json or_null(const std::optional<Number>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// Converts a number that is 0 if it is unknown.
Json unless_zero(double value) {
  return value > 0 ? Json(value) : Json(nullptr);
}

/// Converts an accuracy from a report, in which -1 means that there is none.
Json accuracy_json(double accuracy) {
  return accuracy < 0 ? Json(nullptr) : Json(accuracy);
}

Json curve_json(const Curve& curve) {
  Json steps = Json::array();
  Json losses = Json::array();
  Json accuracies = Json::array();
  for (const Curve::Point& point : curve.points()) {
    steps.push_back(point.step);
    losses.push_back(point.loss);
    accuracies.push_back(accuracy_json(point.accuracy));
  }
  return {{"steps", steps}, {"loss", losses}, {"accuracy", accuracies}};
}

Json curves_json(const TrainingHistory* history) {
  const TrainingHistory none;
  const TrainingHistory& shown = history != nullptr ? *history : none;
  return {{"training", curve_json(shown.training())}, {"evaluation", curve_json(shown.evaluations())}};
}

Json evaluation_json(const JobMetrics& metrics) {
  if (!metrics.evaluation) {
    return nullptr;
  }
  return {{"loss", metrics.evaluation->loss}, {"accuracy", or_null(metrics.evaluation->accuracy)}};
}

Json checkpoint_json(const JobMetrics& metrics) {
  if (!metrics.checkpoint) {
    return nullptr;
  }
  return {{"step", metrics.checkpoint->step}, {"ageSeconds", metrics.checkpoint->age_seconds}};
}

Json slowest_json(const JobMetrics& metrics) {
  if (!metrics.slowest) {
    return nullptr;
  }
  return {{"replica", metrics.slowest->replica},
          {"stepSeconds", metrics.slowest->step_seconds},
          {"othersStepSeconds", metrics.slowest->others_step_seconds}};
}

Json goodput_json(const JobStatus& status) {
  if (!status.metrics.goodput) {
    return nullptr;
  }
  const proto::Goodput& goodput = *status.metrics.goodput;
  Json seconds = Json::object();
  for (const auto& [part, value] : parts_of(goodput)) {
    seconds[std::string(part)] = value;
  }
  return {{"ratio", goodput.ratio()},
          {"totalSeconds", goodput.total_seconds()},
          {"pendingSeconds", status.pending_seconds},
          {"redoneSteps", goodput.redone_steps()},
          {"seconds", seconds}};
}

Json replicas_json(const std::vector<JobStatus::Replica>& replicas) {
  Json list = Json::array();
  for (const JobStatus::Replica& replica : replicas) {
    list.push_back({{"host", replica.host},
                    {"step", replica.step},
                    {"activity", replica.activity},
                    {"stepSeconds", unless_zero(replica.step_seconds)}});
  }
  return list;
}

/// Returns the median of the known times, or null if there is none.
Json median_json(const std::vector<JobStatus::Replica>& replicas) {
  std::vector<double> known;
  for (const JobStatus::Replica& replica : replicas) {
    if (replica.step_seconds > 0) {
      known.push_back(replica.step_seconds);
    }
  }
  if (known.empty()) {
    return nullptr;
  }
  const auto middle = known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2);
  std::ranges::nth_element(known, middle);
  return *middle;
}

Json messages_json(const std::vector<JobStatus::Message>& messages) {
  Json list = Json::array();
  for (const JobStatus::Message& message : messages) {
    list.push_back({{"time", message.time}, {"text", message.text}});
  }
  return list;
}

}  // namespace

std::string status_json(const JobStatus& status) {
  const JobMetrics& metrics = status.metrics;
  const Json json = {
      {"version", metrics.version},
      {"model", status.model},
      {"phase", name_of(metrics.phase)},
      {"time", status.time},
      {"startTime", metrics.start_time_seconds},
      {"instances", metrics.instances},
      {"instancesJoined", metrics.instances_joined},
      {"heartbeatAgeSeconds", or_null(metrics.heartbeat_age_seconds)},
      {"restarts", metrics.restarts.value_or(0)},
      {"step", or_null(metrics.step)},
      {"lastStep", or_null(metrics.last_step)},
      {"epoch", or_null(metrics.epoch)},
      {"items", or_null(metrics.items)},
      {"samplesPerSecond", or_null(metrics.samples_per_second)},
      {"etaSeconds", or_null(status.eta_seconds)},
      {"loss", or_null(metrics.loss)},
      {"accuracy", or_null(metrics.accuracy)},
      {"learningRate", or_null(status.history == nullptr ? std::nullopt : status.history->learning_rate())},
      {"evaluation", evaluation_json(metrics)},
      {"checkpoint", checkpoint_json(metrics)},
      {"goodput", goodput_json(status)},
      {"slowest", slowest_json(metrics)},
      {"medianStepSeconds", median_json(status.replicas)},
      {"replicas", replicas_json(status.replicas)},
      {"curves", curves_json(status.history)},
      {"messages", messages_json(status.messages)}};
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace poprun::launcher
