#include "launcher/options/config_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>

#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

std::string if_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) ? path.string() : "";
}

namespace po = boost::program_options;

constexpr std::size_t kConfigBytesMax = 1 << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

constexpr std::string_view kJobSection = "job";

/// A key of the section [job], with the option that overrides it.
struct JobKey {
  std::string_view key;
  std::string_view option;
};
constexpr std::array kJobKeys = {JobKey{"replicas", "num-replicas"}, JobKey{"instances", "num-instances"},
                                 JobKey{"ipus-per-replica", "ipus-per-replica"}};

struct ConfigEntry {
  std::string section;  ///< Never empty.
  std::string key;
  std::string value;
  std::size_t line = 0;          ///< Counted from 1.
  std::size_t section_line = 0;  ///< Line of the section's name.
};

/// Parses one line with Boost, or returns nothing. Since Boost receives one line at a time, a message can give the
/// line's number.
std::optional<ConfigEntry> parse_entry(const std::string& section, std::string_view line) {
  try {
    std::istringstream one_line{std::string(line)};
    const auto parsed = po::parse_config_file(one_line, po::options_description{}, /*allow_unregistered=*/true);
    if (parsed.options.size() == 1 && !parsed.options[0].string_key.empty() && parsed.options[0].value.size() == 1) {
      return ConfigEntry{section, parsed.options[0].string_key, parsed.options[0].value[0]};
    }
  } catch (const std::exception&) {
    // The caller's message replaces Boost's, which contains no line number.
  }
  return std::nullopt;
}

/// Returns the key with hyphens, as on the command line, and without the section if the user repeated it in the key.
std::string key_of(const ConfigEntry& entry) {
  std::string key = entry.key.substr(entry.key.find('.') + 1);
  std::ranges::replace(key, '_', '-');
  return key;
}

/// Returns the row that a line of the file sets, or null.
const OptionRow* row_of(const ConfigEntry& entry) {
  if (entry.section != kJobSection) {
    const OptionRow* row = find_row(entry.section + "." + entry.key);
    return row != nullptr && row->in_file() ? row : nullptr;
  }
  const auto* const known = std::ranges::find(kJobKeys, key_of(entry), &JobKey::key);
  return known == kJobKeys.end() ? nullptr : find_row(known->option);
}

/// Adds a mistake for a key that no row has. Adds only one for all keys of an unknown section.
void add_unknown_key(const ConfigEntry& entry, Mistakes& mistakes, std::set<std::size_t>& unknown_sections) {
  std::vector<std::string> in_section;
  std::vector<std::string> sections = {std::string{kJobSection}};
  std::string elsewhere;
  const std::string key = key_of(entry);
  for (const JobKey& known : kJobKeys) {
    if (entry.section == kJobSection) {
      in_section.emplace_back(known.key);
    }
    if (known.key == key || known.option == key) {
      elsewhere = fmt::format("{} in [{}]", known.key, kJobSection);
    }
  }
  for (const OptionRow& row : option_table()) {
    if (!row.in_file()) {
      if (row.name == key && elsewhere.empty()) {
        mistakes.add(
            entry.line, Part::kKey,
            fmt::format("{} cannot be set in a file; use the option --{} on the command line", entry.key, key));
        return;
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
  if (in_section.empty() && (elsewhere.empty() || !nearest(entry.section, sections).empty())) {
    if (unknown_sections.insert(entry.section_line).second) {
      mistakes.add(entry.section_line, Part::kLine,
                   fmt::format("unknown section [{}]; {}", entry.section, suggestion(entry.section, sections)));
    }
    return;
  }
  // The key may be the name of an option in another framework.
  const std::string ours{called_elsewhere(key)};
  const std::string close = !elsewhere.empty()                      ? elsewhere
                            : ours.starts_with(entry.section + ".") ? ours.substr(entry.section.size() + 1)
                                                                    : "";
  mistakes.add(entry.line, Part::kKey,
               fmt::format("unknown key {} in [{}]; {}", entry.key, entry.section,
                           close.empty() ? suggestion(key, in_section) : fmt::format("did you mean {}?", close)));
}

/// Adds a mistake if a line is not plain text. Returns whether it is.
bool check_plain_text(std::string_view line, std::size_t number, Mistakes& mistakes) {
  if (!google::protobuf::internal::IsStructurallyValidUTF8(line)) {
    mistakes.add(number, Part::kLine, "the line is not UTF-8; save the file as UTF-8 text");
    return false;
  }
  for (const char c : line) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\t') {
      mistakes.add(number, Part::kLine,
                   fmt::format("contains the control character {:#04x}; train.cfg must be plain text",
                               static_cast<unsigned>(c)));
      return false;
    }
  }
  return true;
}

/// Returns the entries of the lines that can be parsed. Stops at a line that is not plain text.
std::vector<ConfigEntry> entries_in(std::string_view text, Mistakes& mistakes) {
  std::vector<ConfigEntry> entries;
  std::string section;
  std::size_t section_line = 0;
  bool needs_section = true;  // Cleared after the first message about keys before the first section.
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view whole = text.substr(0, end);
    const std::string_view line = trimmed(whole.substr(0, whole.find('#')));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (line.empty()) {
      continue;
    }
    if (!check_plain_text(line, number, mistakes)) {
      break;
    }
    if (line.front() == '[' && line.back() == ']') {
      section = trimmed(line.substr(1, line.size() - 2));
      section_line = number;
      if (section.empty()) {
        mistakes.add(number, Part::kLine, "the section has no name");
      }
      needs_section = needs_section && !section.empty();
      continue;
    }
    std::optional<ConfigEntry> entry = parse_entry(section, line);
    if (!entry) {
      mistakes.add(number, Part::kLine,
                   fmt::format("the line is neither `[section]` nor `key = value`: {}", line.substr(0, 60)));
    } else if (section.empty()) {
      if (std::exchange(needs_section, false)) {
        mistakes.add(number, Part::kKey,
                     fmt::format("{} is before the first [section]; put it under a section, for example [training]",
                                 entry->key));
      }
    } else {
      entry->line = number;
      entry->section_line = section_line;
      entries.push_back(*std::move(entry));
    }
  }
  return entries;
}

}  // namespace

std::string installed_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path folder = program.parent_path().parent_path() / "share/poprun-emu";
  return !error && fs::is_directory(folder, error) ? folder.string() : "";
}

std::string default_job() {
  return installed_file("train.cfg");
}

std::string default_job_hint() {
  const std::string job = default_job();
  return job.empty() ? "" : fmt::format("; the default job is {}", job);
}

std::string installed_file(const std::string& name) {
  const fs::path folder = installed_folder();
  if (folder.empty()) {
    return "";
  }
  const std::string job = if_file(folder / name);
  return job.empty() ? if_file(folder / "examples" / name) : job;
}

Result<std::string> read_config_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kConfigBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    const std::string reason = errno == 0 ? "it is not a readable file" : std::strerror(errno);
    return fail(ErrorCode::kUsage, fmt::format("{}: cannot be read: {}", path, reason));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kConfigBytesMax) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: the file is larger than {} B, the limit for a train.cfg", path, kConfigBytesMax));
  }
  return text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}

std::vector<Written> written_in_file(const std::string& file, std::string_view text, Mistakes& mistakes) {
  std::vector<Written> written;
  std::map<const OptionRow*, std::size_t> first_line;
  std::set<std::size_t> unknown_sections;
  for (const ConfigEntry& entry : entries_in(text, mistakes)) {
    const OptionRow* row = row_of(entry);
    if (row == nullptr) {
      add_unknown_key(entry, mistakes, unknown_sections);
      continue;
    }
    const auto [known, is_new] = first_line.emplace(row, entry.line);
    if (!is_new) {
      mistakes.add(entry.line, Part::kKey,
                   fmt::format("{} was already set on line {}; remove one of these lines", entry.key, known->second));
      continue;
    }
    const std::string place = fmt::format("{}:{}: {}", file, entry.line, entry.key);
    written.push_back({row, entry.value, place, Origin::kFile, entry.line});
  }
  return written;
}

}  // namespace poprun::launcher
