#include "launcher/screen/validation_table.h"

#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "launcher/screen/profile_tables.h"
#include "replica/base/text.h"
#include "replica/device/calibration.h"

namespace poprun::launcher {
namespace {

std::string value_text(double value, const std::string& unit) {
  if (unit == "s") {
    return duration_text(value);
  }
  const std::string number =
      value >= 1000 ? grouped(static_cast<std::uint64_t>(std::llround(value))) : fmt::format("{:.4g}", value);
  return fmt::format("{} {}", number, unit);
}

void add_rows(const std::vector<validation::Row>& rows, std::string& text) {
  text += fmt::format("{:<28}{:>20}{:>20}{:>7}  {}\n", "result", "published", "device clock", "ratio", "fits");
  for (const validation::Row& row : rows) {
    const std::string& unit = row.published.unit;
    if (!row.failure.empty()) {
      text += fmt::format("{:<28}{:>20}  {}\n", row.name, value_text(row.published.value, unit), row.failure);
      continue;
    }
    text += fmt::format("{:<28}{:>20}{:>20}{:>7.3f}  {}\n", row.name, value_text(row.published.value, unit),
                        value_text(row.ours, unit), row.ratio(), row.shortage.empty() ? "yes" : "no");
  }
}

void add_errors(const std::vector<validation::Errors>& families, std::string& text) {
  text += fmt::format("\n{:<28}{:>8}{:>12}{:>12}{:>12}\n", "family", "results", "mean error", "worst", "bias");
  for (const validation::Errors& family : families) {
    text += fmt::format("{:<28}{:>8}{:>12}{:>12}{:>12}\n", family.family, family.rows, percent(family.mean),
                        percent(family.worst), change(1, 1 + family.bias));
  }
}

void add_parts(std::string_view what, double published, double ours, std::string& text) {
  text += fmt::format("  {:<38}{:>12}{:>14}{:>10}\n", what, duration_text(published), duration_text(ours),
                      change(published, ours));
}

void add_scaling(const std::vector<validation::Scaling>& all, std::string& text) {
  if (all.empty()) {
    return;
  }
  text += fmt::format("\n{:<40}{:>12}{:>14}{:>10}\n", "one job on more IPUs", "published", "device clock", "error");
  for (const validation::Scaling& scaling : all) {
    text += fmt::format("{:<40}{:>12}{:>14}{:>10}\n", fmt::format("{} to {}", scaling.from, scaling.to),
                        fmt::format("{:.2f} x", scaling.published), fmt::format("{:.2f} x", scaling.ours),
                        change(scaling.published, scaling.ours));
    if (scaling.our_parts) {
      add_parts("a micro-batch's cycle", scaling.published_parts->cycle_seconds, scaling.our_parts->cycle_seconds,
                text);
      add_parts("rest of a step", scaling.published_parts->rest_seconds, scaling.our_parts->rest_seconds, text);
    }
  }
}

std::string fitted_value(const FittedNumber& number) {
  std::vector<std::string> parts;
  if (number.seconds > 0) {
    parts.push_back(duration_text(number.seconds));
  }
  if (number.cycles > 0) {
    parts.push_back(fmt::format("{} cycles", number.cycles));
  }
  if (number.seconds_per_parameter > 0) {
    parts.push_back(fmt::format("{:.2g} ns per parameter", 1e9 * number.seconds_per_parameter));
  }
  if (number.seconds_per_byte > 0) {
    parts.push_back(fmt::format("{:.2g} ns per byte", 1e9 * number.seconds_per_byte));
  }
  return fmt::format("{}", fmt::join(parts, " and "));
}

constexpr std::size_t kLinesMax = 20;

void add_fitted(std::string& text) {
  text += "\nfitted numbers of the device clock, and the results that determine them\n";
  for (const FittedNumber& number : fitted_numbers()) {
    text += fmt::format("  {:<26}{}\n", number.name, fitted_value(number)) + wrapped(number.rows, 4, 80, kLinesMax);
  }
}

}  // namespace

std::string validation_table(const std::vector<validation::Row>& rows) {
  std::string text;
  add_rows(rows, text);
  add_errors(validation::errors_of(rows), text);
  add_scaling(validation::scaling_of(rows), text);
  add_fitted(text);
  return text;
}

}  // namespace poprun::launcher
