#include "launcher/options/parse.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "launcher/options/command_line.h"
#include "launcher/options/config_file.h"
#include "launcher/options/help.h"
#include "launcher/options/option_values.h"
#include "launcher/options/rules.h"
#include "launcher/options/shell_words.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

std::string shortened(const std::string& text) {
  constexpr std::size_t kShown = 60;
  if (text.size() <= kShown) {
    return text.empty() ? "(nothing)" : text;
  }
  return fmt::format("{}... ({} characters)", text.substr(0, kShown), text.size());
}

Status give_value(Options& options, const Written& written) {
  const Refusal allowed = written.row->set(options, written.value);
  return allowed ? Status{fail(ErrorCode::kUsage, fmt::format("{} = {} is not allowed; allowed: {}", written.place,
                                                              shortened(written.value), *allowed))}
                 : Status{};
}

/// Sets the value of every row. The last value wins, but a row that can be repeated accumulates all values. Overridden
/// values must also be valid. Requires: the values of the file precede those of the command line.
Status give_values(Options& options, std::span<const Written> written) {
  for (const OptionRow& row : option_table()) {
    Setting setting{row.name, row.fallback, Origin::kDefault};
    if (!row.fallback.empty()) {
      const Refusal refusal = row.set(options, row.fallback);
      POPRUN_CHECK(!refusal);
    }
    for (const Written& w : written) {
      if (w.row != &row) {
        continue;
      }
      POPRUN_TRY(give_value(options, w));
      const bool repeats = row.arity == Arity::kRepeated || row.arity == Arity::kArguments;
      const bool adds = repeats && !setting.text.empty();
      setting.text = adds ? fmt::format("{} {}", setting.text, w.value) : w.value;
      setting.origin = w.origin;
    }
    options.settings.push_back(std::move(setting));
  }
  std::ranges::sort(options.notes);
  options.notes.erase(std::unique(options.notes.begin(), options.notes.end()), options.notes.end());
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

/// Handles requests for information, which need no train.cfg and run no job. Returns whether there is such a request.
Result<bool> is_answered_without_job(const CommandLine& line, Options& options) {
  const auto asks_for = [&](std::string_view name) {
    return std::ranges::any_of(
        line.written, [&](const Written& w) { return w.row->name == name && parse_boolean(w.value).value_or(false); });
  };
  POPRUN_ASSIGN(const bool helps, asks_for_help(line, options));
  if (helps) {
    return true;
  }
  options.version = asks_for("version");
  if (options.version) {
    return true;
  }
  const auto check_onnx =
      std::ranges::find_if(line.written, [](const Written& w) { return w.row->name == "check-onnx"; });
  options.list_models = asks_for("list-models");
  options.json =
      std::ranges::any_of(line.written, [](const Written& w) { return w.row->name == "format" && w.value == "json"; });
  if (check_onnx != line.written.end()) {
    options.check_onnx = check_onnx->value;
  }
  return options.list_models || options.check_onnx;
}

/// Returns a hint that names an installed job that can be run unchanged, or "" if there is none.
std::string default_job_hint() {
  const std::string job = default_job();
  return job.empty() ? "" : fmt::format("; the default job is {}", job);
}

/// Returns whether the file is a program, judging by its contents. Its mode is not used, since some file systems mark
/// every file as executable.
bool is_executable(const std::string& file) {
  std::array<char, 4> begin{};
  std::ifstream(file, std::ios::binary).read(begin.data(), begin.size());
  const std::string_view text(begin.data(), begin.size());
  return text.starts_with("#!") || text ==
                                       "\x7f"
                                       "ELF";
}

bool is_in_path(const std::string& command) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder) / command;
    std::error_code error;
    if (!folder.empty() && fs::is_regular_file(candidate, error) && access(candidate.c_str(), X_OK) == 0) {
      return true;
    }
  }
  return false;
}

bool is_program(const std::string& word) {
  const fs::path path(word);
  const std::string extension = path.extension();
  if (extension == ".py" || extension == ".sh" || extension == ".cfg") {
    return extension != ".cfg";
  }
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    return is_executable(word);
  }
  return !fs::exists(path, error) && word.find('/') == std::string::npos &&
         (word.starts_with("python") || is_in_path(word));
}

/// Detects a pasted command line of poprun that ends in a program with its own options (`poprun -n 2 python3 run.py
/// --epochs 3`). Like poprun, this looks for the first word that is neither an option nor the value of one, so that the
/// program's options are not mistaken for ours. Errors: kUsage if that word is a program (a script, an executable file,
/// or a command in PATH), or if an option before it is wrong.
Status check_no_program(std::span<const std::string> args) {
  const std::span<const std::string> words = words_after_options(args);
  if (words.empty() || std::ranges::count(subcommands(), words[0], &SubcommandRow::name) > 0 || !is_program(words[0])) {
    return {};
  }
  POPRUN_ASSIGN(const CommandLine before, parse_command_line(args.first(args.size() - words.size())));
  if (std::ranges::any_of(before.written, [](const Written& w) { return w.row->name == "help"; })) {
    return {};
  }
  constexpr std::size_t kShown = 4;
  return fail(ErrorCode::kUsage,
              fmt::format("{}{}: poprun-emu runs a train.cfg instead of a program: the file says what to train, with "
                          "which optimiser and on which data; usage: {}{}",
                          fmt::join(words.first(std::min(kShown, words.size())), " "),
                          words.size() > kShown ? " ..." : "", usage_line(Subcommand::kRun), default_job_hint()));
}

Result<std::string> config_file_of(const CommandLine& line, Subcommand subcommand) {
  if (line.positional.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("no train.cfg was given{}; usage: {}", default_job_hint(), usage_line(subcommand)));
  }
  const std::string& file = line.positional[0];
  if (line.positional.size() > 1) {
    return fail(ErrorCode::kUsage,
                fmt::format("exactly one train.cfg is needed, but {} were given: {}; the file says what to run, so do "
                            "not name a program; usage: {}",
                            line.positional.size(), fmt::join(line.positional, " "), usage_line(subcommand)));
  }
  return file;
}

Result<std::vector<std::string>> compared_files(const CommandLine& line) {
  if (line.positional.size() != 2) {
    return fail(ErrorCode::kUsage,
                fmt::format("--compare needs two profiles, source and target, but got {}; usage: "
                            "poprun-emu profile --compare A/profile.pb B/profile.pb",
                            line.positional.empty() ? "none" : fmt::format("{}", fmt::join(line.positional, " "))));
  }
  return line.positional;
}

/// Reads the job's train.cfg. Errors: kUsage if it cannot be read. If there is no such file, the message gives the path
/// of an installed file with that name, or of the default job.
Result<std::string> read_job(const std::string& file) {
  const fs::path path(file);
  std::error_code error;
  if (fs::exists(path, error) || error) {
    return read_config_file(file);
  }
  const std::string name = path.filename().string();
  const std::string installed = installed_file(name);
  return fail(ErrorCode::kUsage, fmt::format("{}: no such file{}", file,
                                             installed.empty() || installed == default_job()
                                                 ? default_job_hint()
                                                 : fmt::format("; an example of that name is {}", installed)));
}

/// Returns whether --vary accepts this option. It accepts only options that define the job.
bool can_be_varied(const OptionRow& row) {
  return row.in_file() || row.name == "num-replicas" || row.name == "ipus-per-replica";
}

/// Returns the row that --vary names. Errors: kUsage if there is none; the message suggests the nearest key.
Result<const OptionRow*> varied_row(const std::string& key) {
  const OptionRow* row = find_row(key);
  if (row != nullptr && can_be_varied(*row)) {
    return row;
  }
  std::vector<std::string> names;
  for (const OptionRow& candidate : option_table()) {
    if (can_be_varied(candidate)) {
      names.push_back(candidate.name);
    }
  }
  if (row != nullptr) {
    return fail(ErrorCode::kUsage, fmt::format("--vary {}: --{} does not change what a job needs; keys of train.cfg, "
                                               "num-replicas and ipus-per-replica can be varied",
                                               key, row->name));
  }
  const std::string meant = nearest(key, names);
  return fail(ErrorCode::kUsage,
              fmt::format("--vary {}: unknown key; {}", key,
                          meant.empty() ? "see poprun-emu --help all" : fmt::format("did you mean {}?", meant)));
}

/// Resolves a job for each value of --vary, as if that value were on the command line.
Status resolve_variation(Options& options, std::vector<Written> written) {
  auto* const estimate = std::get_if<EstimateRequest>(&options.request);
  if (estimate == nullptr || estimate->varied.key.empty()) {
    return {};
  }
  Varied& varied = estimate->varied;
  if (std::ranges::count(written, "vary", [](const Written& w) { return w.row->name; }) > 1) {
    return fail(ErrorCode::kUsage, "--vary was given more than once; only one key can be varied at a time");
  }
  POPRUN_ASSIGN(const OptionRow* row, varied_row(varied.key));
  varied.key = row->name;
  written.push_back({row, "", fmt::format("--vary {}", row->name), Origin::kCommandLine});
  for (const std::string& value : varied.values) {
    written.back().value = value;
    Options one;
    one.request = EstimateRequest{};
    one.config_file = options.config_file;
    POPRUN_TRY(give_values(one, written));
    if (const Status status = check_together(one); !status) {
      return fail(status.error().code, fmt::format("--vary {} = {}: {}", row->name, value, status.error().message));
    }
    for (const std::string& note : one.notes) {
      if (std::ranges::find(options.notes, note) == options.notes.end()) {
        options.notes.push_back(note);
      }
    }
    varied.jobs.push_back({value, one.config});
  }
  return {};
}

Request request_of(Subcommand subcommand) {
  switch (subcommand) {
    case Subcommand::kRun:
      return RunRequest{};
    case Subcommand::kCheck:
      return CheckRequest{};
    case Subcommand::kEstimate:
      return EstimateRequest{};
    case Subcommand::kProfile:
      return ProfileRequest{};
    case Subcommand::kValidate:
      return ValidateRequest{};
    case Subcommand::kReport:
      return ReportRequest{};
  }
  return RunRequest{};
}

/// Returns whether the request is about a job, so that a train.cfg must be given.
bool needs_job(const Options& options) {
  const auto* const estimate = std::get_if<EstimateRequest>(&options.request);
  return !options.print_topology && options.subcommand() != Subcommand::kValidate &&
         options.subcommand() != Subcommand::kReport && (estimate == nullptr || !estimate->micro);
}

/// Checks that something answers in the form that --format asks for.
Status check_format(const Options& options) {
  const bool answers =
      options.dry_run || options.subcommand() == Subcommand::kEstimate || options.subcommand() == Subcommand::kValidate;
  if (options.json && !answers) {
    return fail(ErrorCode::kUsage,
                "--format json needs --dry-run, --list-models, estimate or validate; a job writes "
                "profile.json, and a check check.json, to --output-dir");
  }
  return {};
}

/// Checks that something happens that a report can show.
Status check_report(const Options& options) {
  if (options.output.report && options.dry_run) {
    return fail(ErrorCode::kUsage,
                "--report needs something to show, but --dry-run writes no file; profile --no-run writes report.html "
                "without running the job");
  }
  return {};
}

/// Parses the command line, and then the file, whose text `read` returns. Finally, checks all values together.
template <typename Read>
Result<Options> parse(std::span<const std::string> args, Read read) {
  POPRUN_ASSIGN(CommandLine line, parse_command_line(args));
  Options options;
  std::ranges::transform(args, std::back_inserter(options.command), quote_shell_word);
  POPRUN_ASSIGN(const bool answered, is_answered_without_job(line, options));
  if (answered) {
    return options;
  }
  POPRUN_ASSIGN(const Subcommand subcommand, take_subcommand(line.positional));
  POPRUN_TRY(check_subcommand(subcommand, line.written));
  options.request = request_of(subcommand);
  // Values are checked before files are counted, because a mistake in a value can make a second word look like a file.
  Options alone;
  alone.request = options.request;
  for (const Written& w : line.written) {
    POPRUN_TRY(give_value(alone, w));
  }
  std::string text;
  const auto* const profile = std::get_if<ProfileRequest>(&alone.request);
  if (profile != nullptr && profile->compare) {
    POPRUN_ASSIGN(std::get<ProfileRequest>(options.request).compared, compared_files(line));
  } else if (subcommand == Subcommand::kReport) {
    if (line.positional.empty()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("report needs the output folder of a job; usage: {}", usage_line(subcommand)));
    }
    std::get<ReportRequest>(options.request).folders = line.positional;
  } else if (subcommand == Subcommand::kValidate && !line.positional.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("validate needs no train.cfg, but got {}; name a folder of results with "
                                               "--rows; usage: {}",
                                               line.positional[0], usage_line(subcommand)));
  } else if (needs_job(alone) || !line.positional.empty()) {
    POPRUN_ASSIGN(options.config_file, config_file_of(line, subcommand));
    POPRUN_ASSIGN(text, read(options.config_file));
  }
  POPRUN_ASSIGN(std::vector<Written> written, written_in_file(options.config_file, text));
  written.insert(written.end(), line.written.begin(), line.written.end());
  POPRUN_TRY(give_values(options, written));
  POPRUN_TRY(check_format(options));
  POPRUN_TRY(check_report(options));
  POPRUN_TRY(check_together(options));
  if (subcommand == Subcommand::kReport && setting_of(options, "output-dir").origin == Origin::kDefault) {
    options.output.dir = std::get<ReportRequest>(options.request).folders.front();
  }
  POPRUN_TRY(resolve_variation(options, std::move(written)));
  return options;
}

const char* origin_text(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kFile:
      return "file";
    case Origin::kCommandLine:
      return "command line";
  }
  return "";
}

}  // namespace

Result<Options> parse_options(std::span<const std::string> args) {
  POPRUN_TRY(check_no_program(args));
  return parse(args, read_job);
}

Result<Options> parse_options(std::span<const std::string> args, std::string_view config_text) {
  return parse(args, [&](const std::string&) { return Result<std::string>(std::string(config_text)); });
}

Result<Published> published_in(const std::string& file) {
  POPRUN_ASSIGN(const std::string text, read_job(file));
  POPRUN_ASSIGN(std::vector<Written> written, written_in_file(file, text));
  std::erase_if(written, [](const Written& w) { return w.row->section != "published"; });
  Options options;
  POPRUN_TRY(give_values(options, written));
  if (options.published.value == 0) {
    return fail(ErrorCode::kUsage, fmt::format("{}: published.value is missing; see --help published", file));
  }
  return options.published;
}

std::string resolved_config(const Options& options, bool defaults) {
  std::string text;
  std::string section;
  for (const Setting& setting : options.settings) {
    const std::size_t dot = setting.name.find('.');
    if (dot == std::string::npos || (!defaults && setting.origin == Origin::kDefault)) {
      continue;
    }
    if (setting.name.substr(0, dot) != section) {
      section = setting.name.substr(0, dot);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    const bool unset = setting.text.empty();
    const std::string line = fmt::format("{}{} = {}", unset ? "# " : "", setting.name.substr(dot + 1),
                                         unset ? setting.derived : setting.text);
    const bool has_value = !unset || !setting.derived.empty();
    text += fmt::format("{:<40} # {}\n", line, has_value ? origin_text(setting.origin) : "not set");
  }
  return text;
}

}  // namespace poprun::launcher
