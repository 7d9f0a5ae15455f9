#include "launcher/options/suggestions.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "launcher/options/option_table.h"
#include "replica/base/nearest.h"

namespace poprun::launcher {

std::string_view called_elsewhere(std::string_view typed) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"lr", "training.learning-rate"},
      {"np", "num-replicas"},
      {"n", "num-replicas"},
      {"N", "num-replicas"},
      {"x", "mpi-local-args"}};
  const auto* const known =
      std::ranges::find(kNames, typed.substr(typed.find('.') + 1),
                        &std::pair<std::string_view, std::string_view>::first);
  return known == std::end(kNames) ? std::string_view{} : known->second;
}

std::vector<std::string> meant_by(std::string_view typed) {
  std::vector<std::string> candidates;
  const auto key_of = [](const std::string& name) { return name.substr(name.find('.') + 1); };
  for (const OptionRow& row : option_table()) {
    candidates.push_back(row.name);
    candidates.push_back(key_of(row.name));
  }
  if (const std::string_view ours = called_elsewhere(typed); !ours.empty()) {
    return {fmt::format("--{}", ours)};
  }
  const std::string close = nearest(typed, candidates);
  std::vector<std::string> meant;
  for (const OptionRow& row : option_table()) {
    const bool ends_so =
        close.empty() && typed.size() > 3 && row.name.ends_with(fmt::format("-{}", typed));
    if (row.name == close || key_of(row.name) == close || ends_so) {
      meant.push_back("--" + row.name);
    }
  }
  return meant;
}

}  // namespace poprun::launcher
