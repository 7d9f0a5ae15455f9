#include "replica/answers/estimate_answer.h"

#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "replica/compilation/job_inputs.h"
#include "replica/compiler/automatic.h"
#include "replica/estimate/estimate.h"
#include "replica/estimate/tables.h"
#include "replica/models/onnx/job_model.h"

namespace poprun {
namespace {

struct Answered {
  Estimate estimate;
  std::optional<Program> program;  ///< If requested.
};

Result<Answered> answer_job(const proto::EstimateQuestion& question, const proto::EstimatedJob& job) {
  const proto::ModelConfig& model = job.config().model();
  std::shared_ptr<onnx_import::JobModel> onnx;
  if (const auto file = question.onnx_models().find(model.onnx()); !model.onnx().empty()) {
    POPRUN_ASSIGN(onnx,
                  onnx_import::JobModel::parse(model.onnx(), file == question.onnx_models().end() ? "" : file->second,
                                               model.loss(), model.trained_constants()));
  }
  POPRUN_ASSIGN(CompileOptions options, compile_options(job.config(), job.dataset(), onnx));
  options.tile_layout = true;
  Answered answered;
  POPRUN_ASSIGN(answered.estimate, estimate(options));
  if (question.compile()) {
    POPRUN_ASSIGN(answered.program, plan_program(options));
    add_notes(onnx.get(), job.config(), job.dataset(), *answered.program);
  }
  return answered;
}

Status answer_one(const proto::EstimateQuestion& question, std::string& text) {
  POPRUN_ASSIGN(const Answered answered, answer_job(question, question.jobs(0)));
  text += estimate_text(answered.estimate);
  if (question.by_layer()) {
    text += layers_text(answered.estimate, question.by_block());
  }
  if (answered.program) {
    text += compiled_text(answered.estimate, *answered.program, question.show_all_ipus());
  }
  return {};
}

Status answer_varied(const proto::EstimateQuestion& question, std::string& text) {
  std::vector<VariedRow> rows;
  for (const proto::EstimatedJob& job : question.jobs()) {
    const Result<Answered> answered = answer_job(question, job);
    if (!answered) {
      Error error = answered.error();
      error.message = fmt::format("--vary {} = {}: {}", question.varied_key(), job.value(), error.message);
      return tl::unexpected<Error>{std::move(error)};
    }
    rows.push_back(varied_row(job.value(), answered->estimate,
                              answered->program ? std::optional{compiled_need(*answered->program)} : std::nullopt));
  }
  text += varied_text(question.varied_key(), rows);
  return {};
}

}  // namespace

Status answer_estimate(const proto::EstimateQuestion& question, std::string& text) {
  if (question.jobs().empty()) {
    return fail(ErrorCode::kUsage, "an EstimateQuestion needs a job");
  }
  return question.varied_key().empty() ? answer_one(question, text) : answer_varied(question, text);
}

}  // namespace poprun
