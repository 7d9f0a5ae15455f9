#include "launcher/job/subcommands.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "launcher/job/inquiry.h"
#include "launcher/job/questions.h"
#include "launcher/job/reports.h"
#include "launcher/mpi/mpirun.h"
#include "launcher/options/parse.h"
#include "launcher/outputs/onnx_file.h"
#include "launcher/outputs/profile_file.h"
#include "launcher/outputs/replica_samples.h"
#include "launcher/outputs/result_files.h"
#include "launcher/report/chakra.h"
#include "launcher/report/report_file.h"
#include "launcher/screen/dry_run.h"
#include "launcher/screen/estimate_tables.h"
#include "launcher/screen/job_answer.h"
#include "launcher/screen/job_rows.h"
#include "launcher/screen/profile_screen.h"
#include "proto/answers.pb.h"
#include "proto/inquiry.pb.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

/// Shows where the job's replicas would run, and its options: those that differ from the defaults or, with -v, all.
/// With -vv, also shows the processes that would be started.
std::string plan_text(const Options& options, const Placement& placement) {
  std::string text = topology_table(placement) + "\n";
  if (options.verbosity == 0) {
    return text + fmt::format("# {}, without defaults (-v shows all options)\n{}\n", options.config_file,
                              resolved_config(options, /*defaults=*/false));
  }
  text += fmt::format("# {}, resolved\n{}\n", options.config_file, resolved_config(options));
  if (options.verbosity == 1) {
    return text;
  }
  const MpirunCommand command = mpirun_here(options, placement, path_beside_us("poprun-emu-replica"));
  text += fmt::format("# mpirun\n{}\n\n", shell_line(command));
  for (std::size_t i = 0; i < command.instances.size(); ++i) {
    text += fmt::format("# instance {} on {}\n", i, placement.host_of(static_cast<std::uint32_t>(i)));
    for (const auto& [name, value] : command.instances[i]) {
      text += fmt::format("{}={}\n", name, value);
    }
    text +=
        "POPRUN_EMU_COORDINATOR=<address of this launcher and number of this attempt, chosen at start>\n"
        "POPRUN_EMU_TOKEN=<secret>\n\n";
  }
  return text;
}

Result<proto::CompileQuestion> dry_run_question(const Options& options, Console& console) {
  POPRUN_ASSIGN(proto::CompileQuestion job, compile_question(options, console));
  job.set_show_graphs(options.verbosity > 1);
  return job;
}

Result<proto::EstimateQuestion> estimate_question(const Options& options, Console& console) {
  const auto& request = std::get<EstimateRequest>(options.request);
  proto::EstimateQuestion question;
  question.set_varied_key(request.varied.key);
  question.set_compile(request.compile);
  std::vector<VariedJob> jobs = request.varied.jobs;
  if (jobs.empty()) {
    jobs.push_back({"", options.config});
  }
  std::map<std::string, proto::Dataset> datasets;  // Keyed by data source.
  for (const VariedJob& job : jobs) {
    proto::EstimatedJob& asked = *question.add_jobs();
    asked.set_value(job.value);
    *asked.mutable_config() = job.config;
    const std::string& source = job.config.data().source();
    if (!datasets.contains(source)) {
      Options queried = options;
      queried.config = job.config;
      POPRUN_ASSIGN(datasets[source], dataset_of(queried, console));
    }
    *asked.mutable_dataset() = datasets[source];
    const std::string& file = job.config.model().onnx();
    if (!file.empty() && !question.onnx_models().contains(file)) {
      POPRUN_ASSIGN(OnnxFile onnx, read_onnx_file(file));
      (*question.mutable_onnx_models())[file] = std::move(onnx.bytes);
    }
  }
  return question;
}

Result<proto::ProfileQuestion> profile_question(const Options& options, Console& console) {
  proto::ProfileQuestion question;
  POPRUN_ASSIGN(*question.mutable_job(), compile_question(options, console));
  question.set_chakra(!std::get<ProfileRequest>(options.request).chakra.empty());
  for (const NamedTile& named : std::get<ProfileRequest>(options.request).tiles) {
    proto::ProfiledTile& tile = *question.add_tiles();
    tile.set_tile(named.tile);
    if (named.ipu) {
      tile.set_ipu(*named.ipu);
    }
  }
  return question;
}

/// Returns the options with which the job runs for its profile: for a few steps, without dumps.
Options few_steps_of(const Options& options) {
  const std::uint32_t steps = std::get<ProfileRequest>(options.request).steps;
  Options few = options;
  few.config.mutable_profile()->set_steps(steps);
  few.config.mutable_training()->set_steps(steps);
  few.config.clear_report();
  return few;
}

/// Copies from `run` to `profile` the figures that only a run can provide.
void add_run(const proto::Profile& run, proto::Profile& profile) {
  *profile.mutable_library_versions() = run.library_versions();
  *profile.mutable_measured_peak_bytes() = run.measured_peak_bytes();
  *profile.mutable_device() = run.device();
  *profile.mutable_wall() = run.wall();
  *profile.mutable_outcome() = run.outcome();
}

/// Writes the profile. If the job did not run, and so did not remove the results of an earlier job, removes them first.
Result<std::uint64_t> write(const proto::Profile& profile, const Options& options) {
  POPRUN_ASSIGN(const FolderLock folder, take_output_folder(options.output.dir, /*overwrite=*/true));
  if (!profile.has_outcome()) {
    remove_replica_samples(options.output.dir);
    POPRUN_TRY(clear_results(options.output.dir, options.config.model().initial_weights()));
  }
  POPRUN_TRY(write_profile(options.output.dir, profile));
  return write_traces(options.output.dir, profile);
}

/// Asks the replica's program or, if `question` is an error, prints the error. Returns the exit code.
template <typename Answer, typename Question, typename Show>
int ask_about(const char* option, const Result<Question>& question, Console& console, Show show) {
  return question ? ask_replica<Answer>(option, question->SerializeAsString(), console, show)
                  : console.say(question.error());
}

std::string estimate_text(const Options& options, const proto::EstimateAnswer& answer, bool whole_names) {
  if (answer.jobs().empty()) {
    return "";
  }
  const auto& request = std::get<EstimateRequest>(options.request);
  if (request.varied.jobs.empty()) {
    return estimate_tables(
        answer.jobs(0),
        {.by_layer = request.by_layer, .everything = options.verbosity > 0, .whole_names = whole_names});
  }
  std::vector<std::string> values;
  for (const VariedJob& job : request.varied.jobs) {
    values.push_back(job.value);
  }
  return varied_table(request.varied.key, values, answer);
}

std::string micro_text(const Options& options, const proto::MicroAnswer& answer) {
  if (answer.seconds() == 0) {
    return "";
  }
  const proto::Cost& cost = answer.cost();
  std::string text = answer.table();
  const auto part = [&text](std::string_view name, std::uint64_t cycles) {
    if (cycles > 0) {
      text += fmt::format("  {:<22}{:>14} cycles\n", name, grouped(cycles));
    }
  };
  if (!text.empty()) {
    text += "including calls, synchronisation and copies of the input\n";
  }
  part("compute", cost.compute_cycles());
  part("exchange", cost.exchange_cycles());
  part("links", cost.link_cycles());
  part("synchronisation", cost.sync_cycles());
  const std::string rate = answer.bytes() > 0 ? fmt::format("{:.1f} GB/s", gigabytes_per_second(answer))
                                              : fmt::format("{:.1f} TFLOP/s", teraflops_per_second(answer));
  return text + fmt::format("device time    {}, {} ({})", duration_text(answer.seconds()), rate,
                            device_clock_text(options.config.device().ipu(), answer.compared_error()));
}

ProfileFrame frame_of(const Options& options, const Console& console) {
  return {
      .width = console.page_width(), .everything = options.verbosity > 0, .whole_names = console.is_page_unbounded()};
}

std::string activities_text(const proto::ProfileAnswer& answer) {
  std::string text = "# wall time to create the profile\n";
  for (const proto::Activity& activity : answer.times()) {
    text += fmt::format("{:<28} {}\n", activity.name(), duration_text(activity.seconds()));
  }
  return text;
}

/// Returns a line that lists the files of a profile and the programs that open them.
std::string results_text(const std::string& folder, bool has_page) {
  return fmt::format(
      "results in {}: {}trace.pftrace (ui.perfetto.dev), memory.pickle and memory-tiles.pickle "
      "(pytorch.org/memory_viz), profile.pb and profile.json",
      folder, has_page ? "report.html (for a browser), " : "");
}

/// Returns the text of an estimate. With --report, also writes it to report.html.
std::string reported(const Options& options, Console& console, std::string text) {
  report_text(options, console, fmt::format("estimate of {}", options.config_file), text);
  return text;
}

}  // namespace

int list_models(const Options& options, Console& console) {
  return ask_replica<proto::ModelList>("--list-models", "", console, [&options](const proto::ModelList& list) {
    return options.form == AnswerForm::kText ? model_table(list) : answer_text(list, options.form);
  });
}

int dry_run(const Options& options, const Placement& placement, Console& console) {
  const DryRunFrame frame{
      .width = console.page_width(), .schedule = options.verbosity > 0, .everything = options.verbosity > 1};
  const auto show = [&](const proto::CompileAnswer& answer) -> std::string {
    if (options.form != AnswerForm::kText) {
      return answer.has_job() ? answer_text(job_answer(answer.job()), options.form) : "";
    }
    const std::string compiled = dry_run_text(answer, options.config, frame);
    return compiled.empty()
               ? ""
               : verdict_text(answer.job(), options.config.inference()) + plan_text(options, placement) + compiled;
  };
  return ask_about<proto::CompileAnswer>("--compile", dry_run_question(options, console), console, show);
}

int estimate(const Options& options, Console& console) {
  if (std::get<EstimateRequest>(options.request).micro) {
    return ask_micro(options, console, [&](const proto::MicroAnswer& answer) {
      return options.form == AnswerForm::kText ? reported(options, console, micro_text(options, answer))
                                               : answer_text(answer, options.form);
    });
  }
  const Result<proto::EstimateQuestion> question = estimate_question(options, console);
  if (!question) {
    return console.say(question.error());
  }
  // Each job is a question of its own, so that the progress is known.
  proto::EstimateAnswer all;
  const auto began = std::chrono::steady_clock::now();
  const auto total = static_cast<std::size_t>(question->jobs_size());
  for (const proto::EstimatedJob& job : question->jobs()) {
    const auto done = static_cast<std::size_t>(all.jobs_size());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
    Waiting waiting{.seconds = seconds_left(elapsed.count(), done, total)};
    if (total > 1) {
      waiting.doing = fmt::format("{} of {}: {} = {}", done + 1, total, question->varied_key(), job.value());
    }
    proto::EstimateQuestion one = *question;
    one.clear_jobs();
    *one.add_jobs() = job;
    const auto collect = [&all](const proto::EstimateAnswer& answer) {
      all.MergeFrom(answer);
      return std::string{};
    };
    const int code =
        ask_replica<proto::EstimateAnswer>("--estimate", one.SerializeAsString(), console, collect, waiting);
    if (code != 0) {
      return code;
    }
  }
  console.page(options.form == AnswerForm::kText
                   ? reported(options, console, estimate_text(options, all, console.is_page_unbounded()))
                   : answer_text(all, options.form));
  return 0;
}

int profile(const Options& options, Console& console, const RunJob& run) {
  const Result<proto::ProfileQuestion> question = profile_question(options, console);
  if (!question) {
    return console.say(question.error());
  }
  // This lock is only a check. The job itself locks the folder later.
  if (const auto folder = take_output_folder(options.output.dir, options.output.overwrite); !folder) {
    return console.say(folder.error());
  }
  proto::Profile compiled;
  std::vector<proto::ChakraTrace> chakra;
  const auto take = [&](const proto::ProfileAnswer& answer) {
    compiled.ParseFromString(answer.profile());
    chakra.assign(answer.chakra().begin(), answer.chakra().end());
    return options.verbosity > 0 && !answer.profile().empty() ? activities_text(answer) : "";
  };
  const int asked = ask_replica<proto::ProfileAnswer>("--profile", question->SerializeAsString(), console, take);
  if (asked != 0) {
    return asked;
  }
  const std::string& shortage = compiled.report().shortage();
  const bool may_run = shortage.empty() || options.config.memory().allow_out_of_memory();
  if (may_run && std::get<ProfileRequest>(options.request).run) {
    const JobEnd end = run(few_steps_of(options));
    if (end.exit_code != 0 || !end.profile) {
      return end.exit_code;
    }
    add_run(*end.profile, compiled);
  }
  const Result<std::uint64_t> left_out = write(compiled, options);
  if (!left_out) {
    return console.say(left_out.error());
  }
  if (!chakra.empty()) {
    const std::string& folder = std::get<ProfileRequest>(options.request).chakra;
    const Result<std::string> written = write_chakra(folder, chakra, options.config.topology().num_replicas());
    if (!written) {
      return console.say(written.error());
    }
    console.say(*written);
  }
  const Status has_page = write_profile_report(options, compiled);
  if (options.form != AnswerForm::kText) {
    console.out(answer_text(job_answer(compiled), options.form));
  } else {
    console.page(profile_screen(compiled, frame_of(options, console)));
    console.out(results_text(options.output.dir, has_page.has_value()));
  }
  if (!has_page) {
    console.say(fmt::format("note: {}", has_page.error().message));
  }
  if (*left_out > 0) {
    console.say(fmt::format("note: trace.pftrace shows only the first of many equal rounds; it leaves out {} slices",
                            grouped(*left_out)));
  }
  if (may_run) {
    return 0;
  }
  return console.say(Error{ErrorCode::kOutOfMemory, shortage});
}

int compare_profiles(const Options& options, Console& console) {
  const std::vector<std::string>& files = std::get<ProfileRequest>(options.request).compared;
  std::vector<proto::Profile> profiles;
  for (const std::string& file : files) {
    Result<proto::Profile> profile = read_profile(file);
    if (!profile) {
      return console.say(profile.error());
    }
    profiles.push_back(*std::move(profile));
  }
  console.page(profile_comparison({files[0], profiles[0]}, {files[1], profiles[1]}, frame_of(options, console)));
  return 0;
}

}  // namespace poprun::launcher
