#include "launcher/options/command_line.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iterator>
#include <utility>

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

namespace po = boost::program_options;

/// Returns the row that an argument such as `-n` or `--num-replicas` names, or null if it names none.
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
  return argument == "-vv" || argument == "--vv" || named_row(argument.substr(0, argument.find('='))) != nullptr;
}

/// Returns whether `argument`, which follows an option, is the option's value. `row` is the row of that option.
bool is_value_of(const OptionRow& row, const std::string& argument) {
  if (row.arity == Arity::kFlag) {
    Options unused;
    return !row.set(unused, argument);
  }
  return row.arity == Arity::kArguments || !looks_like_an_option(argument);
}

/// Converts poprun's syntax to Boost's: `-vv` and `--vv`, `-n=16`, and booleans whose value is optional, so that both
/// `--dry-run train.cfg` and `--dry-run yes train.cfg` work. Joins each value to its option. Otherwise, if a value were
/// missing, Boost would take the next option as the value.
/// Adds a message to `mistakes` for each option that lacks its value.
std::vector<std::string> normalised(std::span<const std::string> args, std::vector<std::string>& mistakes) {
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
      // Boost would read -np as -n with the value p.
      mistakes.push_back(unknown_option(argument.substr(0, equals)));
    } else if (const OptionRow* row = named_row(argument.substr(0, equals))) {
      if (equals < argument.size()) {
        result.push_back(fmt::format("--{}{}", row->name, argument.substr(equals)));
        continue;
      }
      const bool has_value = i + 1 < args.size() && is_value_of(*row, args[i + 1]);
      if (!has_value && row->arity != Arity::kFlag) {
        mistakes.push_back(fmt::format("--{}: needs a value", row->name));
        continue;
      }
      std::string value = has_value ? args[++i] : "true";
      // A list of hosts may contain spaces, as in `--host a, b, c`.
      while (row->name == "host" && i + 1 < args.size() && (value.ends_with(',') || args[i + 1].starts_with(',')) &&
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

/// Returns the table as Boost's options, with every value as text. The value of a flag must be joined to it by `=`.
po::options_description described_options() {
  po::options_description all;
  for (const OptionRow& row : option_table()) {
    const std::string names = row.letter == 0 ? row.name : fmt::format("{},{}", row.name, row.letter);
    if (row.arity == Arity::kFlag) {
      all.add_options()(names.c_str(), new po::untyped_value(/*zero_tokens=*/false));
    } else {
      all.add_options()(names.c_str(), po::value<std::string>());
    }
  }
  return all;
}

/// Returns an option that is unknown to Boost, in the form that the user typed.
std::string typed(const po::option& option) {
  const std::string given = option.original_tokens.empty() ? option.string_key : option.original_tokens[0];
  return given.substr(0, given.find('='));
}

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kMpiOption = "belongs to mpirun; pass it on with --mpi-global-args";
constexpr std::string_view kOneLauncher =
    "is not needed: poprun-emu is started once and starts the processes on all hosts of --host or --hostfile";
constexpr std::string_view kSlots =
    "is not an option: --num-instances is the number of processes in the whole job, and --host node0:4,node1:4 places "
    "4 of them on each host";

/// Options of other programs that have no equivalent here, each with advice on what to do instead.
constexpr Pair kInstead[] = {
    // poprun
    {"import-config",
     "is poprun's option; here the settings of a job are in train.cfg and its placement is on the command line"},
    {"export-config", "is poprun's option; here --dry-run -v prints every resolved setting in the form of a train.cfg"},
    {"overwrite-config",
     "is poprun's option; here --dry-run -v prints every resolved setting in the form of a train.cfg"},
    {"version-format",
     "is poprun's option; here --version has one form, and profile.json lists the versions of the libraries"},
    // mpirun
    {"mca", kMpiOption},
    {"bind-to", kMpiOption},
    {"map-by", kMpiOption},
    {"rank-by", kMpiOption},
    {"report-bindings", kMpiOption},
    {"tag-output", kMpiOption},
    {"oversubscribe", "is not needed: a host can run more instances than it has cores"},
    {"npernode", kSlots},
    {"ppn", kSlots},
    // torchrun
    {"nproc-per-node", kSlots},
    {"nnodes", "is not an option: the hosts are listed with --host node0,node1 or --hostfile FILE"},
    {"node-rank", kOneLauncher},
    {"master-addr", kOneLauncher},
    {"master-port", kOneLauncher},
    {"rdzv-backend", kOneLauncher},
    {"rdzv-endpoint", kOneLauncher},
    {"rdzv-id", kOneLauncher},
    {"config", "is not needed: name the file itself, as in poprun-emu -n 16 train.cfg"}};

/// Options of other programs that have an equivalent here, each with the name of that equivalent.
constexpr Pair kNames[] = {{"np", "num-replicas"},
                           {"n", "num-replicas"},
                           {"N", "num-replicas"},
                           {"nproc", "num-replicas"},
                           {"world-size", "num-replicas"},
                           {"num-gpus", "num-replicas"},
                           {"gpus", "num-replicas"},
                           {"devices", "num-replicas"},
                           {"x", "mpi-local-args"},
                           {"max-restarts", "restarts"},
                           {"resume-from-checkpoint", "resume"},
                           {"checkpoint", "checkpoint-every"},
                           {"save-steps", "checkpoint-every"},
                           {"save-total-limit", "checkpoint-keep"},
                           {"min-np", "hosts-min"},
                           {"machinefile", "hostfile"},
                           {"o", "output-dir"},
                           {"output", "output-dir"},
                           {"lr", "training.learning-rate"},
                           {"wd", "training.weight-decay"},
                           {"max-grad-norm", "training.clip-norm"},
                           {"stages", "pipeline.layers-per-ipu"},
                           {"num-stages", "pipeline.layers-per-ipu"},
                           {"pipeline-parallel-size", "ipus-per-replica"},
                           {"gradient-accumulation-steps", "training.gradient-accumulation"},
                           {"dataset", "data.source"},
                           {"fp16", "model.precision"},
                           {"amp", "model.precision"},
                           {"availableMemoryProportion", "memory.available-memory-proportion"},
                           {"setAvailableMemoryProportion", "memory.available-memory-proportion"},
                           {"set-available-memory", "memory.available-memory-proportion-operators"},
                           {"partialsType", "model.partials"},
                           {"embedding_serialization_factor", "model.embedding-serialisation-factor"},
                           {"serializedMatMul", "model.serialised-matmuls"},
                           {"numIOTiles", "device.io-tiles"},
                           {"num-io-tiles", "device.io-tiles"},
                           {"partials-type", "model.partials"},
                           {"dtype", "model.precision"}};

std::string_view find(std::span<const Pair> pairs, std::string_view name) {
  const auto known = std::ranges::find(pairs, name, &Pair::first);
  return known == pairs.end() ? std::string_view{} : known->second;
}

std::vector<std::string> meant_by(std::string_view typed) {
  if (const std::string_view ours = called_elsewhere(typed); !ours.empty()) {
    return {fmt::format("--{}", ours)};
  }
  std::vector<std::string> candidates;
  const auto key_of = [](const std::string& name) { return name.substr(name.find('.') + 1); };
  for (const OptionRow& row : option_table()) {
    candidates.push_back(row.name);
    candidates.push_back(key_of(row.name));
  }
  const std::string close = nearest(typed, candidates);
  std::vector<std::string> meant;
  for (const OptionRow& row : option_table()) {
    const bool ends_so = close.empty() && typed.size() > 3 && row.name.ends_with(fmt::format("-{}", typed));
    if (row.name == close || key_of(row.name) == close || ends_so) {
      meant.push_back("--" + row.name);
    }
  }
  return meant;
}

}  // namespace

Result<CommandLine> parse_command_line(std::span<const std::string> args) {
  const po::options_description all = described_options();
  CommandLine result;
  std::vector<std::string> mistakes;
  const std::vector<std::string> words = normalised(args, mistakes);
  try {
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    const auto parsed = po::command_line_parser(words).options(all).style(style).allow_unregistered().run();
    for (const po::option& option : parsed.options) {
      if (option.string_key.empty()) {
        result.positional.insert(result.positional.end(), option.value.begin(), option.value.end());
        continue;
      }
      std::string name = option.string_key;
      name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
      const OptionRow* row = find_row(name);
      if (option.unregistered || row == nullptr) {
        mistakes.push_back(unknown_option(typed(option)));
        continue;
      }
      const std::string value = option.value.empty() ? "" : option.value[0];
      result.written.push_back({row, value, fmt::format("--{}", row->name), Origin::kCommandLine});
    }
  } catch (const po::error_with_option_name& error) {
    mistakes.push_back(fmt::format("{}: needs a value", error.get_option_name()));
  } catch (const std::exception& error) {
    mistakes.emplace_back(error.what());
  }
  if (!mistakes.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("{}", fmt::join(mistakes, "\n")));
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

std::span<const SubcommandRow> subcommands() {
  static const std::vector<SubcommandRow> all = {
      {Subcommand::kCheck, "check", "Run a few steps with every kind of pipeline, and compare the bits",
       "Run a few steps without a pipeline and with every kind of pipeline, and compare the results bit by bit",
       "Exits with 0 if all runs that were compared are equal, with 70 if one differs, and with 64 or 86 if nothing "
       "could be compared (--help exit-codes)."},
      {Subcommand::kEstimate, "estimate", "Estimate the memory and the number of IPUs, without compiling",
       "Estimate the memory and the number of IPUs that the job needs, without compiling it",
       "Counts parameters (by kind of block), activations and optimiser state, first with the formulas of Graphcore's "
       "Memory and Performance Optimisation, then with the job's own types. Exits with 0 whether or not the job fits; "
       "--dry-run reports whether it does."},
      {Subcommand::kProfile, "profile", "Show where memory and device time go, and run a few steps",
       "Show where the compiled job's memory and device time go, and run a few steps",
       "Writes profile.pb, profile.json, report.html (for a browser), trace.pftrace (for Perfetto), memory.pickle and "
       "memory-tiles.pickle (for PyTorch's memory_viz) to --output-dir (default: poprun-emu-profile). Exits with 86, "
       "after writing "
       "the profile, if the job does not fit. With --compare A B, two such files are compared, and no train.cfg is "
       "needed."},
      {Subcommand::kValidate, "validate", "Compare the device clock with published results of real IPUs",
       "Compare the device clock with published results of real IPUs",
       "Compiles the job of each result and executes nothing. Prints the published and the modelled value of each, the "
       "mean error of each family, and the numbers of the clock that were fitted to results. Needs no train.cfg."},
      {Subcommand::kReport, "report", "Write report.html, which shows jobs in a browser",
       "Write report.html, which shows the jobs of some folders in a browser",
       "Takes the output folders of one or several jobs instead of a train.cfg, and writes report.html to --output-dir "
       "(default: the first of these folders). The file needs no network."},
      {Subcommand::kScale, "scale", "Show the device time of a step for each of many numbers of replicas",
       "Show the device time and memory of a step for each of many numbers of replicas",
       "Compiles the job for each number, and executes nothing. In weak scaling, each replica keeps its batch; in "
       "strong "
       "scaling, all replicas together keep the batch of the first number. Efficiency compares the samples/s of a "
       "replica with those of the first number. The number of replicas in train.cfg or after -n has no effect."}};
  return all;
}

std::span<const InformationRow> information() {
  static const std::vector<InformationRow> all = {{"models", "List the built-in models with their sizes"},
                                                  {"help", "Show this help, or that of a topic: help training"}};
  return all;
}

bool is_information(std::string_view word) {
  return std::ranges::find(information(), word, &InformationRow::name) != information().end();
}

Result<Subcommand> take_subcommand(std::vector<std::string>& positional) {
  if (positional.empty()) {
    return Subcommand::kRun;
  }
  const auto row = std::ranges::find(subcommands(), positional[0], &SubcommandRow::name);
  if (row != subcommands().end()) {
    positional.erase(positional.begin());
    if (!positional.empty() && positional[0] == row->name) {
      return fail(ErrorCode::kUsage,
                  fmt::format("the subcommand {0} is given twice; to run a file of that name, write ./{0}; usage: {1}",
                              row->name, usage_line(row->subcommand)));
    }
    return row->subcommand;
  }
  if (positional.size() == 1) {
    return Subcommand::kRun;  // A single word is always a file, even if it resembles a subcommand.
  }
  for (const SubcommandRow& meant : subcommands()) {
    const std::string names[] = {meant.name};
    if (!nearest(positional[0], names).empty()) {
      return fail(ErrorCode::kUsage, fmt::format("unknown subcommand '{}'; {} usage: {}", positional[0],
                                                 suggestion(positional[0], names), usage_line(meant.subcommand)));
    }
    if (std::ranges::count(positional, meant.name) > 0) {
      return fail(ErrorCode::kUsage, fmt::format("the subcommand {} must come before train.cfg; usage: {}", meant.name,
                                                 usage_line(meant.subcommand)));
    }
  }
  return Subcommand::kRun;
}

std::string usage_line(Subcommand subcommand) {
  const auto row = std::ranges::find(subcommands(), subcommand, &SubcommandRow::subcommand);
  return fmt::format("poprun-emu {}[options]{}", row == subcommands().end() ? "" : row->name + " ",
                     subcommand == Subcommand::kValidate ? ""
                     : subcommand == Subcommand::kReport ? " DIR..."
                                                         : " train.cfg");
}

const SubcommandRow* owner_of(const OptionRow& row) {
  // A key of the file belongs to the job, even if its section is called like a subcommand, as [report] is.
  const auto owner = std::ranges::find(subcommands(), row.section, &SubcommandRow::name);
  return row.in_file() || owner == subcommands().end() ? nullptr : &*owner;
}

Status check_subcommand(Subcommand subcommand, std::span<const Written> written) {
  for (const Written& w : written) {
    const SubcommandRow* const owner = owner_of(*w.row);
    if (owner != nullptr && owner->subcommand != subcommand) {
      const OptionRow* const meant = find_row("num-" + w.row->name);
      return fail(ErrorCode::kUsage,
                  fmt::format("{} belongs to the subcommand {};{} usage: {}", w.place, owner->name,
                              meant == nullptr ? "" : fmt::format(" did you mean --{}?", meant->name),
                              usage_line(owner->subcommand)));
    }
  }
  return {};
}

std::string_view called_elsewhere(std::string_view typed) {
  return find(kNames, typed.substr(typed.find('.') + 1));
}

std::string unknown_option(std::string_view typed) {
  std::string bare(typed.substr(std::min(typed.find_first_not_of('-'), typed.size())));
  std::ranges::replace(bare, '_', '-');
  if (const std::string_view instead = find(kInstead, bare); !instead.empty()) {
    return fmt::format("{} {}", typed, instead);
  }
  const std::vector<std::string> meant = meant_by(bare);
  return fmt::format(
      "{}: unknown option; {}", typed,
      meant.empty() ? "see poprun-emu --help all" : fmt::format("did you mean {}?", fmt::join(meant, " or ")));
}

}  // namespace poprun::launcher
