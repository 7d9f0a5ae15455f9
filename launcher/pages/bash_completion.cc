#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/option_table.h"
#include "launcher/pages/candidates.h"
#include "launcher/pages/pages.h"

namespace poprun::launcher {
namespace {

/// The script compares candidates with the whole word that was typed, such as --option=value. However, bash splits
/// words at the characters of COMP_WORDBREAKS, such as = and :, and expects only the last part in the reply.
constexpr const char* kScript = R"script(
# Adds the candidates that begin with $value, each with $head in front.
_poprun_emu_add() {
  local candidate
  while IFS= read -r candidate; do
    COMPREPLY+=("$head$candidate")
  done < <(compgen "$@" -- "$value")
}

# Offers the values of a kind: the placeholder of the value in the help, such as FILE.
_poprun_emu_values() {
  local kind=$1
  case $kind in
    FILE) compopt -o filenames; _poprun_emu_add -f ;;
    DIR) compopt -o filenames; _poprun_emu_add -d ;;
    BOOL) _poprun_emu_add -W 'true false' ;;
    LIST) head+=${value%"${value##*,}"} value=${value##*,}; _poprun_emu_add -A hostname ;;
    MODEL)
      _poprun_emu_add -W "$("${COMP_WORDS[0]/#\~/$HOME}" --list-models 2>/dev/null | sed '1d; s/ .*//')" ;;
    SOURCE)
      if [[ $value == *:* ]]; then
        head+=${value%%:*}: value=${value#*:}
        compopt -o filenames; _poprun_emu_add -f
      else
        compopt -o nospace; _poprun_emu_add -W "$_poprun_emu_sources"
      fi ;;
  esac
}

_poprun_emu() {
  local line=${COMP_LINE:0:COMP_POINT} word previous='' value head='' option=''
  local -a words
  word=${line##*[[:space:]]}
  read -ra words <<<"${line%"$word"}"
  ((${#words[@]} < 2)) || previous=${words[-1]}
  COMPREPLY=()
  value=$word
  if [[ $word == --*=* ]]; then
    option=${word%%=*} head=${word%%=*}= value=${word#*=}
  elif [[ $previous == -* && $previous != *=* ]]; then
    option=$previous
  fi
  _poprun_emu_option "$option"
  if ((${#COMPREPLY[@]} == 0)) && [[ $head == '' ]]; then
    if [[ $word == -* ]]; then
      _poprun_emu_add -W "$_poprun_emu_options"
    elif [[ $option == '' || $_poprun_emu_flags == *" $option "* ]]; then
      compopt -o filenames
      _poprun_emu_add -f -X '!*.cfg'
      _poprun_emu_add -d
      ((${#words[@]} != 1)) || _poprun_emu_add -W "$_poprun_emu_subcommands"
    fi
  fi
  # Removes the part of each candidate that bash treats as earlier words.
  local last=${COMP_WORDS[COMP_CWORD]} i
  [[ $last == [=:] ]] && last=''
  local before=${word%"$last"}
  for i in "${!COMPREPLY[@]}"; do
    COMPREPLY[i]=${COMPREPLY[i]#"$before"}
  done
}

complete -F _poprun_emu poprun-emu
)script";

/// Returns the `case` line for an option whose values can be completed, or "" for any other option.
std::string case_of(const OptionRow& row) {
  const std::string pattern = row.letter == 0 ? "--" + row.name : fmt::format("-{} | --{}", row.letter, row.name);
  if (!row.choices.empty()) {
    return fmt::format("    {}) _poprun_emu_add -W '{}' ;;\n", pattern, fmt::join(row.choices, " "));
  }
  return row.placeholder.empty() ? "" : fmt::format("    {}) _poprun_emu_values '{}' ;;\n", pattern, row.placeholder);
}

}  // namespace

std::string bash_completion() {
  std::vector<std::string> options;
  std::vector<std::string> flags;
  std::string cases;
  std::vector<std::string> names;
  for (const auto& [name, brief] : first_words()) {
    names.push_back(name);
  }
  for (const OptionRow& row : option_table()) {
    options.push_back("--" + row.name);
    if (row.arity == Arity::kFlag) {
      flags.push_back("--" + row.name);
      if (row.letter != 0) {
        flags.push_back(fmt::format("-{}", row.letter));
      }
    }
    cases += case_of(row);
  }
  return fmt::format(
      "# Completion of poprun-emu for bash, generated from its option table.\n\n"
      "_poprun_emu_options='{}'\n"
      "_poprun_emu_flags=' {} '\n"
      "_poprun_emu_subcommands='{}'\n"
      "_poprun_emu_sources='{}'\n\n"
      "# Offers the values of an option.\n"
      "_poprun_emu_option() {{\n  case $1 in\n    --model) _poprun_emu_values 'MODEL' ;;\n{}  esac\n}}\n{}",
      fmt::join(options, " "), fmt::join(flags, " "), fmt::join(names, " "), fmt::join(beginnings_of_sources(), " "),
      cases, kScript);
}

}  // namespace poprun::launcher
