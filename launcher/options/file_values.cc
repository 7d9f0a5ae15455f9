#include "launcher/options/file_values.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include <fmt/format.h>

#include "launcher/options/config_file.h"
#include "launcher/options/suggestions.h"
#include "replica/base/nearest.h"

namespace poprun::launcher {
namespace {

/// The key with the command line's hyphens, and without the section where somebody wrote it again.
std::string key_of(const ConfigEntry& entry) {
  std::string key = entry.key.substr(entry.key.find('.') + 1);
  std::ranges::replace(key, '_', '-');
  return key;
}

Error unknown_key(const std::string& place, const ConfigEntry& entry) {
  std::vector<std::string> in_section;
  std::vector<std::string> sections;
  std::string elsewhere;
  const std::string key = key_of(entry);
  for (const OptionRow& row : option_table()) {
    if (!row.in_file()) {
      if (row.name == key) {
        return {ErrorCode::kUsage,
                fmt::format("{}: {} cannot be set in a file; give the option --{} on the command "
                            "line",
                            place, entry.key, key)};
      }
      continue;
    }
    const std::size_t dot = row.name.find('.');
    const std::string section = row.name.substr(0, dot);
    const std::string name = row.name.substr(dot + 1);
    if (std::ranges::find(sections, section) == sections.end()) {
      sections.push_back(section);
    }
    if (section == entry.section) {
      in_section.push_back(name);
    }
    if (name == entry.key) {
      elsewhere = fmt::format("{} in [{}]", name, section);
    }
  }
  if (in_section.empty() && elsewhere.empty()) {
    return {ErrorCode::kUsage, fmt::format("{}: unknown section [{}]; {}", place, entry.section,
                                           suggestion(entry.section, sections))};
  }
  // Also knows other frameworks' names.
  const std::string ours{called_elsewhere(key)};
  const std::string close = !elsewhere.empty() ? elsewhere
                            : ours.starts_with(entry.section + ".")
                                ? ours.substr(entry.section.size() + 1)
                                : "";
  return {ErrorCode::kUsage,
          fmt::format("{}: unknown key {} in [{}]; {}", place, entry.key, entry.section,
                      close.empty() ? suggestion(key, in_section)
                                    : fmt::format("did you mean {}?", close))};
}

}  // namespace

Result<std::vector<Written>> written_in_file(const std::string& file, std::string_view text) {
  POPRUN_ASSIGN(const std::vector<ConfigEntry> entries, parse_config(file, text));
  std::vector<Written> written;
  std::map<const OptionRow*, std::size_t> first_line;
  for (const ConfigEntry& entry : entries) {
    const std::string place = fmt::format("{}:{}", file, entry.line);
    const OptionRow* row = find_row(entry.section + "." + entry.key);
    if (row == nullptr || !row->in_file()) {
      return tl::unexpected<Error>{unknown_key(place, entry)};
    }
    const auto [known, is_new] = first_line.emplace(row, entry.line);
    if (!is_new) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: {} was already set in line {}; remove one of the two", place,
                              entry.key, known->second));
    }
    written.push_back({row, entry.value, place + ": " + entry.key, Origin::kFile});
  }
  return written;
}

}  // namespace poprun::launcher
