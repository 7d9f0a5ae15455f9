#include "launcher/options/help.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/command_line.h"
#include "launcher/options/config_file.h"

namespace poprun::launcher {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kHelpColumn = 28;

/// The options that a first job needs, in the order in which they are shown.
constexpr const char* kCommon[] = {"version",
                                   "dry-run",
                                   "verbose",
                                   "num-replicas",
                                   "host",
                                   "output-dir",
                                   "overwrite",
                                   "model.name",
                                   "model.onnx",
                                   "model.precision",
                                   "data.source",
                                   "data.micro-batch-size",
                                   "training.epochs",
                                   "training.steps",
                                   "training.optimizer",
                                   "training.learning-rate",
                                   "device.ipu"};

/// Wraps `text` at spaces to kWidth columns. The first line begins at column `at`; the others are indented by `indent`.
std::string wrapped(std::string_view text, std::size_t at, std::size_t indent) {
  std::string lines;
  std::size_t column = at;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const bool begins = column == at && lines.empty();
    if (!begins && column + 1 + end > kWidth) {
      lines += fmt::format("\n{:{}}", "", indent);
      column = indent;
    } else if (!begins) {
      lines += ' ';
      ++column;
    }
    lines += text.substr(0, end);
    column += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines + "\n";
}

/// Formats a term and its meaning in two columns.
std::string entry(const std::string& term, std::string_view meaning) {
  const std::string names = "  " + term;
  const bool fits = names.size() + 2 <= kHelpColumn;
  return fmt::format("{}{}{:{}}{}", names, fits ? "" : "\n", "", kHelpColumn - (fits ? names.size() : 0),
                     wrapped(meaning, kHelpColumn, kHelpColumn));
}

std::string entry_of(const OptionRow& row) {
  return entry(names_of(row), described(row));
}

std::string section_text(const Section& section) {
  std::string text = fmt::format("{}:\n", section.title);
  for (const OptionRow& row : option_table()) {
    if (row.section == section.name) {
      text += entry_of(row);
    }
  }
  return text + "\n";
}

std::string exit_code_text() {
  std::string text = "Exit codes:\n";
  for (const auto& [codes, meaning] : exit_codes()) {
    text += entry(codes, meaning);
  }
  return text;
}

std::string introduction() {
  std::string text =
      "Usage: poprun-emu [SUBCOMMAND] [options] train.cfg\n"
      "Trains the model of train.cfg on emulated IPUs, as poprun would on a Pod.\n"
      "Example: poprun-emu -n 16 train.cfg\n\n"
      "Subcommands (before train.cfg; without one, the job runs):\n";
  const auto line = [&text](const std::string& name, const std::string& brief) {
    text += fmt::format("  {:<10}{}\n", name, brief);
  };
  for (const SubcommandRow& row : subcommands()) {
    line(row.name, row.brief);
  }
  for (const InformationRow& row : information()) {
    line(row.name, row.meaning);
  }
  return text + "\n";
}

/// Returns the introduction to the section of a subcommand, or "" for any other section.
std::string subcommand_introduction(std::string_view section) {
  const auto row = std::ranges::find(subcommands(), section, &SubcommandRow::name);
  if (row == subcommands().end()) {
    return "";
  }
  return fmt::format("Usage: {}\n\n{}{}\n", usage_line(row->subcommand), wrapped(row->meaning + ".", 0, 0),
                     wrapped(row->result, 0, 0));
}

std::string environment_text() {
  return "Environment:\n" +
         wrapped(
             "Every option can also be set by an environment variable, whose name is POPRUN_EMU_ followed by the "
             "option's name in upper case, with '_' for '-' and '.': POPRUN_EMU_OUTPUT_DIR sets --output-dir, and "
             "POPRUN_EMU_TRAINING_STEPS sets --training.steps. A flag is set by true. The command line overrides the "
             "environment, which overrides train.cfg. Options that ask for information, such as --help, have no "
             "variable, and a variable without a value is ignored.",
             0, 0) +
         "\n" + entry("POPRUN_EMU_TOKEN", "Secret token of the job; see --hostio-address") +
         entry("NO_COLOR", "If not empty, nothing is coloured unless --color says so") +
         entry("COLUMNS", "Width of tables and drawings (default: that of the terminal)") +
         entry("OMPI_MCA_*", "Open MPI's settings; they override those that poprun-emu chooses");
}

std::string common_text() {
  std::string text = introduction() + "Common options:\n";
  for (const char* name : kCommon) {
    const OptionRow* row = find_row(name);
    POPRUN_CHECK(row != nullptr);
    text += entry_of(*row);
  }
  text += "\n" +
          wrapped(fmt::format("More: poprun-emu help TOPIC, where TOPIC is {}.", fmt::join(help_topics(), ", ")), 0, 0);
  text += wrapped(
      "--training.seed 7 overrides POPRUN_EMU_TRAINING_SEED=7 in the environment, which overrides seed = 7 below "
      "[training] in train.cfg.",
      0, 0);
  if (const std::string job = default_job(); !job.empty()) {
    text += fmt::format("Default job:  {}\nExample jobs: {}\n", job, installed_folder() + "/examples");
  }
  return text;
}

}  // namespace

std::vector<std::string> help_topics() {
  std::vector<std::string> topics;
  std::ranges::transform(sections(), std::back_inserter(topics), &Section::name);
  topics.insert(topics.end(), {"environment", "exit-codes", "all"});
  return topics;
}

std::string help_text(std::string_view topic) {
  if (topic == "exit-codes") {
    return exit_code_text();
  }
  if (topic == "environment") {
    return environment_text();
  }
  std::string text = topic == "all" ? introduction() : "";
  for (const Section& section : sections()) {
    if (topic == "all") {
      text += section_text(section);
    } else if (topic == section.name) {
      text += subcommand_introduction(topic) + section_text(section);
    }
  }
  if (text.empty()) {
    return common_text();
  }
  return topic == "all" ? text + environment_text() + "\n" + exit_code_text() : text.substr(0, text.size() - 1);
}

std::string names_of(const OptionRow& row) {
  const std::string letter = row.letter == 0 ? "" : fmt::format("-{}, ", row.letter);
  const bool optional = row.arity == Arity::kFlag;
  const std::string value = row.placeholder.empty() ? ""
                            : optional              ? fmt::format(" [{}]", row.placeholder)
                                                    : " " + row.placeholder;
  return fmt::format("{}--{}{}", letter, row.name, value);
}

std::string described(const OptionRow& row) {
  const bool says_default = row.arity != Arity::kFlag && !row.fallback.empty();
  return says_default ? fmt::format("{} (default: {})", row.help, row.fallback) : row.help;
}

const std::vector<ExitCode>& exit_codes() {
  static const std::vector<ExitCode> all = {
      {"0", "The job has finished; check: all runs that were compared are equal"},
      {"64", "An option or a key of train.cfg is wrong; check: also if nothing could be compared"},
      {"65", "The input data or a file is wrong, or a number is not finite"},
      {"69",
       "A host or the data server could not be reached, a host lacks a resource that the job needs, or hosts would not "
       "compute the same bits"},
      {"70", "A bug in poprun-emu; check: also if a run differs"},
      {"75", "A process or a host died, or something took too long; running the job again may help"},
      {"86",
       "The model does not fit in the memory of an IPU; check: nothing was compared, since fewer than two runs fit"},
      {"129, 130, 140, 143", "Stopped by SIGHUP, SIGINT, SIGUSR2 or SIGTERM"},
      {"other", "The exit code of a replica, passed on"}};
  return all;
}

}  // namespace poprun::launcher
