#include "launcher/job/profile.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "launcher/job/compile_question.h"
#include "launcher/job/inquiry.h"
#include "launcher/outputs/profile_file.h"
#include "launcher/outputs/result_files.h"
#include "launcher/screen/profile_comparison.h"
#include "launcher/screen/profile_screen.h"
#include "proto/inquiry.pb.h"

namespace poprun::launcher {
namespace {

/// A file through which another process answers; removed with this object.
class AnswerFile {
 public:
  explicit AnswerFile(const std::string& folder)
      : path_(std::filesystem::absolute(folder) / fmt::format(".poprun-emu-answer-{}", getpid())) {}
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;
  ~AnswerFile() {
    std::error_code unused;
    std::filesystem::remove(path_, unused);
  }

  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

Result<proto::ProfileQuestion> profile_question(const Options& options, Console& console) {
  proto::ProfileQuestion question;
  POPRUN_ASSIGN(*question.mutable_job(), compile_question(options, console));
  for (const NamedTile& named : options.profile.tiles) {
    proto::ProfiledTile& tile = *question.add_tiles();
    tile.set_tile(named.tile);
    if (named.ipu) {
      tile.set_ipu(*named.ipu);
    }
  }
  question.set_show_times(options.verbosity > 0);
  return question;
}

/// Returns the job as it runs for its profile: a few steps, without dumps.
Options few_steps_of(const Options& options) {
  Options few = options;
  few.config.mutable_profile()->set_steps(options.profile.steps);
  few.config.mutable_training()->set_steps(options.profile.steps);
  few.config.mutable_report()->clear_dump_tensors();
  return few;
}

/// Copies the figures that only a run can provide.
void add_run(const proto::Profile& run, proto::Profile& profile) {
  *profile.mutable_library_versions() = run.library_versions();
  *profile.mutable_measured_peak_bytes() = run.measured_peak_bytes();
  *profile.mutable_device() = run.device();
  *profile.mutable_wall() = run.wall();
  *profile.mutable_outcome() = run.outcome();
}

/// Writes the profile in place of an earlier run's results, unless a run of this job has already removed them.
Status write(const proto::Profile& profile, const Options& options) {
  POPRUN_ASSIGN(const OutputFolder folder, OutputFolder::take(options.output_dir, /*overwrite=*/true));
  if (!profile.has_outcome()) {
    POPRUN_TRY(clear_results(options.output_dir, options.config.model().initial_weights()));
  }
  return write_profile(options.output_dir, profile);
}

int end_with(const Error& error, Console& console) {
  console.say(error.message);
  return exit_code_of(error.code);
}

}  // namespace

int profile(const Options& options, Console& console, const RunJob& run) {
  Result<proto::ProfileQuestion> question = profile_question(options, console);
  if (!question) {
    return end_with(question.error(), console);
  }
  // Only a check: the job locks the folder itself.
  if (const auto folder = OutputFolder::take(options.output_dir, options.overwrite); !folder) {
    return end_with(folder.error(), console);
  }
  const AnswerFile answer(options.output_dir);
  question->set_answer_file(answer.path());
  const int asked = ask({"poprun-emu-replica", "--profile"}, question->SerializeAsString(), console);
  if (asked != 0) {
    return asked;
  }
  Result<proto::Profile> profile = read_profile(answer.path());
  if (!profile) {
    return end_with(profile.error(), console);
  }
  const std::string& shortage = profile->report().shortage();
  const bool may_run = shortage.empty() || options.config.memory().allow_out_of_memory();
  if (may_run && options.profile.run) {
    const JobEnd end = run(few_steps_of(options));
    if (end.exit_code != 0 || !end.profile) {
      return end.exit_code;
    }
    add_run(*end.profile, *profile);
  }
  if (const Status written = write(*profile, options); !written) {
    return end_with(written.error(), console);
  }
  console.out(profile_screen(*profile, {.width = console.page_width(), .everything = options.verbosity > 0}));
  console.out(fmt::format("results in {0}/profile.pb and {0}/profile.json", options.output_dir));
  if (may_run) {
    return 0;
  }
  return end_with({ErrorCode::kOutOfMemory, shortage}, console);
}

int compare_profiles(const Options& options, Console& console) {
  std::vector<proto::Profile> profiles;
  for (const std::string& file : options.profile.compared) {
    Result<proto::Profile> profile = read_profile(file);
    if (!profile) {
      return end_with(profile.error(), console);
    }
    profiles.push_back(*std::move(profile));
  }
  console.out(profile_comparison({options.profile.compared[0], profiles[0]}, {options.profile.compared[1], profiles[1]},
                                 {.width = console.page_width(), .everything = options.verbosity > 0}));
  return 0;
}

}  // namespace poprun::launcher
