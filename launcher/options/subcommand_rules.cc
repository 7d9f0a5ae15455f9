#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/option_table.h"
#include "launcher/options/rules.h"

namespace poprun::launcher {
namespace subcommand_rules {
namespace {

/// Adds a note that lists the settings that differ from their defaults but are overridden by a check.
void note_what_check_overrules(Options& options) {
  std::vector<std::string> overruled;
  for (const auto& [name, instead] : {std::pair{"training.evaluate-every-epochs", "evaluates once"},
                                      {"pipeline.schedule", "runs every schedule"},
                                      {"pipeline.recomputation", "runs every recomputation mode"},
                                      {"memory.phase-ipus", "runs phases on 1 and 2 IPUs"},
                                      {"report.dump-tensors", "dumps nothing"},
                                      {"report.trace-steps", "traces nothing"},
                                      {"allow-out-of-memory", "only compiles jobs that do not fit"},
                                      {"overwrite", "leaves the results of jobs in place"}}) {
    const Setting& setting = setting_of(options, name);
    if (setting.text != find_row(name)->fallback) {
      const bool is_key = setting.name.find('.') != std::string::npos;
      overruled.push_back(
          fmt::format("{} ({})", is_key ? fmt::format("{} = {}", name, setting.text) : "--" + setting.name, instead));
    }
  }
  if (!overruled.empty()) {
    options.notes.push_back(fmt::format("check overrides {}", fmt::join(overruled, ", ")));
  }
}

/// Rejects options that contradict an estimate, which starts no job and writes no file.
Status check_estimate(const Options& options) {
  const auto* const request = std::get_if<EstimateRequest>(&options.request);
  if (request == nullptr) {
    return {};
  }
  if (options.dry_run) {
    return fail(ErrorCode::kUsage,
                "--dry-run compiles the job that would run, but estimate runs no job; give only one of them, or use "
                "estimate --compile");
  }
  if (request->micro && (request->by_layer || request->compile || !request->varied.key.empty())) {
    return fail(
        ErrorCode::kUsage,
        "--by-layer, --compile and --vary need a job, but --matmul, --convolution and --all-reduce estimate a single "
        "operation; leave one or the other out");
  }
  if (request->by_layer && !request->varied.key.empty()) {
    return fail(ErrorCode::kUsage,
                "--by-layer lists the layers of one job, but --vary estimates several; give only one of them");
  }
  return {};
}

/// Makes `folder` the default for --output-dir.
void take_folder_of_its_own(Options& options, const std::string& folder) {
  Setting& setting = setting_of(options, "output-dir");
  if (setting.origin == Origin::kDefault) {
    options.output.dir = setting.text = folder;
  }
}

/// In a profile, rejects --dry-run, and rejects --tile with --compare. Sets the default folder of a profile.
Status resolve_profile(Options& options) {
  const auto* const request = std::get_if<ProfileRequest>(&options.request);
  if (request == nullptr) {
    return {};
  }
  if (options.dry_run) {
    return fail(ErrorCode::kUsage,
                "--dry-run compiles the job that would run; to profile it without running it, use profile --no-run");
  }
  if (request->compare && (!request->tiles.empty() || !request->chakra.empty())) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("{} applies to the profile of a job, but --compare reads existing profiles; give only one of "
                    "them",
                    request->tiles.empty() ? "--chakra" : "--tile"));
  }
  take_folder_of_its_own(options, "poprun-emu-profile");
  return {};
}

/// Rejects --report with --dry-run, which writes no file. Sets the default folder of `report`: that of the first job.
Status resolve_report(Options& options) {
  if (options.output.report && options.dry_run) {
    return fail(ErrorCode::kUsage,
                "--report cannot be combined with --dry-run, which writes no file; profile --no-run writes report.html "
                "without running the job");
  }
  if (const auto* const request = std::get_if<ReportRequest>(&options.request); request != nullptr) {
    take_folder_of_its_own(options, request->folders.front());
  }
  return {};
}

/// Adapts the options to a check, which runs a few steps of the job and does not touch the results of earlier jobs.
Status resolve_check(Options& options) {
  const auto* const request = std::get_if<CheckRequest>(&options.request);
  if (request == nullptr) {
    return {};
  }
  if (options.config.inference()) {
    return fail(ErrorCode::kUsage, "check compares training steps, but a job with model.mode = inference runs none");
  }
  if (options.dry_run) {
    return fail(ErrorCode::kUsage, "--dry-run starts no replica, but check runs the job; give only one of them");
  }
  proto::CheckConfig& check = *options.config.mutable_check();
  check.set_steps(request->steps);
  for (const std::uint32_t ipus : request->ipus) {
    if (std::ranges::count(check.ipus(), ipus) == 0) {
      check.add_ipus(ipus);
    }
  }
  options.config.clear_report();
  check.set_certifies(!request->certificate.empty());
  if (const auto folder = std::filesystem::path(request->certificate).parent_path();
      !folder.empty() && !std::filesystem::is_directory(folder)) {
    return fail(ErrorCode::kUsage, fmt::format("--certificate {}: the folder {} does not exist; create it",
                                               request->certificate, folder.string()));
  }
  note_what_check_overrules(options);
  take_folder_of_its_own(options, "poprun-emu-check");
  return {};
}

}  // namespace
}  // namespace subcommand_rules

Status check_subcommand_rules(Options& options) {
  POPRUN_TRY(subcommand_rules::resolve_check(options));
  POPRUN_TRY(subcommand_rules::check_estimate(options));
  POPRUN_TRY(subcommand_rules::resolve_report(options));
  return subcommand_rules::resolve_profile(options);
}

}  // namespace poprun::launcher
