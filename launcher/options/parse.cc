#include "launcher/options/parse.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/command_line.h"
#include "launcher/options/config_file.h"
#include "launcher/options/hugging_face.h"
#include "launcher/options/information.h"
#include "launcher/options/mistakes.h"
#include "launcher/options/option_values.h"
#include "launcher/options/pasted_program.h"
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

/// Returns the allowed value that `typed` probably means: our name for another framework's value, or else the nearest
/// one. If two are equally near, prefers the default. Returns "" if no value is near.
std::string meant_value(const OptionRow& row, const std::string& typed) {
  std::vector<std::string> candidates = row.choices;
  if (candidates.empty() && (row.arity == Arity::kFlag || row.placeholder == "BOOL")) {
    candidates = {"true", "false", "yes", "no", "on", "off"};
  }
  if (const auto usual = std::ranges::find(candidates, row.fallback); usual != candidates.end()) {
    std::rotate(candidates.begin(), usual, usual + 1);
  }
  std::string lower = typed;
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
      {"fp16", "half"}, {"float16", "half"}, {"fp32", "float"}, {"float32", "float"}};
  for (const auto& [theirs, ours] : kElsewhere) {
    if (lower == theirs && std::ranges::find(candidates, ours) != candidates.end()) {
      return std::string(ours);
    }
  }
  return nearest(lower, candidates);
}

/// Sets one value. Returns whether it is allowed; if not, adds a mistake.
bool give_value(Options& options, const Written& written, Mistakes& mistakes) {
  const Refusal allowed = written.row->set(options, written.value);
  if (allowed) {
    const std::string meant = meant_value(*written.row, written.value);
    mistakes.add(written, fmt::format("{} = {} is not allowed; allowed: {}{}", written.place, shortened(written.value),
                                      *allowed, meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
  }
  return !allowed;
}

/// Sets the value of every row. The last value wins, but a row that can be repeated accumulates all values. Overridden
/// values must also be valid. Requires: the values of the file precede those of the environment and the command line.
void give_values(Options& options, std::span<const Written> written, Mistakes& mistakes) {
  for (const OptionRow& row : option_table()) {
    Setting setting{row.name, row.fallback, Origin::kDefault};
    if (!row.fallback.empty()) {
      const Refusal refusal = row.set(options, row.fallback);
      POPRUN_CHECK(!refusal);
    }
    for (const Written& w : written) {
      if (w.row != &row || !give_value(options, w, mistakes)) {
        continue;
      }
      const bool repeats = row.arity == Arity::kRepeated || row.arity == Arity::kArguments;
      const bool adds = repeats && !setting.text.empty();
      setting.text = adds ? fmt::format("{} {}", setting.text, w.value) : w.value;
      setting.origin = w.origin;
    }
    options.settings.push_back(std::move(setting));
  }
  std::ranges::sort(options.notes);
  options.notes.erase(std::unique(options.notes.begin(), options.notes.end()), options.notes.end());
}

Result<std::string> config_file_of(const CommandLine& line, Subcommand subcommand) {
  if (line.positional.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("no train.cfg was given{}; usage: {}; see poprun-emu help",
                                               default_job_hint(), usage_line(subcommand)));
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

/// Returns the message for a word that names no file although it could be a misspelt subcommand.
std::string unknown_word(const std::string& word) {
  std::vector<std::string> names;
  std::ranges::transform(subcommands(), std::back_inserter(names), &SubcommandRow::name);
  std::ranges::transform(information(), std::back_inserter(names), &InformationRow::name);
  std::error_code error;
  const std::string meant = fs::exists(word + ".cfg", error) ? word + ".cfg" : nearest(word, names);
  return fmt::format("no file and no subcommand called '{}'; {}", word,
                     meant.empty() ? fmt::format("the subcommands are {}{}", fmt::join(names, ", "), default_job_hint())
                                   : fmt::format("did you mean {}?", meant));
}

/// Reads the job's train.cfg. Errors: kUsage if it cannot be read. If there is no such file, the message gives the path
/// of an installed file with that name, or of the default job.
Result<std::string> read_job(const std::string& file, Subcommand subcommand) {
  const fs::path path(file);
  std::error_code error;
  if (fs::exists(path, error) || error) {
    return read_config_file(file);
  }
  const std::size_t equals = file.find('=');
  if (equals != std::string::npos && find_row(file.substr(0, equals)) != nullptr) {
    return fail(ErrorCode::kUsage, fmt::format("{}: no such file; did you mean --{}?", file, file));
  }
  if (subcommand == Subcommand::kRun && file.find_first_of("./") == std::string::npos) {
    return fail(ErrorCode::kUsage, unknown_word(file));
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
    case Subcommand::kScale:
      return ScaleRequest{};
  }
  return RunRequest{};
}

/// Resolves a job for each value of `varied`, as if that value were on the command line. `place` names the option that
/// asks for these jobs. Adds their notes to `options`.
Status resolve(Varied& varied, const OptionRow& row, const std::string& place, std::vector<Written> written,
               Options& options) {
  written.push_back({&row, "", place, Origin::kCommandLine});
  for (const std::string& value : varied.values) {
    written.back().value = value;
    Options one;
    one.request = request_of(options.subcommand());
    one.config_file = options.config_file;
    Mistakes mistakes;
    give_values(one, written, mistakes);
    POPRUN_TRY(mistakes.status());
    if (const std::vector<std::string> broken = check_together(one); !broken.empty()) {
      return fail(ErrorCode::kUsage, fmt::format("{} = {}: {}", place, value, broken[0]));
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

/// Resolves the jobs of --vary or of `scale`.
Status resolve_variation(Options& options, std::vector<Written> written) {
  if (auto* const scale = std::get_if<ScaleRequest>(&options.request)) {
    Varied& varied = scale->varied;
    POPRUN_TRY(resolve(varied, *find_row(varied.key), "--replicas", std::move(written), options));
    options.config = varied.jobs.front().config;
    return {};
  }
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
  return resolve(varied, *row, fmt::format("--vary {}", row->name), std::move(written), options);
}

/// Puts the settings of the model.config that `written` names, if any, before all others, which override them.
Status add_model_config(std::vector<Written>& written) {
  const auto last = std::ranges::find(written.rbegin(), written.rend(), "model.config",
                                      [](const Written& w) { return std::string_view(w.row->name); });
  if (last == written.rend() || last->value.empty()) {
    return {};
  }
  const Written config = *last;
  POPRUN_ASSIGN(const std::string text, read_config_file(config.value));
  POPRUN_ASSIGN(const auto implied, settings_of_config_json(config.value, text));
  std::vector<Written> all;
  for (const ImpliedSetting& setting : implied) {
    all.push_back(
        {find_row(setting.key), setting.value, fmt::format("{}: {}", config.value, setting.field), config.origin});
  }
  std::ranges::move(written, std::back_inserter(all));
  written = std::move(all);
  return {};
}

/// Returns whether the request is about a job, so that a train.cfg must be given.
bool needs_job(const Options& options) {
  const auto* const estimate = std::get_if<EstimateRequest>(&options.request);
  return !options.print_topology && options.subcommand() != Subcommand::kValidate &&
         options.subcommand() != Subcommand::kReport && (estimate == nullptr || !estimate->micro);
}

/// Rejects --format for requests whose answer is only text.
Status check_format(const Options& options) {
  const auto* const profile = std::get_if<ProfileRequest>(&options.request);
  const bool compares = profile != nullptr && profile->compare;
  if (options.form != AnswerForm::kText && (compares || options.subcommand() == Subcommand::kReport)) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("--format {}: the answer of {} is only text; those of profile, --dry-run and jobs are data",
                    options.form == AnswerForm::kCsv ? "csv" : "json", compares ? "profile --compare" : "report"));
  }
  return {};
}

/// Stores the words of the command line that describe the job and its results, quoted for a shell. Leaves out the
/// subcommand, its options, and those that only change what is shown.
void store_words(const CommandLine& line, Options& options) {
  constexpr std::string_view kLeftOut[] = {"dry-run", "format", "verbose", "debug", "color", "print-topology"};
  constexpr std::string_view kOfResults[] = {"output", "checkpoints", "metrics", "timeouts"};
  for (const Written& w : line.written) {
    if (owner_of(*w.row) == nullptr && std::ranges::find(kLeftOut, w.row->name) == std::end(kLeftOut)) {
      const bool is_of_results = std::ranges::find(kOfResults, w.row->section) != std::end(kOfResults);
      std::vector<std::string>& words = is_of_results ? options.result_words : options.job_words;
      words.push_back(w.row->letter == 0 ? "--" + w.row->name : fmt::format("-{}", w.row->letter));
      if (w.row->arity != Arity::kFlag || w.value != "true") {
        words.push_back(quote_shell_word(w.value));
      }
    }
  }
  std::ranges::transform(line.positional, std::back_inserter(options.job_words), quote_shell_word);
}

/// Parses the command line, and then the file, whose text `read` returns. Finally, checks all values together.
template <typename Read>
Result<Options> parse(std::span<const std::string> args, const Environment& environment, Read read) {
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
  store_words(line, options);
  FromEnvironment variables = written_in_environment(environment, line.written);
  std::vector<Written> outside = std::move(variables.written);
  outside.insert(outside.end(), line.written.begin(), line.written.end());
  // Values are checked before files are counted, because a mistake in a value can make a second word look like a file.
  Options alone;
  alone.request = options.request;
  Mistakes in_values;
  for (const Written& w : outside) {
    give_value(alone, w, in_values);
  }
  const auto* const profile = std::get_if<ProfileRequest>(&alone.request);
  const bool compares = profile != nullptr && profile->compare;
  if (line.positional.size() != 1 || compares || subcommand == Subcommand::kValidate ||
      subcommand == Subcommand::kReport) {
    POPRUN_TRY(in_values.status());
  }
  std::string text;
  if (compares) {
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
    Result<std::string> contents = read(options.config_file, subcommand);
    if (!contents) {
      in_values.add(contents.error().message);
      POPRUN_TRY(in_values.status());
    }
    text = *std::move(contents);
  }
  Mistakes mistakes(options.config_file, text);
  std::vector<Written> written = written_in_file(options.config_file, text, mistakes);
  written.insert(written.end(), outside.begin(), outside.end());
  POPRUN_TRY(add_model_config(written));
  give_values(options, written, mistakes);
  POPRUN_TRY(mistakes.status());
  POPRUN_TRY(check_format(options));
  const bool scales = subcommand == Subcommand::kScale;  // Rules are checked for each number of replicas.
  for (std::string& broken : scales ? std::vector<std::string>{} : check_together(options)) {
    mistakes.add_rule(std::move(broken), written);
  }
  POPRUN_TRY(mistakes.status());
  options.notes.insert(options.notes.end(), variables.notes.begin(), variables.notes.end());
  POPRUN_TRY(resolve_variation(options, std::move(written)));
  return options;
}

const char* origin_text(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kFile:
      return "file";
    case Origin::kEnvironment:
      return "environment";
    case Origin::kCommandLine:
      return "command line";
  }
  return "";
}

}  // namespace

Result<Options> parse_options(std::span<const std::string> args, const Environment& environment) {
  POPRUN_TRY(check_no_program(args));
  return parse(args, environment, read_job);
}

Result<Options> parse_options(std::span<const std::string> args, std::string_view config_text,
                              const Environment& environment) {
  return parse(args, environment,
               [&](const std::string&, Subcommand) { return Result<std::string>(std::string(config_text)); });
}

Result<Published> published_in(const std::string& file) {
  POPRUN_ASSIGN(const std::string text, read_job(file, Subcommand::kValidate));
  Mistakes mistakes(file, text);
  std::vector<Written> written = written_in_file(file, text, mistakes);
  std::erase_if(written, [](const Written& w) { return w.row->section != "published"; });
  Options options;
  give_values(options, written, mistakes);
  POPRUN_TRY(mistakes.status());
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
