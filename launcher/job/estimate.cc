#include "launcher/job/estimate.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/dataset_of.h"
#include "launcher/job/inquiry.h"
#include "launcher/outputs/read_file.h"
#include "proto/inquiry.pb.h"

namespace poprun::launcher {
namespace {

/// The datasets of several jobs, each queried once.
class Datasets {
 public:
  Datasets(const Options& options, Console& console) : options_(options), console_(console) {}

  Result<proto::Dataset> of(const proto::RunConfig& config) {
    const auto known = known_.find(config.data().source());
    if (known != known_.end()) {
      return known->second;
    }
    Options asked = options_;
    asked.config = config;
    POPRUN_ASSIGN(proto::Dataset dataset, dataset_of(asked, console_));
    return known_.emplace(config.data().source(), std::move(dataset)).first->second;
  }

 private:
  const Options& options_;
  Console& console_;
  std::map<std::string, proto::Dataset> known_;  ///< By source.
};

Result<proto::EstimateQuestion> estimate_question(const Options& options, Console& console) {
  proto::EstimateQuestion question;
  question.set_varied_key(options.varied.key);
  question.set_compile(options.estimate_compile);
  question.set_by_layer(options.estimate_by_layer);
  question.set_by_block(options.verbosity > 0);
  question.set_show_all_ipus(options.verbosity > 0);
  std::vector<VariedJob> jobs = options.varied.jobs;
  if (jobs.empty()) {
    jobs.push_back({"", options.config});
  }
  Datasets datasets(options, console);
  for (const VariedJob& job : jobs) {
    proto::EstimatedJob& asked = *question.add_jobs();
    asked.set_value(job.value);
    *asked.mutable_config() = job.config;
    POPRUN_ASSIGN(*asked.mutable_dataset(), datasets.of(job.config));
    const std::string& file = job.config.model().onnx();
    if (!file.empty() && !question.onnx_models().contains(file)) {
      POPRUN_ASSIGN(OnnxFile onnx, read_onnx_file(file));
      (*question.mutable_onnx_models())[file] = std::move(onnx.bytes);
    }
  }
  return question;
}

}  // namespace

int estimate(const Options& options, Console& console) {
  const Result<proto::EstimateQuestion> question = estimate_question(options, console);
  if (!question) {
    console.say(question.error().message);
    return exit_code_of(question.error().code);
  }
  return ask({"poprun-emu-replica", "--estimate"}, question->SerializeAsString(), console);
}

}  // namespace poprun::launcher
