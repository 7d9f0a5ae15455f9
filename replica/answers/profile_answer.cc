#include "replica/answers/profile_answer.h"

#include <chrono>
#include <fstream>
#include <vector>

#include <fmt/format.h>

#include "replica/answers/compile_question.h"
#include "replica/base/text.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compilation/job_program.h"
#include "replica/compilation/profile.h"
#include "replica/compiler/addresses/tile_plan.h"
#include "replica/report/out_of_memory.h"
#include "replica/report/report.h"

namespace poprun {
namespace {

/// Wall time by activity.
class Times {
 public:
  void end(std::string_view what) {
    const auto now = std::chrono::steady_clock::now();
    seconds_.emplace_back(what, std::chrono::duration<double>(now - begin_).count());
    begin_ = now;
  }

  [[nodiscard]] std::string text() const {
    std::string text = "# wall time of the profile\n";
    for (const auto& [what, seconds] : seconds_) {
      text += fmt::format("{:<28} {}\n", what, duration_text(seconds));
    }
    return text;
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, double>> seconds_;
};

Status check_tiles(const proto::ProfileQuestion& question, const CompileOptions& options) {
  for (const proto::ProfiledTile& asked : question.tiles()) {
    const std::int64_t tiles = options.device.tiles + options.device.io_tiles;
    if (asked.tile() >= tiles) {
      return fail(ErrorCode::kUsage,
                  fmt::format("--tile {}: {} has tiles 0 to {}", asked.tile(), options.device.name, tiles - 1));
    }
    if (asked.ipu() >= options.ipus_per_replica) {
      return fail(ErrorCode::kUsage, fmt::format("--tile {}:{}: a replica has IPUs 0 to {} (--ipus-per-replica)",
                                                 asked.ipu(), asked.tile(), options.ipus_per_replica - 1));
    }
  }
  return {};
}

/// Returns the compiler's options, with every tile laid out.
Result<CompileOptions> options_of(const proto::CompileQuestion& job,
                                  const std::shared_ptr<onnx_import::JobModel>& onnx) {
  POPRUN_ASSIGN(CompileOptions options, compile_options(job.config(), job.dataset(), onnx));
  options.tile_layout = true;
  return options;
}

ReportOptions report_options(const proto::ProfileQuestion& question) {
  ReportOptions options;
  options.step_function = name_of(question.job().config().inference() ? JobFunction::kEvaluate : JobFunction::kTrain);
  for (const Category category : all_categories()) {
    if (category != Category::kVariable) {  // The report itself describes tensors.
      options.categories.emplace_back(to_text(category));
    }
  }
  for (const proto::ProfiledTile& asked : question.tiles()) {
    options.tiles.push_back({asked.has_ipu() ? std::optional(asked.ipu()) : std::nullopt, asked.tile()});
  }
  return options;
}

/// Returns why a Program does not fit, or nothing.
std::string shortage_of(const Program& program) {
  const Status fits = check_fits(program, [] { return MemoryAdvice{"--dry-run compiles remedies", ""}; });
  return fits ? "" : fits.error().message;
}

}  // namespace

Status answer_profile(const proto::ProfileQuestion& question, std::string& text) {
  const proto::RunConfig& config = question.job().config();
  Times times;
  POPRUN_ASSIGN(const auto onnx, onnx_model_of(config.model(), question.job().onnx_model()));
  POPRUN_ASSIGN(CompileOptions options, options_of(question.job(), onnx));
  POPRUN_TRY(check_tiles(question, options));
  POPRUN_ASSIGN(const JobLength length, job_length(config, question.job().dataset()));
  times.end("model");
  const auto end_pass = [&times](std::string_view pass, const Graph&) {
    times.end(fmt::format("pass {}", pass));
    return Status{};
  };
  const JobInputs inputs{config, question.job().dataset(), onnx};
  POPRUN_ASSIGN(Program program, compile_job(inputs, options, {.after_pass = end_pass}));
  POPRUN_ASSIGN(const WeightMatch match, match_weights_of(question.job(), program));
  POPRUN_TRY(take_match(match, inputs, options, program));
  times.end("plans, tiles and lowering");
  proto::Report report = poprun::report(program, options.device, report_options(question));
  report.set_shortage(shortage_of(program));
  for (proto::IpuMemory& memory : *program.mutable_memory()) {
    memory.clear_layout();  // The report has the requested parts of it.
  }
  proto::Profile profile = compiled_profile(program, config, length);
  profile.mutable_report()->Swap(&report);
  times.end("report");
  std::ofstream file(question.answer_file(), std::ios::binary | std::ios::trunc);
  if (!profile.SerializeToOstream(&file) || !file.flush()) {
    return fail(ErrorCode::kInfrastructure, fmt::format("{}: the profile cannot be written", question.answer_file()));
  }
  times.end("writing");
  if (question.show_times()) {
    text += times.text();
  }
  return {};
}

}  // namespace poprun
