#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/profile.pb.h"
#include "replica/base/error.h"

/// report.html: one file that shows jobs in a browser, without a network. The page is built from page/ (HTML, CSS and
/// JavaScript) and installed beside the program; this code fills in the data. A build without node and esbuild has no
/// page, and then no report can be written.
namespace poprun::launcher {

/// What the page knows about one job. Members that are empty are left out.
struct ReportedJob {
  std::string name;                       ///< For people: the folder, or the subcommand and the train.cfg.
  std::optional<proto::Profile> profile;  ///< With or without the report of the compiled job.
  std::string metrics;                    ///< metrics.csv.
  std::string replicas;                   ///< replicas.csv.
  std::string failure;                    ///< failure.txt.
  std::string check;                      ///< check.json.
  std::string text;                       ///< What a subcommand printed.
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

}  // namespace poprun::launcher
