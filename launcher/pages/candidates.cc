#include "launcher/pages/candidates.h"

#include <algorithm>
#include <regex>

#include "hostio/datasets/dataset.h"
#include "launcher/options/command_line.h"

namespace poprun::launcher {

std::vector<std::pair<std::string, std::string>> first_words() {
  std::vector<std::pair<std::string, std::string>> words;
  for (const SubcommandRow& row : subcommands()) {
    words.emplace_back(row.name, row.brief);
  }
  for (const InformationRow& row : information()) {
    words.emplace_back(row.name, row.meaning);
  }
  return words;
}

std::vector<std::string> beginnings_of_sources() {
  static const std::regex kPrefix("[a-z0-9-]+:");
  std::vector<std::string> beginnings;
  const auto add = [&](const std::string& text) {
    if (std::ranges::find(beginnings, text) == beginnings.end()) {
      beginnings.push_back(text);
    }
  };
  for (const std::string& form : hostio::dataset_forms()) {
    std::sregex_iterator match(form.begin(), form.end(), kPrefix);
    if (match == std::sregex_iterator()) {
      add(form);
    }
    for (; match != std::sregex_iterator(); ++match) {
      add(match->str());
    }
  }
  return beginnings;
}

std::vector<std::string> values_of(const OptionRow& row) {
  if (row.choices.empty() && (row.placeholder == "BOOL" || (row.arity == Arity::kFlag && row.placeholder.empty()))) {
    return {"true", "false"};
  }
  return row.choices;
}

std::string brief_help(const OptionRow& row) {
  std::size_t end = row.help.size();
  for (const char* mark : {"; ", ": ", " (", ", such as"}) {
    end = std::min(end, row.help.find(mark));
  }
  return row.help.substr(0, end);
}

std::string single_quoted(const std::string& text, const std::string& quote) {
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? quote : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace poprun::launcher
