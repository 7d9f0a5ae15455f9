#pragma once

#include <string>

#include "launcher/options/options.h"
#include "launcher/screen/console.h"
#include "proto/answers.pb.h"
#include "proto/profile.pb.h"
#include "replica/base/error.h"

/// Writes report.html to the output folder (launcher/report/), and formats answers for scripts.
namespace poprun::launcher {

/// Runs `poprun-emu report`, which writes report.html from the files of jobs. Returns the exit code.
int report(const Options& options, Console& console);

/// With --report, writes report.html about the results in --output-dir, after a job or check that ended with `code`.
/// Returns `code` or, if that is 0 and the report cannot be written, the code of the error.
int with_report(const Options& options, Console& console, int code);

/// Writes report.html about a profile, and about the run that provided its figures, if there was one. Errors: those of
/// write_report.
Status write_profile_report(const Options& options, const proto::Profile& profile);

/// With --report, writes report.html with the output of a subcommand that writes no other file, if `text` is not empty.
/// `name` is the job's name on the page, and `scaling` a ScaleAnswer, if the output is about one. Says where the report
/// is, or why there is none.
void report_text(const Options& options, Console& console, const std::string& name, const std::string& text,
                 const proto::ScaleAnswer* scaling = nullptr);

/// Formats an answer for scripts, as --format asks (launcher/outputs/answer_text.h). Requires: `form` is not text.
std::string answer_text(const google::protobuf::Message& answer, AnswerForm form);

}  // namespace poprun::launcher
