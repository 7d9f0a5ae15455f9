#include "launcher/screen/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/screen/job_rows.h"
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

/// Numbers of runs of each kind in a report.
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
  std::uint64_t same = 0;  ///< Not executed, because an identical Program had been executed.
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

/// Returns "2 combinations do not apply (2 IPUs, grouped, recomputation layer; ...)". The rows of the check say why.
std::string what_does_not_apply(const proto::CheckReport& report, std::uint64_t number) {
  constexpr std::size_t kNamed = 6;
  std::vector<std::string> names;
  for (int k = 0; k < report.runs_size() && names.size() < kNamed; ++k) {
    if (report.runs(k).verdict() == proto::CheckedRun::NOT_APPLICABLE) {
      names.push_back(report.plan().combinations(k));
    }
  }
  return fmt::format("{} {} not apply ({}{})", counted(number, "combination"), number == 1 ? "does" : "do",
                     fmt::join(names, "; "), number > kNamed ? "; ..." : "");
}

std::string verdict_text(const proto::CheckReport& report, const Counts& counts) {
  std::vector<std::string> parts;
  if (counts.compared() > 0) {
    parts.push_back(fmt::format("{} of {} bit-identical to the reference, over {}", counts.equal,
                                counted(counts.compared(), "run"), counted(report.plan().steps(), "step")));
  } else {
    parts.push_back("nothing was compared");
  }
  if (counts.different > 0) {
    parts.push_back(fmt::format("{} DIFFERENT, which is a bug in poprun-emu", counts.different));
  }
  if (counts.same > 0) {
    parts.push_back(
        fmt::format("{} more {} the same Program as one of these", counts.same, counts.same == 1 ? "has" : "have"));
  }
  if (counts.proven > 0) {
    parts.push_back(fmt::format("{} proven equal, but too large to execute", counts.proven));
  }
  if (counts.not_applicable > 0) {
    parts.push_back(what_does_not_apply(report, counts.not_applicable));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// Returns advice on what to change so that runs can be compared. Requires: the check is complete but compared no runs.
std::string remedy(const Counts& counts) {
  return counts.proven > 0 ? "the check does not pass: use a smaller data.micro-batch-size or model, or more IPUs "
                             "(--check-ipus), so that at least two runs fit in memory"
                           : "the check does not pass: fix what the rows report, or choose other --check-ipus";
}

constexpr ShownIpus kListedIpus = {.elsewhere = "which profile.json lists"};

void add_results(JobRows& rows, const proto::Profile& profile) {
  const proto::Outcome& outcome = profile.outcome();
  const bool has_accuracy = outcome.test_accuracy() >= 0;
  const std::string items = fmt::format(" of {} items", grouped(outcome.test_items()));
  if (outcome.test_items() > 0 && has_accuracy) {
    rows.emplace_back("test accuracy", fmt::format("{:.2f} %{}", 100 * outcome.test_accuracy(), items));
  }
  if (outcome.test_items() > 0) {
    rows.emplace_back("test loss", fmt::format("{:.4f}{}", outcome.test_loss(), has_accuracy ? "" : items));
  }
  if (profile.config().inference()) {
    return;
  }
  rows.emplace_back("final loss", fmt::format("{:.4f} (last training step)", outcome.final_loss()));
  rows.emplace_back("steps",
                    fmt::format("{}{}{}{}", grouped(outcome.steps()),
                                outcome.epochs() > 0 ? " in " + counted(outcome.epochs(), "epoch") : "",
                                outcome.resumed_after_step() > 0
                                    ? fmt::format(", resumed after step {}", grouped(outcome.resumed_after_step()))
                                    : "",
                                outcome.drained() ? ", stopped early on request" : ""));
  add_batch_sizes(rows, profile.batch_sizes());
  if (outcome.loss_scale() > 0) {
    rows.emplace_back("loss scale",
                      fmt::format("{:g}, {} skipped", outcome.loss_scale(), counted(outcome.skipped_steps(), "step")));
  }
}

/// Formats the seconds of a single replica or, if there are several, statistics over all of them.
std::string spread_text(const proto::Spread& spread, bool one) {
  return one ? fmt::format("{:.2f} s", spread.mean())
             : fmt::format("mean {:.2f} s, min {:.2f} s, max {:.2f} s (replica {}, host {})", spread.mean(),
                           spread.min(), spread.max(), spread.max_replica(), spread.max_host());
}

void add_goodput(JobRows& rows, const proto::Goodput& goodput) {
  rows.emplace_back("goodput",
                    fmt::format("{:.1f} % of {:.2f} s wall: steps {:.2f} s, evaluation {:.2f} s", 100 * goodput.ratio(),
                                goodput.total_seconds(), goodput.step_seconds(), goodput.evaluation_seconds()));
  std::string lost = fmt::format("start {:.2f} s, data {:.2f} s, saving {:.2f} s", goodput.start_seconds(),
                                 goodput.data_seconds(), goodput.saving_seconds());
  if (goodput.attempts() > 1) {
    lost += fmt::format(", redone {:.2f} s ({}), down {:.2f} s ({})", goodput.redone_seconds(),
                        counted(goodput.redone_steps(), "step"), goodput.down_seconds(),
                        counted(goodput.attempts() - 1, "restart"));
  }
  rows.emplace_back("  lost", lost);
}

void add_times(JobRows& rows, const proto::Profile& profile) {
  const proto::WallTime& wall = profile.wall();
  const bool inference = profile.config().inference();
  rows.emplace_back("start-up", fmt::format("{:.2f} s wall, from command to first step", wall.startup_seconds()));
  rows.emplace_back(inference ? "inference" : "training",
                    fmt::format("{:.2f} s wall, {}", inference ? wall.evaluation_seconds() : wall.training_seconds(),
                                rate_text(wall.samples_per_second())));
  const bool one = profile.config().topology().num_replicas() <= 1;
  rows.emplace_back("  operators", spread_text(wall.compute_seconds(), one));
  rows.emplace_back("  exchange", spread_text(wall.exchange_seconds(), one));
  rows.emplace_back("  host streams", spread_text(wall.host_stream_seconds(), one));
  if (profile.has_goodput()) {
    add_goodput(rows, profile.goodput());
  }
  add_device_time(rows, profile.device(), profile.config(), kListedIpus);
}

void add_memory(JobRows& rows, const proto::Profile& profile) {
  if (profile.out_of_memory()) {
    rows.emplace_back("out of memory", "the job does not fit, but ran anyway (--allow-out-of-memory)");
  }
  add_ipus(rows, profile.planned_memory(), &proto::IpuMemory::fullest_tile_peak, kListedIpus,
           [&](int ipu, bool fullest) {
             const proto::IpuMemory& memory = profile.planned_memory(ipu);
             rows.emplace_back(profile.planned_memory_size() == 1 ? "IPU memory" : fmt::format("IPU {} memory", ipu),
                               memory_text(memory, fullest));
             rows.emplace_back("  tiles", tiles_text(memory));
           });
}

}  // namespace

std::string check_heading() {
  return fmt::format(kColumns, "IPUs", "split", "schedule", "recomputation", "peak on IPU", "device/step", "util.",
                     "wall/step", "result");
}

std::string check_row(const proto::CheckedRun& run) {
  const bool compiled = run.peak_bytes() > 0;
  return fmt::format(kColumns, run.ipus(), run.split(), run.stages() > 1 ? run.schedule() : "-",
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
        "{}\nthe check ended early: {} of {} are missing, from {} to {}; only a complete check writes check.json",
        verdict, missing, counted(static_cast<std::uint64_t>(combinations.size()), "run"),
        combinations[report.runs_size()], combinations[combinations.size() - 1]);
  }
  return counts.compared() > 0 ? verdict : fmt::format("{}; {}", verdict, remedy(counts));
}

std::string summary(const proto::Profile& profile, const std::string& result_folder, const std::string& checkpoints) {
  JobRows rows;
  add_results(rows, profile);
  add_times(rows, profile);
  add_memory(rows, profile);
  if (!checkpoints.empty()) {
    rows.emplace_back("checkpoints", checkpoints);
  }
  rows.emplace_back("results in", result_folder);
  return to_text(rows);
}

}  // namespace poprun::launcher
