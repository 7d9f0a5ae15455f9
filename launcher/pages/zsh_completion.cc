#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/help.h"
#include "launcher/options/option_table.h"
#include "launcher/pages/candidates.h"
#include "launcher/pages/pages.h"

namespace poprun::launcher {
namespace zsh {
namespace {

constexpr const char* kFunctions = R"script(
_poprun_emu_models() {
  local -a models
  models=(${(f)"$(poprun-emu --list-models 2>/dev/null | sed '1d; s/ .*//')"})
  compadd -a models
}

_poprun_emu_sources() {
  if [[ $PREFIX == *:* ]]; then
    compset -P '*:'
    _files
  else
    compadd -S '' -a _poprun_emu_source_list
  fi
}

# Offers the first word: a subcommand or a job.
_poprun_emu_first() {
  _describe -t commands subcommand _poprun_emu_words
  _files -g '*.cfg(-.)'
}

# Offers the other words.
_poprun_emu_other() {
  if ((${words[(I)help]} == 2)); then
    compadd -a _poprun_emu_topics
  else
    _files -g '*.cfg(-.)'
  fi
}

_poprun_emu() {
  _arguments -S : $_poprun_emu_specs '1: :_poprun_emu_first' '*: :_poprun_emu_other'
}

_poprun_emu "$@"
)script";

std::string quoted(const std::string& text) {
  return single_quoted(text, "'\\''");
}

/// Escapes the characters that separate the parts of a specification for _arguments.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c == '[' || c == ']' || c == ':' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
  }
  return result;
}

/// Returns the action of _arguments that offers the values of an option.
std::string action_of(const OptionRow& row) {
  const std::string& kind = row.placeholder;
  const std::vector<std::string> values = values_of(row);
  if (!values.empty()) {
    return fmt::format("({})", fmt::join(values, " "));
  }
  return kind == "MODEL"    ? "_poprun_emu_models"
         : kind == "SOURCE" ? "_poprun_emu_sources"
         : kind == "DIR"    ? "_files -/"
         : kind == "FILE"   ? "_files"
         : kind == "LIST"   ? "_hosts"
                            : " ";
}

/// Returns the specification of an option. A flag's value can be omitted, so none is offered.
std::string spec_of(const OptionRow& row, const std::string& option, const std::string& other) {
  const bool repeats = row.arity == Arity::kRepeated || row.arity == Arity::kArguments;
  const std::string before = repeats ? "*" : other.empty() ? "" : fmt::format("({} {})", option, other);
  const bool is_flag = row.arity == Arity::kFlag;
  const std::string equals = is_flag || !option.starts_with("--") ? "" : "=";
  const std::string value =
      is_flag ? ""
              : fmt::format(":{}:{}", escaped(row.placeholder.empty() ? "value" : row.placeholder), action_of(row));
  return quoted(fmt::format("{}{}{}[{}]{}", before, option, equals, escaped(brief_help(row)), value));
}

}  // namespace
}  // namespace zsh

std::string zsh_completion() {
  using namespace zsh;
  std::vector<std::string> words;
  for (const auto& [name, brief] : first_words()) {
    words.push_back(quoted(fmt::format("{}:{}", name, escaped(brief))));
  }
  std::vector<std::string> specs;
  for (const OptionRow& row : option_table()) {
    const std::string option = "--" + row.name;
    const std::string letter = row.letter == 0 ? "" : fmt::format("-{}", row.letter);
    specs.push_back(spec_of(row, option, letter));
    if (!letter.empty()) {
      specs.push_back(spec_of(row, letter, option));
    }
    if (row.name == "model.name") {
      specs.push_back(spec_of(row, "--model", ""));
    }
  }
  return fmt::format(
      "#compdef poprun-emu\n"
      "# Completion of poprun-emu for zsh, generated from its option table.\n\n"
      "typeset -ga _poprun_emu_words _poprun_emu_topics _poprun_emu_source_list _poprun_emu_specs\n"
      "_poprun_emu_words=(\n  {}\n)\n_poprun_emu_topics=({})\n_poprun_emu_source_list=({})\n"
      "_poprun_emu_specs=(\n  {}\n)\n{}",
      fmt::join(words, "\n  "), fmt::join(help_topics(), " "), fmt::join(beginnings_of_sources(), " "),
      fmt::join(specs, "\n  "), kFunctions);
}

}  // namespace poprun::launcher
