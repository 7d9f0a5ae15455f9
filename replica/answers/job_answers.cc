#include "replica/answers/job_answers.h"

#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "replica/compilation/job_inputs.h"
#include "replica/compilation/profile.h"
#include "replica/compiler/addresses/tile_plan.h"
#include "replica/compiler/automatic.h"
#include "replica/estimate/estimate.h"
#include "replica/estimate/estimate_answer.h"
#include "replica/report/chakra.h"
#include "replica/report/out_of_memory.h"
#include "replica/report/report.h"
#include "replica/search/memory_advice.h"

namespace poprun {
namespace {

Result<proto::JobEstimate> estimate_job(const proto::EstimateQuestion& question, const proto::EstimatedJob& job) {
  const proto::ModelConfig& model = job.config().model();
  const auto file = question.onnx_models().find(model.onnx());
  POPRUN_ASSIGN(const auto onnx, onnx_model_of(model, file == question.onnx_models().end() ? "" : file->second));
  POPRUN_ASSIGN(CompileOptions options, compile_options(job.config(), job.dataset(), onnx));
  options.tile_layout = true;
  POPRUN_ASSIGN(const Estimate estimated, estimate(options));
  proto::JobEstimate answer = to_proto(estimated);
  if (question.compile()) {
    POPRUN_ASSIGN(Program program, plan_program(options));
    add_notes(onnx.get(), job.config(), job.dataset(), program);
    *answer.mutable_compiled() = compiled_estimate(program);
  }
  return answer;
}

/// Measures wall time per activity.
class Times {
 public:
  explicit Times(proto::ProfileAnswer& answer) : answer_(answer) {}

  void end(const std::string& what) {
    const auto now = std::chrono::steady_clock::now();
    proto::Activity& activity = *answer_.add_times();
    activity.set_name(what);
    activity.set_seconds(std::chrono::duration<double>(now - begin_).count());
    begin_ = now;
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  proto::ProfileAnswer& answer_;
};

Status check_tiles(const proto::ProfileQuestion& question, const CompileOptions& options) {
  for (const proto::ProfiledTile& asked : question.tiles()) {
    const std::int64_t tiles = options.device.tiles + options.device.io_tiles;
    if (asked.tile() >= tiles) {
      return fail(ErrorCode::kUsage,
                  fmt::format("--tile {}: {} has only tiles 0 to {}", asked.tile(), options.device.name, tiles - 1));
    }
    if (asked.ipu() >= options.ipus_per_replica) {
      return fail(ErrorCode::kUsage, fmt::format("--tile {}:{}: a replica has only IPUs 0 to {} (--ipus-per-replica)",
                                                 asked.ipu(), asked.tile(), options.ipus_per_replica - 1));
    }
  }
  return {};
}

ReportOptions report_options(const proto::ProfileQuestion& question) {
  ReportOptions options;
  options.step_function = name_of(question.job().config().inference() ? JobFunction::kEvaluate : JobFunction::kTrain);
  for (const Category category : all_categories()) {
    if (category != Category::kVariable) {  // The report always describes tensors.
      options.categories.emplace_back(to_text(category));
    }
  }
  for (const proto::ProfiledTile& asked : question.tiles()) {
    options.tiles.push_back({asked.has_ipu() ? std::optional(asked.ipu()) : std::nullopt, asked.tile()});
  }
  return options;
}

/// If the Program does not fit, adds the reason and the remedies to the report.
void add_shortage(const Program& program, const JobInputs& inputs, proto::Report& report) {
  const Status fits = check_fits(program, [&] {
    MemoryAdvice advice = memory_advice(program, inputs.config, inputs.dataset, inputs.onnx, {});
    report.mutable_remedies()->Assign(advice.remedies.begin(), advice.remedies.end());
    return advice;
  });
  if (!fits) {
    report.set_shortage(fits.error().message);
  }
}

}  // namespace

Result<WeightMatch> match_weights_of(const proto::CompileQuestion& job, const Program& program) {
  if (job.config().model().initial_weights().empty()) {
    return WeightMatch{};
  }
  FileTensors file;
  for (const proto::TensorDescription& tensor : job.initial_weights()) {
    FileTensor& known = file[tensor.name()];
    known.type = tensor.type();
    known.shape.assign(tensor.shape().begin(), tensor.shape().end());
    known.digest = tensor.digest();
  }
  return match_initial_weights(program, file, weights_policy(job.config()));
}

Status answer_estimate(const proto::EstimateQuestion& question, proto::EstimateAnswer& answer) {
  if (question.jobs().empty()) {
    return fail(ErrorCode::kUsage, "an EstimateQuestion needs at least one job");
  }
  for (const proto::EstimatedJob& job : question.jobs()) {
    Result<proto::JobEstimate> estimated = estimate_job(question, job);
    if (!estimated) {
      answer.Clear();
      Error error = std::move(estimated.error());
      if (!question.varied_key().empty()) {
        error.message = fmt::format("--vary {} = {}: {}", question.varied_key(), job.value(), error.message);
      }
      return tl::unexpected<Error>{std::move(error)};
    }
    *answer.add_jobs() = *std::move(estimated);
  }
  return {};
}

Status answer_profile(const proto::ProfileQuestion& question, proto::ProfileAnswer& answer) {
  const proto::RunConfig& config = question.job().config();
  Times times(answer);
  POPRUN_ASSIGN(const auto onnx, onnx_model_of(config.model(), question.job().onnx_model()));
  POPRUN_ASSIGN(CompileOptions options, compile_options(config, question.job().dataset(), onnx));
  options.tile_layout = true;
  POPRUN_TRY(check_tiles(question, options));
  POPRUN_ASSIGN(const JobLength length, job_length(config, question.job().dataset()));
  times.end("model");
  const auto end_pass = [&times](std::string_view pass, const Job&) {
    times.end(fmt::format("pass {}", pass));
    return Status{};
  };
  const JobInputs inputs{config, question.job().dataset(), onnx};
  POPRUN_ASSIGN(Program program, compile_job(inputs, options, {.after_pass = end_pass}));
  POPRUN_ASSIGN(const WeightMatch match, match_weights_of(question.job(), program));
  POPRUN_TRY(take_match(match, inputs, options, program));
  times.end("plans, tiles and lowering");
  if (question.chakra()) {
    for (proto::ChakraTrace& trace :
         chakra_traces(program, report_options(question).step_function, config.topology().num_replicas())) {
      *answer.add_chakra() = std::move(trace);
    }
    times.end("execution traces");
  }
  proto::Report report = poprun::report(program, options.device, report_options(question));
  add_shortage(program, inputs, report);
  for (proto::IpuMemory& memory : *program.mutable_memory()) {
    memory.clear_layout();  // The report contains the parts that were requested.
  }
  proto::Profile profile = compiled_profile(program, config, device_time(program, config, length));
  profile.mutable_report()->Swap(&report);
  times.end("report");
  profile.SerializeToString(answer.mutable_profile());
  times.end("writing");
  return {};
}

}  // namespace poprun
