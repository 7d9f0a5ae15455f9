#include "replica/search/changed_job.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace poprun {
namespace {

/// Erases both "--name=value" and "--name value".
void erase_option(const std::string& name, std::vector<std::string>& words) {
  for (auto word = words.begin(); word != words.end();) {
    const bool is_alone = *word == name;
    if (is_alone || word->starts_with(name + "=")) {
      word = words.erase(word, is_alone ? std::min(word + 2, words.end()) : word + 1);
    } else {
      ++word;
    }
  }
}

}  // namespace

std::string ChangedJob::options() const {
  if (changes.size() < 2) {
    return fmt::format("{}", fmt::join(changes, ""));
  }
  return fmt::format("{} and {}", fmt::join(changes.begin(), changes.end() - 1, ", "), changes.back());
}

std::optional<std::vector<std::string>> ChangedJob::command(std::vector<std::string> words) const {
  for (const std::string& change : changes) {
    if (change == kNoMapping) {
      return std::nullopt;
    }
    if (change == kNoSplit) {  // Layers per IPU on the command line replace only a split in the file.
      erase_option("--pipeline.split", words);
      continue;
    }
    const std::size_t blank = change.find(' ');
    const std::string value = change.substr(blank + 1);
    words.push_back((change.starts_with("--") ? "" : "--") + change.substr(0, blank));
    words.push_back(value.find(' ') == std::string::npos ? value : fmt::format("'{}'", value));
  }
  return words;
}

bool ChangedJob::lacks_much() const {
  return std::ranges::any_of(tiles, [this](std::uint64_t tile) { return tile > 2 * tile_bytes; });
}

bool ChangedJob::is_consistent() const {
  const proto::MemoryConfig& memory = config.memory();
  return memory.phases() <= 1 ||
         (config.pipeline().device_mapping().empty() &&
          std::max(1U, memory.phase_ipus()) == std::max(1U, config.topology().ipus_per_replica()));
}

}  // namespace poprun
