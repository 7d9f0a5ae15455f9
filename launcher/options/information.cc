#include "launcher/options/information.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "launcher/options/help.h"
#include "launcher/options/option_values.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

/// Replaces the words `help [TOPIC]` and `models` by --help and --list-models. Errors: kUsage if further words follow.
Status replace_words(CommandLine& line) {
  std::vector<std::string>& words = line.positional;
  if (words.empty() || !is_information(words[0])) {
    return {};
  }
  const bool helps = words[0] == "help";
  const std::size_t most = helps ? 2 : 1;
  if (words.size() > most) {
    return fail(ErrorCode::kUsage, fmt::format("unexpected word '{}'; usage: poprun-emu {}", words[most],
                                               helps ? "help [TOPIC]" : words[0] + " [--format json]"));
  }
  const OptionRow* row = find_row(helps ? "help" : "list-models");
  line.written.push_back({row, helps && words.size() == 2 ? words[1] : "true", words[0], Origin::kCommandLine});
  words.clear();
  return {};
}

/// Handles --help. A single word that does not look like a file names the section.
Result<bool> asks_for_help(const CommandLine& line, Options& options) {
  const auto help = std::ranges::find_if(line.written, [](const Written& w) { return w.row->name == "help"; });
  if (help == line.written.end()) {
    return false;
  }
  const std::optional<bool> plain = parse_boolean(help->value);
  if (plain == false) {
    return false;
  }
  std::string topic = plain ? "" : help->value;
  if (plain && line.positional.size() == 1 && line.positional[0].find_first_of("./") == std::string::npos) {
    topic = line.positional[0];
  }
  const std::vector<std::string> topics = help_topics();
  if (!topic.empty() && std::ranges::find(topics, topic) == topics.end()) {
    return fail(ErrorCode::kUsage, fmt::format("--help {}: unknown section; {}", topic, suggestion(topic, topics)));
  }
  options.help = std::move(topic);
  return true;
}

}  // namespace

Result<bool> is_answered_without_job(CommandLine& line, Options& options) {
  POPRUN_TRY(replace_words(line));
  const auto asks_for = [&](std::string_view name) {
    return std::ranges::any_of(
        line.written, [&](const Written& w) { return w.row->name == name && parse_boolean(w.value).value_or(false); });
  };
  POPRUN_ASSIGN(const bool helps, asks_for_help(line, options));
  if (helps) {
    return true;
  }
  options.version = asks_for("version");
  for (const Written& w : line.written) {
    if (w.row->name == "verbose" || w.row->name == "debug" || w.row->name == "format") {
      w.row->set(options, w.value);
    }
  }
  if (options.version) {
    return true;
  }
  const auto check_onnx =
      std::ranges::find_if(line.written, [](const Written& w) { return w.row->name == "check-onnx"; });
  options.list_models = asks_for("list-models");
  if (check_onnx != line.written.end()) {
    options.check_onnx = check_onnx->value;
  }
  return options.list_models || options.check_onnx;
}

}  // namespace poprun::launcher
