#include "launcher/validation/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>

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

proto::StepParts message_of(const StepParts& parts) {
  proto::StepParts message;
  message.set_cycle_seconds(parts.cycle_seconds);
  message.set_rest_seconds(parts.rest_seconds);
  return message;
}

proto::ValidatedRow message_of(const Row& row) {
  proto::ValidatedRow message;
  message.set_name(row.name);
  message.set_family(row.published.family);
  message.set_published(row.published.value);
  message.set_unit(row.published.unit);
  message.set_reference(row.published.reference);
  message.set_conditions(row.published.conditions);
  message.set_failure(row.failure);
  if (row.failure.empty()) {
    message.set_device_clock(row.ours);
    message.set_ratio(row.ratio());
    message.set_stated_error(row.stated_error);
    message.set_ipus(row.ipus);
    message.set_fits(row.shortage.empty());
    message.set_shortage(row.shortage);
  }
  return message;
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

proto::ValidationAnswer answer_of(const std::vector<Row>& rows) {
  proto::ValidationAnswer answer;
  for (const Row& row : rows) {
    *answer.add_rows() = message_of(row);
  }
  for (const Errors& errors : errors_of(rows)) {
    proto::FamilyErrors& family = *answer.add_families();
    family.set_family(errors.family);
    family.set_rows(errors.rows);
    family.set_mean_error(errors.mean);
    family.set_worst_error(errors.worst);
    family.set_bias(errors.bias);
  }
  for (const Scaling& scaling : scaling_of(rows)) {
    proto::SeriesScaling& series = *answer.add_series();
    series.set_from(scaling.from);
    series.set_to(scaling.to);
    series.set_published(scaling.published);
    series.set_device_clock(scaling.ours);
    if (scaling.our_parts) {
      *series.mutable_published_parts() = message_of(*scaling.published_parts);
      *series.mutable_device_clock_parts() = message_of(*scaling.our_parts);
    }
  }
  for (const FittedNumber& number : fitted_numbers()) {
    proto::FittedConstant& fitted = *answer.add_fitted();
    fitted.set_name(std::string(number.name));
    fitted.set_seconds(number.seconds);
    fitted.set_cycles(number.cycles);
    fitted.set_seconds_per_parameter(number.seconds_per_parameter);
    fitted.set_seconds_per_byte(number.seconds_per_byte);
    fitted.set_rows(std::string(number.rows));
  }
  return answer;
}

}  // namespace poprun::launcher::validation
