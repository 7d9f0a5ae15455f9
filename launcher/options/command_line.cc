#include "launcher/options/command_line.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string_view>

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include "launcher/options/option_table.h"
#include "launcher/options/suggestions.h"

namespace poprun::launcher {
namespace {

namespace po = boost::program_options;

/// The row that `argument` names, as `-n` or `--num-replicas` do, or null.
const OptionRow* named_row(std::string_view argument) {
  if (argument.starts_with("--")) {
    return find_row(argument.substr(2));
  }
  if (argument.size() != 2 || argument[0] != '-') {
    return nullptr;
  }
  const auto row = std::ranges::find(option_table(), argument[1], &OptionRow::letter);
  return row == option_table().end() ? nullptr : &*row;
}

bool looks_like_an_option(std::string_view argument) {
  return argument == "-vv" || argument == "--vv" ||
         named_row(argument.substr(0, argument.find('='))) != nullptr;
}

/// Whether `argument` is the value of the option of `row` that stands before it.
bool is_value_of(const OptionRow& row, const std::string& argument) {
  if (row.arity == Arity::kFlag) {
    Options unused;
    return !row.set(unused, argument);
  }
  return row.arity == Arity::kArguments || !looks_like_an_option(argument);
}

/// Brings poprun's habits into Boost's form: `-vv` and `--vv`, `-n=16`, and a boolean whose value
/// may be left out, so that `--dry-run train.cfg` and `--dry-run yes train.cfg` both work. A value
/// is joined to its option: Boost would take the next option for a value that is missing.
Result<std::vector<std::string>> normalised(std::span<const std::string> args) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& argument = args[i];
    if (argument == "--") {
      result.insert(result.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
      break;
    }
    const std::size_t equals = std::min(argument.find('='), argument.size());
    if (argument == "-vv" || argument == "--vv") {
      result.emplace_back("--verbose=2");
    } else if (argument.starts_with("-np")) {
      // Boost would read it as -n with the value p.
      return fail(ErrorCode::kUsage, unknown_option(argument.substr(0, equals)));
    } else if (const OptionRow* row = named_row(argument.substr(0, equals))) {
      if (equals < argument.size()) {
        result.push_back(fmt::format("--{}{}", row->name, argument.substr(equals)));
        continue;
      }
      const bool has_value = i + 1 < args.size() && is_value_of(*row, args[i + 1]);
      if (!has_value && row->arity != Arity::kFlag) {
        return fail(ErrorCode::kUsage, fmt::format("--{}: needs a value", row->name));
      }
      std::string value = has_value ? args[++i] : "true";
      // A list of hosts may be written with blanks: `--host a, b, c`.
      while (row->name == "host" && i + 1 < args.size() &&
             (value.ends_with(',') || args[i + 1].starts_with(',')) &&
             is_value_of(*row, args[i + 1])) {
        value += args[++i];
      }
      result.push_back(fmt::format("--{}={}", row->name, value));
    } else {
      result.push_back(argument);
    }
  }
  return result;
}

/// Boost's view of the table; every value is text to it. A flag's value is joined to it by `=`.
po::options_description described_options() {
  po::options_description all;
  for (const OptionRow& row : option_table()) {
    const std::string names =
        row.letter == 0 ? row.name : fmt::format("{},{}", row.name, row.letter);
    if (row.arity == Arity::kFlag) {
      all.add_options()(names.c_str(), new po::untyped_value(/*zero_tokens=*/false));
    } else {
      all.add_options()(names.c_str(), po::value<std::string>());
    }
  }
  return all;
}

/// What was typed of an option that Boost does not know.
std::string typed(const po::option& option) {
  const std::string given =
      option.original_tokens.empty() ? option.string_key : option.original_tokens[0];
  return given.substr(0, given.find('='));
}

}  // namespace

Result<CommandLine> parse_command_line(std::span<const std::string> args) {
  const po::options_description all = described_options();
  CommandLine result;
  POPRUN_ASSIGN(const std::vector<std::string> words, normalised(args));
  try {
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    const auto parsed =
        po::command_line_parser(words).options(all).style(style).allow_unregistered().run();
    for (const po::option& option : parsed.options) {
      if (option.string_key.empty()) {
        result.positional.insert(result.positional.end(), option.value.begin(), option.value.end());
        continue;
      }
      std::string name = option.string_key;
      name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
      const OptionRow* row = find_row(name);
      if (option.unregistered || row == nullptr) {
        return fail(ErrorCode::kUsage, unknown_option(typed(option)));
      }
      const std::string value = option.value.empty() ? "" : option.value[0];
      result.written.push_back({row, value, fmt::format("--{}", row->name), Origin::kCommandLine});
    }
  } catch (const po::error_with_option_name& error) {
    return fail(ErrorCode::kUsage, fmt::format("{}: needs a value", error.get_option_name()));
  } catch (const std::exception& error) {
    return fail(ErrorCode::kUsage, error.what());
  }
  return result;
}

std::span<const std::string> words_after_options(std::span<const std::string> args) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    const OptionRow* row = named_row(args[i]);
    if (args[i] == "--") {
      return args.subspan(i + 1);
    }
    if (row != nullptr) {
      if (i + 1 < args.size() && is_value_of(*row, args[i + 1])) {
        ++i;
      }
    } else if (!args[i].starts_with('-') || args[i] == "-") {
      return args.subspan(i);
    }
  }
  return {};
}

}  // namespace poprun::launcher
