#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/help.h"
#include "launcher/options/option_table.h"
#include "launcher/pages/candidates.h"
#include "launcher/pages/pages.h"

namespace poprun::launcher {
namespace fish {
namespace {

constexpr const char* kFunctions = R"script(
function __poprun_emu_models
  poprun-emu --list-models 2>/dev/null | string replace -rf '^([a-z][^ ]*) .*' '$1' | string match -v model
end

# Whether no word that is neither an option nor an option's value was typed yet. A value may count as such a word.
function __poprun_emu_is_first
  set -l words (commandline -opc)
  set -e words[1]
  not string match -qv -- '-*' $words
end

complete -c poprun-emu -f
complete -c poprun-emu -a '(__fish_complete_suffix .cfg)'
)script";

std::string quoted(const std::string& text) {
  return single_quoted(text, "\\'");
}

/// Returns the command that lists the values of an option, or "" if they cannot be listed.
std::string candidates_of(const OptionRow& row) {
  const std::string& kind = row.placeholder;
  const std::vector<std::string> values = values_of(row);
  if (!values.empty()) {
    return fmt::format("{}", fmt::join(values, " "));
  }
  return kind == "MODEL"    ? "(__poprun_emu_models)"
         : kind == "SOURCE" ? fmt::format("{}", fmt::join(beginnings_of_sources(), " "))
         : kind == "DIR"    ? "(__fish_complete_directories)"
         : kind == "FILE"   ? "(__fish_complete_path)"
         : kind == "LIST"   ? "(__fish_print_hostnames)"
                            : "";
}

}  // namespace
}  // namespace fish

std::string fish_completion() {
  using namespace fish;
  std::string script =
      fmt::format("# Completion of poprun-emu for fish, generated from its option table.\n{}", kFunctions);
  for (const auto& [name, brief] : first_words()) {
    script += fmt::format("complete -c poprun-emu -n __poprun_emu_is_first -a {} -d {}\n", name, quoted(brief));
  }
  script += fmt::format("complete -c poprun-emu -n '__fish_seen_subcommand_from help' -a {}\n",
                        quoted(fmt::format("{}", fmt::join(help_topics(), " "))));
  const auto add = [&script](const OptionRow& row, std::string_view name) {
    const std::string candidates = candidates_of(row);
    script += fmt::format("complete -c poprun-emu -l {}", name);
    script += row.letter == 0 ? "" : fmt::format(" -s {}", row.letter);
    if (row.arity != Arity::kFlag) {
      script += candidates.empty() ? " -x" : fmt::format(" -x -a {}", quoted(candidates));
    }
    script += fmt::format(" -d {}\n", quoted(brief_help(row)));
  };
  for (const OptionRow& row : option_table()) {
    add(row, row.name);
    if (row.name == "model.name") {
      add(row, "model");
    }
  }
  return script;
}

}  // namespace poprun::launcher
