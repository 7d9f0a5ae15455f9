#include "launcher/options/next_command.h"

#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace poprun::launcher {
namespace {

/// Returns the command with the words of the job. `same_place` says whether the options for results still apply.
std::string command(const Options& options, const char* what, bool same_place) {
  std::vector<std::string> words = {"poprun-emu"};
  if (*what != '\0') {
    words.emplace_back(what);
  }
  if (same_place) {
    words.insert(words.end(), options.result_words.begin(), options.result_words.end());
  }
  words.insert(words.end(), options.job_words.begin(), options.job_words.end());
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

std::string next_command(const Options& options) {
  if (options.form != AnswerForm::kText || options.config_file.empty()) {
    return "";
  }
  switch (options.subcommand()) {
    case Subcommand::kRun:
      return options.dry_run ? command(options, "", true) : command(options, "profile", false);
    case Subcommand::kEstimate:
      return std::get<EstimateRequest>(options.request).micro ? "" : command(options, "--dry-run", true);
    case Subcommand::kCheck:
      return command(options, "profile", false);
    case Subcommand::kProfile:
      return command(options, "", false);
    case Subcommand::kValidate:
    case Subcommand::kReport:
    case Subcommand::kScale:
      return "";
  }
  return "";
}

}  // namespace poprun::launcher
