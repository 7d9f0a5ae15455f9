#include "launcher/screen/check_table.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/error.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr const char* kColumns = "{:>4}  {:<12} {:<11}  {:<27}  {:>11}  {:>11}  {:>7}  {:>9}  {}";

std::string result_of(const proto::CheckedRun& run) {
  static const std::map<proto::CheckedRun::Verdict, const char*> kWords = {
      {proto::CheckedRun::REFERENCE, "the reference"},
      {proto::CheckedRun::EQUAL, "equal"},
      {proto::CheckedRun::DIFFERENT, "DIFFERENT"},
      {proto::CheckedRun::PROVEN, "proven, not executed"},
      {proto::CheckedRun::NOT_APPLICABLE, "does not apply"}};
  const auto word = kWords.find(run.verdict());
  std::string text = word == kWords.end() ? "unknown" : word->second;
  if (!run.same_as().empty()) {
    text += fmt::format(": same Program as {}", run.same_as());
  }
  return run.detail().empty() ? text : fmt::format("{}: {}", text, run.detail());
}

std::string milliseconds(double seconds) {
  return seconds > 0 ? fmt::format("{:.3f} ms", 1e3 * seconds) : "-";
}

/// How many runs of each kind a report has.
struct Counts {
  explicit Counts(const proto::CheckReport& report) {
    for (const proto::CheckedRun& run : report.runs()) {
      ++kind_of(run);
    }
  }

  [[nodiscard]] std::uint64_t compared() const { return equal + different; }

  std::uint64_t reference = 0;
  std::uint64_t equal = 0;
  std::uint64_t different = 0;
  std::uint64_t same = 0;  ///< Not executed, since their Program was.
  std::uint64_t proven = 0;
  std::uint64_t not_applicable = 0;

 private:
  std::uint64_t& kind_of(const proto::CheckedRun& run) {
    const proto::CheckedRun::Verdict verdict = run.verdict();
    return verdict == proto::CheckedRun::REFERENCE        ? reference
           : verdict == proto::CheckedRun::PROVEN         ? proven
           : verdict == proto::CheckedRun::NOT_APPLICABLE ? not_applicable
           : !run.same_as().empty()                       ? same
           : verdict == proto::CheckedRun::EQUAL          ? equal
                                                          : different;
  }
};

/// "2 combinations do not apply (2 IPUs, grouped, recomputation layer; ...)"; the rows say why.
std::string what_does_not_apply(const proto::CheckReport& report, std::uint64_t number) {
  constexpr std::size_t kNamed = 6;
  std::vector<std::string> names;
  for (int k = 0; k < report.runs_size() && names.size() < kNamed; ++k) {
    if (report.runs(k).verdict() == proto::CheckedRun::NOT_APPLICABLE) {
      names.push_back(report.plan().combinations(k));
    }
  }
  return fmt::format("{} {} not apply ({}{})", counted(number, "combination"),
                     number == 1 ? "does" : "do", fmt::join(names, "; "),
                     number > kNamed ? "; ..." : "");
}

std::string verdict_text(const proto::CheckReport& report, const Counts& counts) {
  std::vector<std::string> parts;
  if (counts.compared() > 0) {
    parts.push_back(fmt::format("{} of {} equal to the reference in every bit, over {}",
                                counts.equal, counted(counts.compared(), "run"),
                                counted(report.plan().steps(), "step")));
  } else {
    parts.push_back("nothing was compared");
  }
  if (counts.different > 0) {
    parts.push_back(fmt::format("{} DIFFERENT, which is a bug in poprun-emu", counts.different));
  }
  if (counts.same > 0) {
    parts.push_back(fmt::format("{} more {} the Program of one of these", counts.same,
                                counts.same == 1 ? "has" : "have"));
  }
  if (counts.proven > 0) {
    parts.push_back(fmt::format("{} proven equal, but too large to execute", counts.proven));
  }
  if (counts.not_applicable > 0) {
    parts.push_back(what_does_not_apply(report, counts.not_applicable));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// What to change so that something can be compared. Requires: nothing was, in a whole check.
std::string remedy(const Counts& counts) {
  return counts.proven > 0 ? "this does not pass: use a smaller data.micro-batch-size or model, "
                             "or more IPUs (--check-ipus), so that at least two runs fit their "
                             "memory"
                           : "this does not pass: fix what the rows report, or choose other "
                             "--check-ipus";
}

}  // namespace

std::string check_heading() {
  return fmt::format(kColumns, "IPUs", "split", "schedule", "recomputation", "peak on IPU",
                     "device/step", "util.", "wall/step", "result");
}

std::string check_row(const proto::CheckedRun& run) {
  const bool compiled = run.peak_bytes() > 0;
  return fmt::format(
      kColumns, run.ipus(), run.split(), run.stages() > 1 ? run.schedule() : "-",
      run.recomputation() + (run.placement().empty() ? "" : ", " + run.placement()) +
          (run.outlined() ? ", outlined" : ""),
      compiled ? mebibytes_text(run.peak_bytes()) : "-", milliseconds(run.device_step_seconds()),
      compiled ? fmt::format("{:.1f} %", 100 * run.utilisation()) : "-",
      run.wall_step_seconds() > 0 ? fmt::format("{:.3f} s", run.wall_step_seconds()) : "-",
      result_of(run));
}

int check_exit_code(const proto::CheckReport& report) {
  const Counts counts(report);
  if (counts.different > 0) {
    return exit_code_of(ErrorCode::kBug);
  }
  if (counts.compared() > 0) {
    return 0;
  }
  return exit_code_of(counts.proven > 0 ? ErrorCode::kOutOfMemory : ErrorCode::kUsage);
}

std::string check_result(const proto::CheckReport& report) {
  const Counts counts(report);
  const std::string verdict = verdict_text(report, counts);
  const auto& combinations = report.plan().combinations();
  const int missing = combinations.size() - report.runs_size();
  if (missing > 0) {
    return fmt::format(
        "{}\nthe check ended early: {} of {} are missing, from {} to {}; check.json is written "
        "by a whole check only",
        verdict, missing, counted(static_cast<std::uint64_t>(combinations.size()), "run"),
        combinations[report.runs_size()], combinations[combinations.size() - 1]);
  }
  return counts.compared() > 0 ? verdict : fmt::format("{}; {}", verdict, remedy(counts));
}

}  // namespace poprun::launcher
