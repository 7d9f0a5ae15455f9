#include "launcher/job/reports.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "launcher/outputs/answer_text.h"
#include "launcher/outputs/profile_file.h"
#include "launcher/report/report_file.h"

namespace poprun::launcher {
namespace {

std::string report_path(const Options& options) {
  return (std::filesystem::path(options.output.dir) / "report.html").string();
}

/// Writes report.html to --output-dir, which it creates if necessary.
Status write(const Options& options, const std::vector<ReportedJob>& jobs) {
  std::error_code error;
  std::filesystem::create_directories(options.output.dir, error);  // If this fails, write_report says why.
  return write_report(report_path(options), jobs);
}

/// Says where the report is, or why there is none. Returns the exit code.
int say(const Options& options, Console& console, const Status& written) {
  if (!written) {
    return console.say(written.error());
  }
  console.say(fmt::format("report in {}", report_path(options)));
  return 0;
}

}  // namespace

int report(const Options& options, Console& console) {
  std::vector<ReportedJob> jobs;
  for (const std::string& folder : std::get<ReportRequest>(options.request).folders) {
    Result<ReportedJob> job = read_reported_job(folder);
    if (!job) {
      return console.say(job.error());
    }
    jobs.push_back(*std::move(job));
  }
  if (const Status written = write(options, jobs); !written) {
    return console.say(written.error());
  }
  console.out(report_path(options));
  return 0;
}

int with_report(const Options& options, Console& console, int code) {
  if (!options.output.report) {
    return code;
  }
  const Status written =
      read_reported_job(options.output.dir).and_then([&](const ReportedJob& job) { return write(options, {job}); });
  const int own = say(options, console, written);
  return code == 0 ? own : code;
}

Status write_profile_report(const Options& options, const proto::Profile& profile) {
  POPRUN_ASSIGN(ReportedJob job, read_reported_job(options.output.dir));
  job.name = options.config_file;
  job.profile = profile;
  return write(options, {std::move(job)});
}

void report_text(const Options& options, Console& console, const std::string& name, const std::string& text,
                 const proto::ScaleAnswer* scaling) {
  if (options.output.report && !text.empty()) {
    ReportedJob job;
    job.name = name;
    job.text = text;
    if (scaling != nullptr) {
      job.scaling = message_json(*scaling, JsonKeys::kCamelCase).value_or("");
    }
    say(options, console, write(options, {std::move(job)}));
  }
}

std::string answer_text(const google::protobuf::Message& answer, AnswerForm form) {
  return form == AnswerForm::kCsv ? csv_text(answer) : json_text(answer);
}

}  // namespace poprun::launcher
