#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/profile.pb.h"
#include "replica/base/error.h"

/// report.html: one file that shows jobs in a browser, without a network. The page is built from page/ (HTML, CSS and
/// JavaScript) and installed beside the program; this code fills in the data. A build without esbuild or uPlot has no
/// page, so it cannot write a report.
namespace poprun::launcher {

/// The data of the page about one job. Empty members are left out.
struct ReportedJob {
  std::string name;                       ///< For people: the folder, or the subcommand and the train.cfg.
  std::optional<proto::Profile> profile;  ///< With or without the report of the compiled job.
  std::string metrics;                    ///< metrics.csv.
  std::string replicas;                   ///< replicas.csv.
  std::string failure;                    ///< failure.txt.
  std::string check;                      ///< check.json.
  std::string text;                       ///< The output of a subcommand.
  std::string scaling;                    ///< A ScaleAnswer, as JSON.
};

/// Reads what the folder of a job contains: profile.pb or profile.json, metrics.csv, replicas.csv, failure.txt and
/// check.json. Errors: kData if it contains none of them, or if one of them cannot be read.
Result<ReportedJob> read_reported_job(const std::string& folder);

/// Returns the data of the page as JSON: {"schema": 1, "version": ..., "jobs": [...]}, where a job has the members of
/// ReportedJob. `profile` is as in profile.json, but enums are numbers; tables are objects of columns of strings.
/// Errors: kBug.
Result<std::string> page_data(const std::vector<ReportedJob>& jobs);

/// Writes `path`, completely or not at all. Cost: for BERT-Large on 16 IPUs, a few seconds and less than 3 MB. Errors:
/// kUsage if this build has no page; those of page_data and write_whole_file.
Status write_report(const std::string& path, const std::vector<ReportedJob>& jobs);

/// Writes trace.pftrace, memory.pickle and memory-tiles.pickle of a profile with a report to `folder`. Returns the
/// number of slices left out of the trace. Errors: those of write_whole_file.
Result<std::uint64_t> write_traces(const std::string& folder, const proto::Profile& profile);

}  // namespace poprun::launcher
