#include "launcher/validation/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "replica/device/calibration.h"

namespace poprun::launcher::validation {
namespace {

constexpr std::string_view kThroughput = "samples/s";

double step_seconds(const Row& row, double items_per_second) {
  return row.items_per_step / items_per_second;
}

/// Solves: time of a step = accumulation * cycle + rest, for two steps. Requires: the accumulations differ.
StepParts parts_of(const Row& a, double step_a, const Row& b, double step_b) {
  const double more = static_cast<double>(a.accumulation) - static_cast<double>(b.accumulation);
  const double cycle = (step_a - step_b) / more;
  return {.cycle_seconds = cycle, .rest_seconds = step_a - cycle * static_cast<double>(a.accumulation)};
}

Scaling scaling_between(const Row& from, const Row& to) {
  Scaling scaling{.from = from.name,
                  .to = to.name,
                  .published = to.published.value / from.published.value,
                  .ours = to.ours / from.ours};
  const bool equal_replicas = from.ipus * to.replicas == to.ipus * from.replicas;
  if (equal_replicas && from.accumulation != to.accumulation && from.accumulation > 0 && to.accumulation > 0) {
    scaling.published_parts =
        parts_of(from, step_seconds(from, from.published.value), to, step_seconds(to, to.published.value));
    scaling.our_parts = parts_of(from, step_seconds(from, from.ours), to, step_seconds(to, to.ours));
  }
  return scaling;
}

Errors errors_of(const std::string& family, const std::vector<const Row*>& rows) {
  Errors errors{.family = family, .rows = rows.size()};
  for (const Row* row : rows) {
    const double error = row->ratio() - 1;
    errors.mean += std::abs(error) / static_cast<double>(rows.size());
    errors.bias += error / static_cast<double>(rows.size());
    errors.worst = std::max(errors.worst, std::abs(error));
  }
  return errors;
}

nlohmann::ordered_json json_of(const StepParts& parts) {
  return {{"cycle_seconds", parts.cycle_seconds}, {"rest_seconds", parts.rest_seconds}};
}

nlohmann::ordered_json json_of(const Row& row) {
  nlohmann::ordered_json json = {
      {"name", row.name},           {"family", row.published.family},       {"published", row.published.value},
      {"unit", row.published.unit}, {"reference", row.published.reference}, {"conditions", row.published.conditions}};
  if (!row.failure.empty()) {
    json["failure"] = row.failure;
    return json;
  }
  json["device_clock"] = row.ours;
  json["ratio"] = row.ratio();
  json["stated_error"] = row.stated_error;
  json["ipus"] = row.ipus;
  json["fits"] = row.shortage.empty();
  if (!row.shortage.empty()) {
    json["shortage"] = row.shortage;
  }
  return json;
}

}  // namespace

double Row::ratio() const {
  return published.unit == "s" ? published.value / ours : ours / published.value;
}

std::vector<Errors> errors_of(const std::vector<Row>& rows) {
  std::map<std::string, std::vector<const Row*>> families;
  std::vector<const Row*> all;
  for (const Row& row : rows) {
    if (row.failure.empty()) {
      families[row.published.family.empty() ? "others" : row.published.family].push_back(&row);
      all.push_back(&row);
    }
  }
  std::vector<Errors> errors;
  for (const auto& [family, own] : families) {
    errors.push_back(errors_of(family, own));
  }
  errors.push_back(errors_of("all", all));
  return errors;
}

std::vector<Scaling> scaling_of(const std::vector<Row>& rows) {
  std::map<std::string, std::vector<const Row*>> series;
  for (const Row& row : rows) {
    if (row.failure.empty() && !row.published.series.empty() && row.published.unit == kThroughput) {
      series[row.published.series].push_back(&row);
    }
  }
  std::vector<Scaling> all;
  for (auto& [name, own] : series) {
    std::ranges::stable_sort(own, {}, &Row::ipus);
    for (std::size_t i = 1; i < own.size(); ++i) {
      all.push_back(scaling_between(*own[i - 1], *own[i]));
    }
  }
  return all;
}

std::string json_of(const std::vector<Row>& rows) {
  nlohmann::ordered_json json = {{"rows", nlohmann::ordered_json::array()},
                                 {"families", nlohmann::ordered_json::array()},
                                 {"series", nlohmann::ordered_json::array()},
                                 {"fitted", nlohmann::ordered_json::array()}};
  for (const Row& row : rows) {
    json["rows"].push_back(json_of(row));
  }
  for (const Errors& errors : errors_of(rows)) {
    json["families"].push_back({{"family", errors.family},
                                {"rows", errors.rows},
                                {"mean_error", errors.mean},
                                {"worst_error", errors.worst},
                                {"bias", errors.bias}});
  }
  for (const Scaling& scaling : scaling_of(rows)) {
    nlohmann::ordered_json one = {
        {"from", scaling.from}, {"to", scaling.to}, {"published", scaling.published}, {"device_clock", scaling.ours}};
    if (scaling.our_parts) {
      one["published_parts"] = json_of(*scaling.published_parts);
      one["device_clock_parts"] = json_of(*scaling.our_parts);
    }
    json["series"].push_back(one);
  }
  for (const FittedNumber& number : fitted_numbers()) {
    json["fitted"].push_back({{"name", number.name},
                              {"seconds", number.seconds},
                              {"cycles", number.cycles},
                              {"seconds_per_parameter", number.seconds_per_parameter},
                              {"seconds_per_byte", number.seconds_per_byte},
                              {"rows", number.rows}});
  }
  return json.dump(2);
}

}  // namespace poprun::launcher::validation
