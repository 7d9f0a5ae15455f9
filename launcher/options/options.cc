#include "launcher/options/options.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include "launcher/options/config_file.h"
#include "launcher/options/nearest.h"
#include "launcher/options/option_table.h"
#include "launcher/options/option_values.h"

namespace poprun::launcher {
namespace {

namespace po = boost::program_options;

constexpr const char* kUsageLine =
    "poprun-emu [options] train.cfg, for example: poprun-emu -n 16 train.cfg";

constexpr const char* kExitCodes = R"(

Exit codes: 0 done, 64 bad option or train.cfg, 65 bad data, 69 host or data server not reached,
or no room for the job on this machine, 70 a bug, 75 something died or took too long (run again),
86 the model does not fit, 129, 130 and 143 stopped by SIGHUP, SIGINT and SIGTERM; a replica's own
exit code is passed on.
)";

/// One value somebody wrote, and where.
struct Written {
  const OptionRow* row;
  std::string value;
  std::string place;  ///< "--training.seed" or "train.cfg:7: seed", for messages.
  Origin origin;
};

struct CommandLine {
  std::vector<Written> written;
  std::vector<std::string> positional;
};

/// Boost's view of the rows of `group`; every value is text to it. A flag's value is joined to it
/// by `=` before Boost parses (see normalised), and help shows it without one.
po::options_description described(Group group, const std::string& caption, bool for_help) {
  po::options_description description(caption, 110, 60);
  for (const OptionRow& row : option_table()) {
    if (row.group != group) {
      continue;
    }
    const std::string names = row.letter == 0 ? row.name : row.name + "," + row.letter;
    if (row.arity == Arity::kFlag) {
      description.add_options()(names.c_str(), new po::untyped_value(/*zero_tokens=*/for_help),
                                row.help.c_str());
    } else {
      auto* value = po::value<std::string>()->value_name(row.placeholder);
      if (!row.fallback.empty()) {
        value->default_value(row.fallback);
      }
      description.add_options()(names.c_str(), value, row.help.c_str());
    }
  }
  return description;
}

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
    if (argument == "-vv" || argument == "--vv") {
      result.emplace_back("--verbose=2");
    } else if (const OptionRow* row = named_row(argument)) {
      const bool has_value = i + 1 < args.size() && is_value_of(*row, args[i + 1]);
      if (!has_value && row->arity != Arity::kFlag) {
        return fail(ErrorCode::kUsage, fmt::format("--{}: needs a value", row->name));
      }
      result.push_back(fmt::format("--{}={}", row->name, has_value ? args[++i] : "true"));
    } else if (argument.size() > 2 && argument[0] == '-' && argument[1] != '-' &&
               argument[2] == '=') {
      result.push_back(argument.substr(0, 2) + argument.substr(3));
    } else {
      result.push_back(argument);
    }
  }
  return result;
}

/// What other launchers and frameworks call an option of ours, or nothing.
std::string_view called_elsewhere(std::string_view typed) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"lr", "training.learning-rate"},
      {"np", "num-replicas"},
      {"n", "num-replicas"},
      {"N", "num-replicas"},
      {"x", "mpi-local-args"}};
  const auto* const known =
      std::ranges::find(kNames, typed.substr(typed.find('.') + 1),
                        &std::pair<std::string_view, std::string_view>::first);
  return known == std::end(kNames) ? std::string_view{} : known->second;
}

/// The options that somebody may have meant who wrote `typed`: of that key, of a name or key nearly
/// so, or of a name that ends so. `--seed` is --training.seed, `--batch-size`
/// --data.micro-batch-size.
std::vector<std::string> meant_by(std::string_view typed) {
  std::vector<std::string> candidates;
  const auto key_of = [](const std::string& name) { return name.substr(name.find('.') + 1); };
  for (const OptionRow& row : option_table()) {
    candidates.push_back(row.name);
    candidates.push_back(key_of(row.name));
  }
  if (const std::string_view ours = called_elsewhere(typed); !ours.empty()) {
    return {fmt::format("--{}", ours)};
  }
  const std::string close = nearest(typed, candidates);
  std::vector<std::string> meant;
  for (const OptionRow& row : option_table()) {
    const bool ends_so =
        close.empty() && typed.size() > 3 && row.name.ends_with(fmt::format("-{}", typed));
    if (row.name == close || key_of(row.name) == close || ends_so) {
      meant.push_back("--" + row.name);
    }
  }
  return meant;
}

Error unknown_option(const po::option& option) {
  const std::string given =
      option.original_tokens.empty() ? option.string_key : option.original_tokens[0];
  const std::string name = given.substr(0, given.find('='));
  const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  if (const std::optional<std::string> instead = why_refused(bare)) {
    return {ErrorCode::kUsage, fmt::format("{} {}", name, *instead)};
  }
  const std::vector<std::string> meant = meant_by(bare);
  return {ErrorCode::kUsage,
          fmt::format("{}: unknown option; {}", name,
                      meant.empty() ? "see poprun-emu --help"
                                    : fmt::format("did you mean {}?", fmt::join(meant, " or ")))};
}

Result<CommandLine> parse_command_line(std::span<const std::string> args) {
  po::options_description all;
  for (const Group group : {Group::kGeneral, Group::kPlacement, Group::kHosts, Group::kDataServer,
                            Group::kOutput, Group::kTimeouts, Group::kJob, Group::kCompatibility}) {
    all.add(described(group, "", /*for_help=*/false));
  }
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
        return tl::unexpected<Error>{unknown_option(option)};
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

Error unknown_key(const std::string& place, const ConfigEntry& entry) {
  std::vector<std::string> in_section;
  std::vector<std::string> sections;
  std::string elsewhere;
  for (const OptionRow& row : option_table()) {
    if (row.group != Group::kJob) {
      continue;
    }
    const std::size_t dot = row.name.find('.');
    const std::string section = row.name.substr(0, dot);
    const std::string key = row.name.substr(dot + 1);
    if (std::ranges::find(sections, section) == sections.end()) {
      sections.push_back(section);
    }
    if (section == entry.section) {
      in_section.push_back(key);
    }
    if (key == entry.key) {
      elsewhere = fmt::format("{} in [{}]", key, section);
    }
  }
  if (in_section.empty() && elsewhere.empty()) {
    const std::string close = nearest(entry.section, sections);
    return {ErrorCode::kUsage,
            fmt::format("{}: unknown section [{}]; {}", place, entry.section,
                        close.empty() ? fmt::format("known: [{}]", fmt::join(sections, "] ["))
                                      : fmt::format("did you mean [{}]?", close))};
  }
  // Also of who wrote the section again, or another framework's name.
  const std::string key = entry.key.substr(entry.key.find('.') + 1);
  const std::string ours{called_elsewhere(key)};
  const std::string close = !elsewhere.empty() ? elsewhere
                            : ours.starts_with(entry.section + ".")
                                ? ours.substr(entry.section.size() + 1)
                                : nearest(key, in_section);
  return {ErrorCode::kUsage,
          fmt::format("{}: unknown key {} in [{}]; {}", place, entry.key, entry.section,
                      close.empty() ? fmt::format("known: {}", fmt::join(in_section, ", "))
                                    : fmt::format("did you mean {}?", close))};
}

Result<std::vector<Written>> written_in_file(const std::string& file, std::string_view text) {
  POPRUN_ASSIGN(const std::vector<ConfigEntry> entries, parse_config(file, text));
  std::vector<Written> written;
  std::map<const OptionRow*, std::size_t> first_line;
  for (const ConfigEntry& entry : entries) {
    const std::string place = fmt::format("{}:{}", file, entry.line);
    const OptionRow* row = find_row(entry.section + "." + entry.key);
    if (row == nullptr || row->group != Group::kJob) {
      return tl::unexpected<Error>{unknown_key(place, entry)};
    }
    const auto [known, is_new] = first_line.emplace(row, entry.line);
    if (!is_new) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: {} was already given in line {}; remove one of the two", place,
                              entry.key, known->second));
    }
    written.push_back({row, entry.value, place + ": " + entry.key, Origin::kFile});
  }
  return written;
}

/// `text` as a message shows it: short.
std::string shown(const std::string& text) {
  constexpr std::size_t kShown = 60;
  if (text.size() <= kShown) {
    return text.empty() ? "(nothing)" : text;
  }
  return fmt::format("{}... ({} characters)", text.substr(0, kShown), text.size());
}

Status give_value(Options& options, const Written& written) {
  const Refusal allowed = written.row->set(options, written.value);
  return allowed ? Status{fail(ErrorCode::kUsage,
                               fmt::format("{} = {} is not allowed; allowed: {}", written.place,
                                           shown(written.value), *allowed))}
                 : Status{};
}

/// Gives every row its value: the last one written wins; a repeated row takes all. Also values that
/// are overridden must be right. Requires: the file's values stand before the command line's.
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

Status check_training(const proto::TrainingConfig& training) {
  if (training.nesterov() && training.optimizer() != "momentum") {
    return fail(ErrorCode::kUsage,
                fmt::format("training.nesterov = true needs training.optimizer = momentum, had {}",
                            training.optimizer()));
  }
  return {};
}

/// What only half precision has, and the loss scale that goes with it.
Status resolve_precision(Options& options) {
  proto::TrainingConfig& training = *options.config.mutable_training();
  const bool half = options.config.model().precision() == "half";
  const std::pair<const char*, bool> need_half[] = {
      {"model.partials = half", options.config.model().partials() == "half"},
      {"training.master-weights = true", training.master_weights()},
      {"training.stochastic-rounding = true", training.stochastic_rounding()}};
  for (const auto& [what, given] : need_half) {
    if (given && !half) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{} needs model.precision = half, had float", what));
    }
  }
  training.set_loss_scaling(options.loss_scaling.value_or(half ? 0.0 : 1.0));
  return {};
}

/// Linear scaling: Goyal et al., "Accurate, large minibatch SGD", arXiv:1706.02677, section 2.1.
void scale_learning_rate(Options& options) {
  if (options.learning_rate_base_batch == 0) {
    return;
  }
  proto::TrainingConfig& training = *options.config.mutable_training();
  const std::uint64_t batch = std::uint64_t{options.config.topology().num_replicas()} *
                              options.config.data().micro_batch_size() *
                              training.gradient_accumulation();
  const double given = training.learning_rate();
  training.set_learning_rate(given * static_cast<double>(batch) /
                             static_cast<double>(options.learning_rate_base_batch));
  options.notes.push_back(
      fmt::format("learning rate {} x global batch {} / {} = {} (training.scale-learning-rate)",
                  given, batch, options.learning_rate_base_batch, training.learning_rate()));
}

/// Requires: the table has a row of that name.
Setting& setting_of(Options& options, std::string_view name) {
  return *std::ranges::find(options.settings, name, &Setting::name);
}

/// An ONNX model has neither a built-in's name nor its sizes.
Status check_model(Options& options) {
  proto::ModelConfig& model = *options.config.mutable_model();
  if (model.onnx().empty()) {
    return model.loss().empty() ? Status{}
                                : Status{fail(ErrorCode::kUsage,
                                              "model.loss is for model.onnx; built-in models have "
                                              "their own loss")};
  }
  Setting& name = setting_of(options, "model.name");
  const Origin onnx_from = setting_of(options, "model.onnx").origin;
  if (name.origin == Origin::kFile && onnx_from == Origin::kCommandLine) {
    options.notes.push_back(fmt::format("model.onnx = {} replaces the file's model.name = {}",
                                        model.onnx(), name.text));
  } else if (name.origin != Origin::kDefault || !model.sizes().empty()) {
    const bool named = name.origin != Origin::kDefault;
    return fail(ErrorCode::kUsage,
                fmt::format("model.onnx and model.{} exclude each other; give one of them",
                            named ? "name" : model.sizes().begin()->first));
  }
  if (model.dropout() > 0) {
    return fail(ErrorCode::kUsage, fmt::format("model.dropout = {}: an ONNX model drops what its "
                                               "Dropout nodes say; leave it out",
                                               model.dropout()));
  }
  model.set_name(std::filesystem::path(model.onnx()).filename().string());
  // Not what --dry-run should show: it is not asked for a built-in model.
  name.text.clear();
  if (model.loss().empty()) {
    model.set_loss("cross-entropy");
  }
  return {};
}

/// Notes what somebody asked for that another setting leaves without effect. Not that training
/// settings have none in inference: one train.cfg may do for both.
void note_what_has_no_effect(Options& options) {
  if (options.config.inference()) {
    return;
  }
  const proto::TrainingConfig& training = options.config.training();
  const bool adaptive = training.optimizer() != "sgd" && training.optimizer() != "momentum";
  const bool falls = training.schedule() == "step";
  // A file that gives both is read by itself: its steps count.
  const bool asked_for_epochs =
      setting_of(options, "training.epochs").origin == Origin::kCommandLine;
  struct Case {
    const char* name;
    bool has_effect;
    const char* because;
  };
  for (const auto& [name, has_effect, because] :
       {Case{"training.momentum", training.optimizer() == "momentum", "training.optimizer"},
        Case{"training.beta1", adaptive, "training.optimizer"},
        Case{"training.beta2", adaptive, "training.optimizer"},
        Case{"training.epsilon", adaptive, "training.optimizer"},
        Case{"training.schedule-steps", falls, "training.schedule"},
        Case{"training.schedule-decay", falls, "training.schedule"},
        Case{"training.epochs", training.steps() == 0 || !asked_for_epochs, "training.steps"}}) {
    const Setting& setting = setting_of(options, name);
    if (!has_effect && setting.origin != Origin::kDefault) {
      options.notes.push_back(fmt::format("{} = {} has no effect with {} = {}", name, setting.text,
                                          because, setting_of(options, because).text));
    }
  }
  if (static_cast<float>(training.learning_rate()) == 0) {
    options.notes.push_back(fmt::format(
        "a learning rate of {} is 0 in float32, so nothing is trained", training.learning_rate()));
  }
}

/// Inference has no training steps to dump, and makes random weights no better.
Status check_inference(Options& options) {
  if (!options.config.inference()) {
    return {};
  }
  if (options.config.report().dump_tensors_size() > 0) {
    return fail(ErrorCode::kUsage,
                "report.dump-tensors needs training steps, model.mode = inference has none; remove "
                "one of the two");
  }
  const proto::ModelConfig& model = options.config.model();
  if (model.initial_weights().empty() && model.onnx().empty()) {
    options.notes.push_back(
        "model.mode = inference without model.initial-weights: the weights are random");
  }
  return {};
}

/// The divisor of `number` that is next to `from`, below it (`step` -1) or above it (1).
///
/// Requires: 1 <= from <= number.
std::uint32_t divisor(std::uint32_t number, std::uint32_t from, int step) {
  while (number % from != 0) {
    from += static_cast<std::uint32_t>(step);
  }
  return from;
}

/// Without --num-instances, every replica is an instance.
Status resolve_instances(Options& options) {
  proto::Topology& topology = *options.config.mutable_topology();
  const std::uint32_t replicas = topology.num_replicas();
  if (topology.num_instances() == 0) {
    topology.set_num_instances(replicas);
  }
  const std::uint32_t instances = topology.num_instances();
  if (instances > replicas) {
    return fail(ErrorCode::kUsage, fmt::format("--num-instances = {} is more than --num-replicas = "
                                               "{}; an instance has at least one replica",
                                               instances, replicas));
  }
  if (replicas % instances != 0) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("--num-replicas = {} is not divisible by --num-instances = {}; every instance "
                    "has the same number of replicas: {} or {} instances do",
                    replicas, instances, divisor(replicas, instances, -1),
                    divisor(replicas, instances, 1)));
  }
  if (!options.instance_mpi_local_args.empty() &&
      options.instance_mpi_local_args.rbegin()->first >= instances) {
    return fail(ErrorCode::kUsage,
                fmt::format("--instance-mpi-local-args: there is no instance {}, instances are 0 "
                            "to {}",
                            options.instance_mpi_local_args.rbegin()->first, instances - 1));
  }
  if (options.only_output_from_instance >= static_cast<std::int64_t>(instances)) {
    return fail(ErrorCode::kUsage,
                fmt::format("--only-output-from-instance = {}, but instances are 0 to {}",
                            options.only_output_from_instance, instances - 1));
  }
  return {};
}

/// What no row can see alone.
Status check_together(Options& options) {
  POPRUN_TRY(check_model(options));
  POPRUN_TRY(check_training(options.config.training()));
  POPRUN_TRY(resolve_precision(options));
  scale_learning_rate(options);
  note_what_has_no_effect(options);
  POPRUN_TRY(check_inference(options));
  if (!options.source_parameters.empty()) {
    options.config.mutable_data()->set_source(fmt::format(
        "{}?{}", options.config.data().source(), fmt::join(options.source_parameters, ",")));
  }
  POPRUN_TRY(resolve_instances(options));
  if (!options.host_lists.empty() && !options.hostfile.empty()) {
    return fail(ErrorCode::kUsage, "--host and --hostfile exclude each other; give one of them");
  }
  if (options.heartbeat_timeout_seconds < 2 * options.heartbeat_interval_seconds) {
    return fail(ErrorCode::kUsage,
                fmt::format("--heartbeat-timeout = {} is less than twice --heartbeat-interval = {}",
                            options.heartbeat_timeout_seconds, options.heartbeat_interval_seconds));
  }
  return {};
}

/// The command line, then the file by `read`, then both together.
template <typename Read>
Result<Options> parse(std::span<const std::string> args, Read read) {
  POPRUN_ASSIGN(CommandLine line, parse_command_line(args));
  const auto asks_for = [&](std::string_view name) {
    return std::ranges::any_of(line.written, [&](const Written& w) {
      return w.row->name == name && parse_boolean(w.value).value_or(false);
    });
  };
  Options options;
  if (asks_for("help") || asks_for("version")) {
    options.help = asks_for("help");
    options.version = !options.help;
    return options;
  }
  if (asks_for("list-models")) {
    options.question = {"poprun-emu-replica", "--list-models"};
    return options;
  }
  for (const Written& w : line.written) {
    if (w.row->name == "check-onnx") {
      options.question = {"poprun-emu-onnx-check", w.value};
      return options;
    }
  }
  // Before a missing train.cfg: a wrong value may be why there seem to be two (`-np 4 train.cfg`).
  for (const Written& w : line.written) {
    Options unused;
    POPRUN_TRY(give_value(unused, w));
  }
  if (line.positional.size() != 1) {
    const std::string given =
        line.positional.empty()
            ? "no train.cfg was given"
            : fmt::format(
                  "one train.cfg is needed, {} were given: {}; it says what to run, no "
                  "program is given",
                  line.positional.size(), fmt::join(line.positional, " "));
    return fail(ErrorCode::kUsage,
                fmt::format("{}; usage: {} (--help lists the options)", given, kUsageLine));
  }
  options.config_file = line.positional[0];
  POPRUN_ASSIGN(const std::string text, read(options.config_file));
  POPRUN_ASSIGN(std::vector<Written> written, written_in_file(options.config_file, text));
  written.insert(written.end(), line.written.begin(), line.written.end());
  POPRUN_TRY(give_values(options, written));
  POPRUN_TRY(check_together(options));
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
  return parse(args, [](const std::string& path) { return read_config_file(path); });
}

Result<Options> parse_options(std::span<const std::string> args, std::string_view config_text) {
  return parse(args,
               [&](const std::string&) { return Result<std::string>(std::string(config_text)); });
}

std::string help_text() {
  std::ostringstream out;
  out << "Usage: " << kUsageLine << "\n\n"
      << "Trains the model of train.cfg on emulated IPUs, as poprun would on a Pod.\n\n";
  const std::vector<std::pair<Group, const char*>> groups = {
      {Group::kGeneral, "General"},
      {Group::kPlacement, "Placement"},
      {Group::kHosts, "Hosts and MPI"},
      {Group::kDataServer, "Data server"},
      {Group::kOutput, "Output"},
      {Group::kTimeouts, "Timeouts"},
      {Group::kJob,
       "The job (in train.cfg: `[training]`, then `seed = 7`; the command line overrides it)"}};
  for (const auto& [group, caption] : groups) {
    out << described(group, caption, /*for_help=*/true) << "\n";
  }
  out << "Accepted without effect, for poprun's users:";
  std::size_t place = 0;
  for (const OptionRow& row : option_table()) {
    if (row.group == Group::kCompatibility) {
      out << (place++ % 4 == 0 ? "\n  --" : " --") << row.name;
    }
  }
  out << kExitCodes;
  return out.str();
}

std::string resolved_config(const Options& options) {
  std::string text;
  std::string section;
  for (const Setting& setting : options.settings) {
    const std::size_t dot = setting.name.find('.');
    if (dot == std::string::npos) {
      continue;
    }
    if (setting.name.substr(0, dot) != section) {
      section = setting.name.substr(0, dot);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    const bool unset = setting.text.empty();
    const std::string line =
        fmt::format("{}{} = {}", unset ? "# " : "", setting.name.substr(dot + 1), setting.text);
    text += fmt::format("{:<40} # {}\n", line, unset ? "not set" : origin_text(setting.origin));
  }
  return text;
}

}  // namespace poprun::launcher
