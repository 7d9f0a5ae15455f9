#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/option_values.h"
#include "launcher/options/rules.h"
#include "replica/ops/optimizers/optimizer.h"

namespace poprun::launcher {
namespace {

constexpr std::string_view kSection = "training.";

/// Parses the value of a hyper-parameter. A flag becomes 0 or 1.
Read<double> read(const HyperParameter& own, const std::string& text) {
  if (own.range) {
    const auto& [least, most, least_allowed, most_allowed] = *own.range;
    return Real{least, most, least_allowed, most_allowed}.read(text);
  }
  return Boolean{}.read(text).map([](bool value) { return value ? 1.0 : 0.0; });
}

/// Returns the names of the optimisers that have a hyper-parameter with this name.
std::vector<std::string> owners(std::string_view name) {
  std::vector<std::string> names;
  for (const Optimizer& optimizer : all_optimizers()) {
    if (optimizer.find(name) != nullptr) {
      names.push_back(optimizer.name());
    }
  }
  return names;
}

/// Returns the names of the optimisers that have this hyper-parameter, each with its default if not `own.fallback`.
std::string owners_with_defaults(const HyperParameter& own) {
  std::vector<std::string> names = owners(own.name);
  for (std::string& name : names) {
    const std::string& fallback = find_optimizer(name)->find(own.name)->fallback;
    if (fallback != own.fallback) {
      name += " with default " + fallback;
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

OptionRow row_of(const HyperParameter& own) {
  const auto set = [own](Options& options, const std::string& text) -> Refusal {
    const Read<double> value = read(own, text);
    if (!value) {
      return value.error();
    }
    (*options.config.mutable_training()->mutable_hyper_parameters())[own.name] = *value;
    return std::nullopt;
  };
  return {.name = fmt::format("{}{}", kSection, own.name),
          .section = "training",
          .placeholder = own.range ? "X" : "BOOL",
          .fallback = own.fallback,
          .help = fmt::format("{} ({})", own.help, owners_with_defaults(own)),
          .set = set};
}

}  // namespace

std::vector<OptionRow> hyper_parameter_rows() {
  std::vector<OptionRow> rows;
  for (const Optimizer& optimizer : all_optimizers()) {
    for (const HyperParameter& own : optimizer.hyper_parameters) {
      OptionRow row = row_of(own);
      if (std::ranges::find(rows, row.name, &OptionRow::name) == rows.end()) {
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

Status resolve_hyper_parameters(Options& options) {
  proto::TrainingConfig& training = *options.config.mutable_training();
  auto& values = *training.mutable_hyper_parameters();
  const Optimizer& optimizer = *find_optimizer(training.optimizer());
  for (Setting& setting : options.settings) {
    const std::string name = setting.name.substr(std::min(kSection.size(), setting.name.size()));
    if (!setting.name.starts_with(kSection) || !values.contains(name)) {
      continue;
    }
    const bool given = setting.origin != Origin::kDefault;
    if (const HyperParameter* own = optimizer.find(name)) {
      if (!given) {
        setting.text = own->fallback;
        values[name] = read(*own, own->fallback).value();
      }
      continue;
    }
    const std::vector<std::string> with = owners(name);
    const bool is_flag = !find_optimizer(with.front())->find(name)->range;
    if (is_flag && values.at(name) != 0) {
      return fail(ErrorCode::kUsage, fmt::format("{} = true needs training.optimizer = {}, but it is {}", setting.name,
                                                 fmt::join(with, " or "), training.optimizer()));
    }
    if (!is_flag && given && !options.config.inference()) {
      options.notes.push_back(fmt::format("{} = {} has no effect with training.optimizer = {}", setting.name,
                                          setting.text, training.optimizer()));
    }
    values.erase(name);
  }
  return {};
}

}  // namespace poprun::launcher
