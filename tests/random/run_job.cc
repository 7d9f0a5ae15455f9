#include "run_job.h"

#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/support/slice.h>

#include "collectives/local/local_world.h"
#include "hostio/datasets/dataset.h"
#include "hostio/sampling/sampling.h"
#include "hostio/streams/wire.h"
#include "launcher/options/parse.h"
#include "proto/inquiry.pb.h"
#include "replica/answers/inquiry.h"
#include "replica/choices/choices.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compiler/automatic.h"
#include "replica/loops/inference_loop.h"
#include "replica/loops/training_loop.h"
#include "replica/report/out_of_memory.h"

namespace poprun::testing {
namespace {

std::string bytes_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Batches of a dataset, as a data server sends them.
class DatasetStream final : public HostStream {
 public:
  DatasetStream(const std::shared_ptr<const hostio::Dataset>& dataset, const proto::Selection& selection,
                std::uint64_t first = 0)
      : dataset_(dataset),
        split_(selection.split()),
        sampler_(*hostio::Sampler::make(selection, hostio::items_of(dataset->description(), selection.split()))),
        sequence_(first) {}

  Result<HostBatch> next() override {
    POPRUN_ASSIGN(grpc::ByteBuffer message, hostio::encode_batch(dataset_, split_, sampler_, sequence_++));
    POPRUN_ASSIGN(hostio::ReceivedBatch received, hostio::decode_batch(std::move(message)));
    return std::move(received.batch);
  }

 private:
  std::shared_ptr<const hostio::Dataset> dataset_;
  proto::Split split_;
  hostio::Sampler sampler_;
  std::uint64_t sequence_;
};

class Undrained final : public ProgressSink {
 public:
  void progress(ReplicaId /*replica*/, std::uint64_t /*step*/, std::string_view /*activity*/) override {}
  void operators(ReplicaId /*replica*/, std::uint64_t /*steps*/, double /*seconds*/) override {}
  void begin_parts(ReplicaId /*replica*/, std::uint64_t /*parts*/) override {}
  [[nodiscard]] bool begin_part(ReplicaId /*replica*/) override { return true; }
};

class ResultsReporter final : public Reporter {
 public:
  explicit ResultsReporter(Results& results) : results_(results) {}

  void step(const StepReport& report) override {
    results_[fmt::format("loss of step {}", report.step)] = fmt::format("{}", report.loss);
  }
  void evaluation(const EvaluationReport& report) override {
    results_[fmt::format("loss of evaluation {}", report.step)] = fmt::format("{}", report.loss);
  }
  void note(const proto::Note& /*note*/) override {}
  void weights(std::string_view name, std::string_view /*type*/, std::span<const std::int64_t> /*shape*/,
               std::span<const std::byte> data) override {
    results_[std::string{name}] = bytes_of(data);
  }
  void dump(std::uint64_t /*step*/, std::string_view /*name*/, std::string_view /*type*/,
            std::span<const std::int64_t> /*shape*/, std::span<const std::byte> /*data*/) override {}

 private:
  Results& results_;
};

/// The outputs of one replica.
class ResultsOutfeed final : public Outfeed {
 public:
  ResultsOutfeed(std::uint32_t replica, Results& results) : replica_(replica), results_(results) {}

  Status push(std::uint64_t batch, std::string_view /*type*/, std::span<const std::int64_t> /*shape*/,
              std::span<const std::byte> data) override {
    results_[fmt::format("output {} of replica {}", batch, replica_)] = bytes_of(data);
    return {};
  }

 private:
  std::uint32_t replica_;
  Results& results_;
};

/// One replica's part of a job.
class ReplicaRun {
 public:
  ReplicaRun(const CompiledJob& job, std::shared_ptr<const hostio::Dataset> dataset, LocalWorld& world)
      : job_(job), dataset_(std::move(dataset)), world_(world) {}

  Result<Results> run(std::uint32_t replica) const {
    Results results;
    Undrained progress;
    ResultsReporter reporter(results);
    const LoopPorts ports{.communicator = world_.communicator(ReplicaId{replica}),
                          .progress = progress,
                          .reporter = replica == 0 ? &reporter : nullptr,
                          .initial_weights = job_.weights,
                          .streams =
                              [&, replica](JobStream stream, std::uint64_t /*first*/) {
                                return std::make_unique<DatasetStream>(
                                    dataset_, selection_of(job_.config, job_.dataset, stream, replica));
                              },
                          .peer_stream =
                              [&](ReplicaId peer, std::uint64_t first) {
                                return std::make_unique<DatasetStream>(
                                    dataset_,
                                    selection_of(job_.config, job_.dataset, JobStream::kTrain, index_of(peer)), first);
                              }};
    if (job_.config.inference()) {
      ResultsOutfeed outfeed(replica, results);
      InferenceLoop loop(job_.program, inference_options(job_.config), ports, outfeed);
      POPRUN_TRY(loop.run());
      return results;
    }
    POPRUN_ASSIGN(TrainingOptions options, training_options(job_.config, job_.dataset));
    options.engine.early_batch_bytes = 1;  // Every gradient is reduced as soon as it is complete.
    TrainingLoop loop(job_.program, options, ports);
    POPRUN_TRY(loop.run());
    return results;
  }

 private:
  const CompiledJob& job_;
  std::shared_ptr<const hostio::Dataset> dataset_;
  LocalWorld& world_;
};

}  // namespace

Result<CompiledJob> compile_job(std::span<const Setting> settings, const std::string& onnx) {
  std::vector<std::string> words = words_of({settings.begin(), settings.end()});
  words.emplace_back("train.cfg");
  POPRUN_ASSIGN(launcher::Options options, launcher::parse_options(words, ""));
  CompiledJob job;
  job.config = options.config;
  job.notes = options.notes;
  POPRUN_ASSIGN(job.dataset, hostio::describe_dataset(job.config.data().source()));
  POPRUN_TRY(job_length(job.config, job.dataset));
  std::shared_ptr<onnx_import::JobModel> model;
  if (!onnx.empty()) {
    POPRUN_ASSIGN(model, onnx_import::JobModel::parse(job.config.model().onnx(), onnx,
                                                      choice_of<Loss>(job.config.model().loss())));
  }
  POPRUN_ASSIGN(CompileOptions compile, compile_options(job.config, job.dataset, model));
  compile.leaves_out_unproven = false;
  compile.layout_if_too_large = true;
  POPRUN_ASSIGN(job.program, plan_program(compile));
  if (model != nullptr) {
    job.onnx = onnx;
    POPRUN_ASSIGN(job.weights, model->weights());
  }
  for (const proto::Note& note : job.program.notes()) {
    job.notes.push_back(note.text());
  }
  job.config.mutable_memory()->set_allow_out_of_memory(true);
  if (const Status fits = check_fits(job.program); !fits) {
    allow_out_of_memory(fits.error(), job.config, job.program);
  }
  return job;
}

Status describe_job(const CompiledJob& job) {
  proto::CompileQuestion question;
  *question.mutable_config() = job.config;
  *question.mutable_dataset() = job.dataset;
  question.set_onnx_model(job.onnx);
  proto::ProfileQuestion profile;
  *profile.mutable_job() = question;
  question.set_show_graphs(true);
  proto::EstimateQuestion estimate;
  *estimate.add_jobs()->mutable_config() = job.config;
  *estimate.mutable_jobs(0)->mutable_dataset() = job.dataset;
  if (!job.onnx.empty()) {
    (*estimate.mutable_onnx_models())[job.config.model().onnx()] = job.onnx;
  }
  estimate.set_compile(true);
  for (const auto& [argument, input] : {std::pair{"--compile", question.SerializeAsString()},
                                        {"--estimate", estimate.SerializeAsString()},
                                        {"--profile", profile.SerializeAsString()}}) {
    std::istringstream stream(input);
    POPRUN_TRY(answer_inquiry({argument}, stream).status);
  }
  return {};
}

Result<Results> run_job(const CompiledJob& job) {
  POPRUN_ASSIGN(const std::shared_ptr<const hostio::Dataset> dataset, hostio::load_dataset(job.config.data().source()));
  const std::uint32_t replicas = job.config.topology().num_replicas();
  POPRUN_ASSIGN(const std::unique_ptr<LocalWorld> world, LocalWorld::create({.replicas = replicas}));
  const ReplicaRun one(job, dataset, *world);
  std::vector<Result<Results>> outcomes(replicas);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < replicas; ++r) {
    threads.emplace_back([&, r] { outcomes[r] = one.run(r); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Results all;
  for (Result<Results>& outcome : outcomes) {
    POPRUN_ASSIGN(Results results, std::move(outcome));
    all.merge(results);
  }
  return all;
}

}  // namespace poprun::testing
