#include "launcher/options/environment.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <unistd.h>

#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::string_view kPrefix = "POPRUN_EMU_";

/// Variables, without the prefix, that set no option. Replicas, the data server, mpirun's helpers, the tests and
/// scripts read them.
constexpr std::string_view kOthers[] = {
    "BIN",    "BUILD",          "COORDINATOR", "CRASHED_JOBS", "CRASHES", "DATASETS",     "DROPPED", "FAKE_REPLICA",
    "LISTEN", "LISTEN_LIBRARY", "LOG_LEVEL",   "LONG",         "RARE",    "REMOTE_SHELL", "ROOT",    "SEED",
    "SHARED", "SIMULATIONS",    "STRICT",      "TLS",          "TOKEN",   "VERSION",      "WRITE"};

/// Returns whether another program or a test reads the variable, or an address that Kubernetes derives from the name of
/// a service, such as POPRUN_EMU_HOSTIO_PORT=tcp://10.0.0.1:80.
bool is_of_others(std::string_view name, std::string_view value) {
  return std::ranges::find(kOthers, name) != std::end(kOthers) || name.starts_with("RANDOM_") ||
         value.starts_with("tcp://") || value.starts_with("udp://") || name.ends_with("_SERVICE_HOST") ||
         name.find("SERVICE_PORT") != std::string_view::npos || name.find("_TCP_") != std::string_view::npos;
}

/// Returns the row that the variable kPrefix + `name` sets, or null. As on the command line, MODEL is model.name.
const OptionRow* row_of_variable(std::string_view name) {
  const auto find = [](const std::string& variable) -> const OptionRow* {
    const auto row = std::ranges::find(option_table(), variable, variable_of);
    return row == option_table().end() || !has_variable(*row) ? nullptr : &*row;
  };
  const std::string variable = fmt::format("{}{}", kPrefix, name);
  const OptionRow* row = find(variable);
  return row != nullptr ? row : find(variable + "_NAME");
}

std::string note_on(std::string_view name) {
  std::vector<std::string> names;
  for (const OptionRow& row : option_table()) {
    if (has_variable(row)) {
      names.push_back(variable_of(row).substr(kPrefix.size()));
    }
  }
  const std::string meant = nearest(name, names);
  return fmt::format(
      "the environment variable {}{} sets no option; {}", kPrefix, name,
      meant.empty() ? "see poprun-emu help environment" : fmt::format("did you mean {}{}?", kPrefix, meant));
}

}  // namespace

Environment environment_here() {
  Environment all;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    all.emplace_back(*variable);
  }
  return all;
}

std::string colour_choice(std::span<const std::string> args, const Environment& environment) {
  constexpr std::string_view kVariable = "POPRUN_EMU_COLOR=";
  constexpr std::string_view kOption = "--color";
  std::string choice = "auto";
  for (const std::string& variable : environment) {
    choice = variable.starts_with(kVariable) ? variable.substr(kVariable.size()) : choice;
  }
  for (std::size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    if (args[i] == kOption && i + 1 < args.size()) {
      choice = args[i + 1];
    } else if (args[i].starts_with("--color=")) {
      choice = args[i].substr(kOption.size() + 1);
    }
  }
  return choice;
}

std::string variable_of(const OptionRow& row) {
  std::string variable = fmt::format("{}{}", kPrefix, row.name);
  for (char& c : variable) {
    c = c == '-' || c == '.' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return variable;
}

bool has_variable(const OptionRow& row) {
  constexpr std::string_view kRequests[] = {"help", "version", "list-models", "check-onnx"};
  return std::ranges::find(kRequests, row.name) == std::end(kRequests);
}

FromEnvironment written_in_environment(const Environment& environment, std::span<const Written> command_line) {
  FromEnvironment result;
  for (const std::string& variable : environment) {
    const std::size_t equals = variable.find('=');
    if (!variable.starts_with(kPrefix) || equals == std::string::npos || equals + 1 == variable.size()) {
      continue;
    }
    const std::string name = variable.substr(kPrefix.size(), equals - kPrefix.size());
    const std::string value = variable.substr(equals + 1);
    if (is_of_others(name, value)) {
      continue;
    }
    const OptionRow* row = row_of_variable(name);
    if (row == nullptr) {
      result.notes.push_back(note_on(name));
    } else if (std::ranges::find(command_line, row, &Written::row) == command_line.end()) {
      result.written.push_back({row, value, variable.substr(0, equals), Origin::kEnvironment});
    }
  }
  return result;
}

}  // namespace poprun::launcher
