// The subcommand scale, which subcommands.h declares.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "launcher/job/inquiry.h"
#include "launcher/job/questions.h"
#include "launcher/job/reports.h"
#include "launcher/job/subcommands.h"
#include "launcher/screen/scaling_tables.h"
#include "proto/answers.pb.h"
#include "proto/inquiry.pb.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

/// A job of `scale`.
struct ScaleStep {
  bool is_strong = false;
  proto::RunConfig config;
  std::string refusal = {};  ///< The reason why there is no such job; empty if there is one.
};

/// Divides the samples of a step, `all`, evenly among the replicas: a replica gets fewer micro-batches or, if that is
/// not enough, a single smaller one.
ScaleStep strong_step(proto::RunConfig config, std::uint64_t all) {
  const std::uint64_t replicas = config.topology().num_replicas();
  const std::uint64_t own = all / replicas;
  if (all % replicas != 0) {
    return {true, std::move(config),
            fmt::format("{} samples cannot be divided among {}", grouped(all), counted(replicas, "replica"))};
  }
  const std::uint64_t micro = config.data().micro_batch_size();
  if (own % micro != 0 && own > micro) {
    return {true, std::move(config),
            fmt::format("{} samples of a replica are no multiple of a micro-batch", grouped(own))};
  }
  config.mutable_data()->set_micro_batch_size(static_cast<std::uint32_t>(std::min(own, micro)));
  config.mutable_training()->set_gradient_accumulation(
      static_cast<std::uint32_t>(std::max(own / micro, std::uint64_t{1})));
  return {true, std::move(config)};
}

/// Returns the jobs of weak scaling, then those of strong scaling, whose steps have as many samples as the first job's.
/// Jobs of inference are only scaled weakly.
std::vector<ScaleStep> scale_steps(const std::vector<VariedJob>& jobs) {
  std::vector<ScaleStep> steps;
  for (const VariedJob& job : jobs) {
    steps.push_back({false, job.config});
  }
  const proto::RunConfig& first = jobs.front().config;
  const std::uint64_t samples = std::uint64_t{first.topology().num_replicas()} *
                                first.training().gradient_accumulation() * first.data().micro_batch_size();
  for (const VariedJob& job : jobs) {
    if (!job.config.inference()) {
      steps.push_back(strong_step(job.config, samples));
    }
  }
  return steps;
}

/// Compares each job with the first of its scaling.
void add_efficiency(proto::ScaleAnswer& answer) {
  const auto of_a_replica = [](const proto::ScaledJob& job) {
    return job.samples_per_second() / static_cast<double>(job.replicas());
  };
  const proto::ScaledJob* first = nullptr;
  for (proto::ScaledJob& job : *answer.mutable_jobs()) {
    first = first == nullptr || first->scaling() != job.scaling() ? &job : first;
    if (job.refusal().empty()) {
      job.set_efficiency(of_a_replica(job) / of_a_replica(*first));
    }
  }
}

}  // namespace

int scale(const Options& options, Console& console) {
  const auto& request = std::get<ScaleRequest>(options.request);
  Result<proto::CompileQuestion> question = compile_question(options, console);
  if (!question) {
    return console.say(question.error());
  }
  int code = 0;
  proto::ScaleAnswer answer;
  const auto began = std::chrono::steady_clock::now();
  const std::vector<ScaleStep> all = scale_steps(request.jobs);
  for (const ScaleStep& step : all) {
    proto::ScaledJob& job = *answer.add_jobs();
    const auto describe = [&] {
      job.set_scaling(step.is_strong ? "strong" : "weak");
      job.set_replicas(step.config.topology().num_replicas());
      job.set_ipus(std::uint64_t{step.config.topology().num_replicas()} * step.config.topology().ipus_per_replica());
    };
    describe();
    if (!step.refusal.empty()) {
      job.set_refusal(step.refusal);
      continue;
    }
    if (step.is_strong && &step == &all[request.jobs.size()]) {  // The same job as the first one.
      job = answer.jobs(0);
      describe();
      continue;
    }
    const auto done = static_cast<std::size_t>(answer.jobs_size() - 1);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
    const Waiting waiting{.doing = fmt::format("{} of {}: {} replicas, {} scaling", done + 1, all.size(),
                                               grouped(job.replicas()), job.scaling()),
                          .seconds = seconds_left(elapsed.count(), done, all.size())};
    *question->mutable_config() = step.config;
    const auto take = [&](const proto::ScaledJob& compiled) {
      job = compiled;
      describe();
      return std::string{};
    };
    code = ask_replica<proto::ScaledJob>("--scale", question->SerializeAsString(), console, take, waiting);
    if (code != 0) {
      answer.mutable_jobs()->RemoveLast();
      break;
    }
  }
  if (answer.jobs().empty()) {
    return code;
  }
  add_efficiency(answer);
  const std::string tables = scaling_tables(answer, options.config.device().ipu());
  console.page(options.form == AnswerForm::kText ? tables : answer_text(answer, options.form));
  report_text(options, console, fmt::format("scaling of {}", options.config_file), tables);
  return code;
}

}  // namespace poprun::launcher
