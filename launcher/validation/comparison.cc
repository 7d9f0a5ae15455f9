#include "launcher/validation/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "replica/base/text.h"
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

std::string percent(double fraction) {
  return fmt::format("{:.1f} %", 100 * fraction);
}

std::string signed_percent(double fraction) {
  return fmt::format("{:+.1f} %", 100 * fraction);
}

std::string value_text(double value, const std::string& unit) {
  if (unit == "s") {
    return duration_text(value);
  }
  const std::string number =
      value >= 1000 ? grouped(static_cast<std::uint64_t>(std::llround(value))) : fmt::format("{:.4g}", value);
  return fmt::format("{} {}", number, unit);
}

void add_rows(const std::vector<Row>& rows, std::string& text) {
  text += fmt::format("{:<28}{:>20}{:>20}{:>7}  {}\n", "result", "published", "device clock", "ratio", "fits");
  for (const Row& row : rows) {
    const std::string& unit = row.published.unit;
    if (!row.failure.empty()) {
      text += fmt::format("{:<28}{:>20}  {}\n", row.name, value_text(row.published.value, unit), row.failure);
      continue;
    }
    text += fmt::format("{:<28}{:>20}{:>20}{:>7.3f}  {}\n", row.name, value_text(row.published.value, unit),
                        value_text(row.ours, unit), row.ratio(), row.shortage.empty() ? "yes" : "no");
  }
}

void add_errors(const std::vector<Errors>& families, std::string& text) {
  text += fmt::format("\n{:<28}{:>8}{:>12}{:>12}{:>12}\n", "family", "results", "mean error", "worst", "bias");
  for (const Errors& family : families) {
    text += fmt::format("{:<28}{:>8}{:>12}{:>12}{:>12}\n", family.family, family.rows, percent(family.mean),
                        percent(family.worst), signed_percent(family.bias));
  }
}

void add_parts(std::string_view what, double published, double ours, std::string& text) {
  text += fmt::format("  {:<38}{:>12}{:>14}{:>10}\n", what, duration_text(published), duration_text(ours),
                      signed_percent(ours / published - 1));
}

void add_scaling(const std::vector<Scaling>& all, std::string& text) {
  if (all.empty()) {
    return;
  }
  text += fmt::format("\n{:<40}{:>12}{:>14}{:>10}\n", "one job on more IPUs", "published", "device clock", "error");
  for (const Scaling& scaling : all) {
    text += fmt::format("{:<40}{:>12}{:>14}{:>10}\n", fmt::format("{} to {}", scaling.from, scaling.to),
                        fmt::format("{:.2f} x", scaling.published), fmt::format("{:.2f} x", scaling.ours),
                        signed_percent(scaling.ours / scaling.published - 1));
    if (scaling.our_parts) {
      add_parts("a micro-batch's cycle", scaling.published_parts->cycle_seconds, scaling.our_parts->cycle_seconds,
                text);
      add_parts("rest of a step", scaling.published_parts->rest_seconds, scaling.our_parts->rest_seconds, text);
    }
  }
}

std::string fitted_value(const FittedSeconds& number) {
  return number.seconds_per_parameter > 0 ? fmt::format("{:.2g} ns per parameter", 1e9 * number.seconds_per_parameter)
                                          : duration_text(number.seconds);
}

void add_fitted(std::string& text) {
  text += "\nfitted numbers of the device clock, and the results that determine them\n";
  for (const FittedSeconds& number : fitted_numbers()) {
    text += fmt::format("  {:<26}{}\n    {}\n", number.name, fitted_value(number), number.rows);
  }
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

std::string text_of(const std::vector<Row>& rows) {
  std::string text;
  add_rows(rows, text);
  add_errors(errors_of(rows), text);
  add_scaling(scaling_of(rows), text);
  add_fitted(text);
  return text;
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
  for (const FittedSeconds& number : fitted_numbers()) {
    json["fitted"].push_back({{"name", number.name},
                              {"seconds", number.seconds},
                              {"seconds_per_parameter", number.seconds_per_parameter},
                              {"rows", number.rows}});
  }
  return json.dump(2);
}

}  // namespace poprun::launcher::validation
