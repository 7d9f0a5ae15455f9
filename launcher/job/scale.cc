// The subcommand scale, which subcommands.h declares.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
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

/// A job to compile, and its row of the answer, which has everything but the figures.
struct ScaleStep {
  proto::RunConfig config;
  proto::ScaledJob row;
};

ScaleStep step_of(const char* scaling, const proto::RunConfig& config) {
  const proto::Topology& topology = config.topology();
  ScaleStep step{config, {}};
  step.row.set_scaling(scaling);
  step.row.set_replicas(topology.num_replicas());
  step.row.set_ipus(std::uint64_t{topology.num_replicas()} * topology.ipus_per_replica());
  return step;
}

/// Divides the samples of a step, `all`, evenly among the replicas: a replica gets fewer micro-batches or, if that is
/// not enough, a single smaller one.
ScaleStep strong_step(const proto::RunConfig& config, std::uint64_t all) {
  ScaleStep step = step_of("strong", config);
  const std::uint64_t replicas = step.row.replicas();
  const std::uint64_t micro = config.data().micro_batch_size();
  const std::uint64_t own = all / replicas;
  if (all % replicas != 0) {
    step.row.set_refusal(
        fmt::format("{} samples cannot be divided among {}", grouped(all), counted(replicas, "replica")));
  } else if (own > micro && own % micro != 0) {
    step.row.set_refusal(fmt::format("{} samples per replica are not a multiple of the micro-batch", grouped(own)));
  } else {
    step.config.mutable_data()->set_micro_batch_size(static_cast<std::uint32_t>(std::min(own, micro)));
    step.config.mutable_training()->set_gradient_accumulation(
        static_cast<std::uint32_t>(std::max(own / micro, std::uint64_t{1})));
  }
  return step;
}

/// Returns the jobs of weak scaling, then those of strong scaling, whose steps have as many samples as the first job's.
/// Jobs of inference are only scaled weakly.
std::vector<ScaleStep> scale_steps(const std::vector<VariedJob>& jobs) {
  std::vector<ScaleStep> steps;
  for (const VariedJob& job : jobs) {
    steps.push_back(step_of("weak", job.config));
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
  Result<proto::CompileQuestion> question = compile_question(options, console);
  if (!question) {
    return console.say(question.error());
  }
  int code = 0;
  proto::ScaleAnswer answer;
  const auto began = std::chrono::steady_clock::now();
  const std::vector<ScaleStep> steps = scale_steps(std::get<ScaleRequest>(options.request).varied.jobs);
  for (std::size_t done = 0; done < steps.size() && code == 0; ++done) {
    const auto& [config, row] = steps[done];
    if (!row.refusal().empty()) {
      *answer.add_jobs() = row;
      continue;
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
    const Waiting waiting{.doing = fmt::format("{} of {}: {} replicas, {} scaling", done + 1, steps.size(),
                                               grouped(row.replicas()), row.scaling()),
                          .seconds = seconds_left(elapsed.count(), done, steps.size())};
    *question->mutable_config() = config;
    const auto add = [&](const proto::ScaledJob& figures) {
      if (figures.step_seconds() > 0) {  // An answer with an error is empty.
        proto::ScaledJob& job = *answer.add_jobs();
        job = figures;
        job.MergeFrom(row);
      }
      return std::string{};
    };
    code = ask_replica<proto::ScaledJob>("--scale", question->SerializeAsString(), console, add, waiting);
  }
  if (answer.jobs().empty()) {
    return code;
  }
  add_efficiency(answer);
  const std::string tables = scaling_tables(answer, options.config.device().ipu());
  console.page(options.form == AnswerForm::kText ? tables : answer_text(answer, options.form));
  report_text(options, console, fmt::format("scaling of {}", options.config_file), tables, &answer);
  return code;
}

}  // namespace poprun::launcher
