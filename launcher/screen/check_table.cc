#include "launcher/screen/check_table.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "replica/base/error.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr const char* kColumns = "{:>4}  {:<12} {:<11}  {:<13}  {:>11}  {:>11}  {:>7}  {:>9}  {}";

std::string result_of(const proto::CheckedRun& run) {
  static const std::map<proto::CheckedRun::Verdict, const char*> kWords = {
      {proto::CheckedRun::REFERENCE, "the reference"},
      {proto::CheckedRun::EQUAL, "equal"},
      {proto::CheckedRun::DIFFERENT, "DIFFERENT"},
      {proto::CheckedRun::PROVEN, "proven, not executed"},
      {proto::CheckedRun::NOT_APPLICABLE, "does not apply"}};
  const auto word = kWords.find(run.verdict());
  const std::string text = word == kWords.end() ? "unknown" : word->second;
  return run.detail().empty() ? text : fmt::format("{}: {}", text, run.detail());
}

std::string milliseconds(double seconds) {
  return seconds > 0 ? fmt::format("{:.3f} ms", 1e3 * seconds) : "-";
}

std::uint64_t count(const proto::CheckReport& report, proto::CheckedRun::Verdict verdict) {
  return static_cast<std::uint64_t>(
      std::ranges::count(report.runs(), verdict, &proto::CheckedRun::verdict));
}

}  // namespace

std::string check_heading() {
  return fmt::format(kColumns, "IPUs", "split", "schedule", "recomputation", "peak on IPU",
                     "device/step", "util.", "wall/step", "result");
}

std::string check_row(const proto::CheckedRun& run) {
  const bool compiled = run.peak_bytes() > 0;
  return fmt::format(
      kColumns, run.ipus(), run.split(), run.ipus() == 1 ? "-" : run.schedule(),
      run.recomputation(), compiled ? mebibytes_text(run.peak_bytes()) : "-",
      milliseconds(run.device_step_seconds()),
      compiled ? fmt::format("{:.1f} %", 100 * run.utilisation()) : "-",
      run.wall_step_seconds() > 0 ? fmt::format("{:.3f} s", run.wall_step_seconds()) : "-",
      result_of(run));
}

int check_exit_code(const proto::CheckReport& report) {
  if (count(report, proto::CheckedRun::DIFFERENT) > 0) {
    return exit_code_of(ErrorCode::kBug);
  }
  return count(report, proto::CheckedRun::REFERENCE) > 0 ? 0
                                                         : exit_code_of(ErrorCode::kOutOfMemory);
}

std::string check_result(const proto::CheckReport& report, const std::string& result_folder) {
  const std::uint64_t equal = count(report, proto::CheckedRun::EQUAL);
  const std::uint64_t different = count(report, proto::CheckedRun::DIFFERENT);
  const std::uint64_t proven = count(report, proto::CheckedRun::PROVEN);
  std::string text =
      fmt::format("{} of {} equal to the reference in every bit, over {}", equal,
                  counted(equal + different, "run"), counted(report.plan().steps(), "step"));
  if (different > 0) {
    text += fmt::format("; {} DIFFERENT, which is a bug in poprun-emu", different);
  }
  if (proven > 0) {
    text += fmt::format("; {} proven equal, but too large to execute", proven);
  }
  return fmt::format("{}\nresults in {}/check.json\n", text, result_folder);
}

}  // namespace poprun::launcher
