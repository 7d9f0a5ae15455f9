/// Jobs of built-in models as pipelines: they are proven equivalent to their plain forms and planned, unless a pipeline
/// is damaged.

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "replica/compiler/automatic.h"
#include "replica/compiler/compile.h"
#include "replica/compiler/passes.h"
#include "replica/compiler/proofs/equivalence.h"
#include "replica/compiler/proofs/occupancy.h"
#include "replica/compiler/techniques/pipeline/pipeline.h"
#include "replica/machine/operations.h"
#include "replica/models/layers/model.h"
#include "replica/ops/optimizers/optimizer.h"

namespace poprun::pipeline_equivalence_test {
namespace {

using ::testing::HasSubstr;

struct JobSetup {
  std::string model;
  std::map<std::string, std::int64_t> sizes = {};
  std::string optimizer = "momentum";
  bool half = false;
  std::int64_t accumulation = 6;
  std::uint32_t stages = 2;
  std::uint32_t micro_batch_size = 2;
  double loss_scaling = 1;
  double clip_norm = 0;
  std::vector<std::uint32_t> ipu_of_layer = {};  ///< One stage per layer; empty: balanced stages.
};

CompileOptions options_of(const JobSetup& setup) {
  const Model model = *find_model(setup.model);
  CompileOptions options;
  options.model = setup.model;
  options.device = *find_device("mk2");
  for (const SampleTensor& tensor : model.sample.tensors) {
    Shape shape{setup.micro_batch_size};
    shape.insert(shape.end(), tensor.shape.begin(), tensor.shape.end());
    options.inputs.push_back({tensor.name, {tensor.data, shape, {}}});
  }
  options.forward = [model, setup](Builder& builder, const std::vector<TensorId>& tensors, bool training) {
    ModelInputs inputs;
    for (const SampleTensor& tensor : model.sample.tensors) {
      inputs.names.push_back(tensor.name);
    }
    inputs.tensors = tensors;
    inputs.classes = inputs.label_classes = model.sample.classes;
    inputs.dropout = model.has_dropout ? 0.1 : 0;
    inputs.half = setup.half;
    inputs.training = training;
    inputs.sizes = *sizes_of(model, setup.sizes);
    return model.build(builder, inputs);
  };
  options.micro_batch_size = setup.micro_batch_size;
  options.gradient_accumulation = setup.accumulation;
  options.evaluation_batches = 5;
  options.ipus_per_replica = setup.stages;
  options.pipeline.layers_per_ipu.assign(setup.ipu_of_layer.size(), 1);
  options.pipeline.device_mapping = setup.ipu_of_layer;
  options.optimizer.name = setup.optimizer;
  options.optimizer.clip_norm = setup.clip_norm;
  for (const HyperParameter& own : find_optimizer(setup.optimizer)->hyper_parameters) {
    options.optimizer.hyper_parameters[own.name] = own.range ? std::stod(own.fallback) : 0;
  }
  options.precision = {.half = setup.half, .stochastic_rounding = setup.half};
  options.loss_scaling = setup.loss_scaling;
  return options;
}

/// Returns the job after the pass "precision", which settles its arithmetic.
Job plain_job(const CompileOptions& options) {
  Job job;
  for (const Pass& pass : all_passes()) {
    if (pass.applies(options)) {
      const Status status = pass.run(options, job);
      EXPECT_TRUE(status) << pass.name << ": " << status.error().message;
    }
    if (pass.name == "precision") {
      break;
    }
  }
  return job;
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string message_of(const Status& status) {
  return status ? "" : status.error().message;
}

void expect_proven(const JobSetup& setup) {
  const CompileOptions options = options_of(setup);
  const Job plain = plain_job(options);
  for (const Schedule schedule : {Schedule::kGrouped, Schedule::kInterleaved, Schedule::kSequential}) {
    SCOPED_TRACE(setup.model + " " + name_of(schedule));
    Job job = plain;
    EXPECT_EQ(message_of(make_pipeline(job, schedule)), "");
    EXPECT_EQ(message_of(verify_equivalence(plain.graph, job.graph)), "");
    const auto program = plan_graph(job.graph, options);
    const bool fits = program || program.error().code == ErrorCode::kOutOfMemory;
    EXPECT_TRUE(fits) << program.error().message;
  }
  for (const std::uint32_t ipus : {1U, 2U}) {
    SCOPED_TRACE(fmt::format("{} phased on {} IPUs", setup.model, ipus));
    Job job = plain;
    for (std::size_t phase = 0; phase < job.ipu_of_stage.size(); ++phase) {
      job.ipu_of_stage[phase] = static_cast<std::uint32_t>(phase) % ipus;
    }
    EXPECT_EQ(message_of(make_pipeline(job, Schedule::kPhased)), "");
    EXPECT_EQ(message_of(verify_equivalence(plain.graph, job.graph)), "");
    const auto program = plan_graph(job.graph, options);
    const bool fits = program || program.error().code == ErrorCode::kOutOfMemory;
    EXPECT_TRUE(fits) << program.error().message;
  }
}

TEST(PipelineEquivalence, HoldsForGpt2WithTiedEmbeddingsAndDropout) {
  expect_proven({.model = "gpt2", .sizes = {{"layers", 4}, {"hidden", 64}, {"heads", 4}}});
  expect_proven({.model = "gpt2",
                 .sizes = {{"layers", 4}, {"hidden", 64}, {"heads", 4}},
                 .optimizer = "adamw",
                 .accumulation = 40,
                 .stages = 4,
                 .clip_norm = 1});
}

TEST(PipelineEquivalence, HoldsForBertInHalfWithLambAndALossScale) {
  for (const std::int64_t accumulation : {1, 2, 7}) {
    expect_proven({.model = "bert-base",
                   .sizes = {{"layers", 4}, {"hidden", 64}, {"heads", 4}},
                   .optimizer = "lamb",
                   .half = true,
                   .accumulation = accumulation,
                   .stages = 3,
                   .loss_scaling = 0});
  }
}

TEST(PipelineEquivalence, HoldsForAResNetWithRunningStatistics) {
  expect_proven({.model = "resnet18", .stages = 2});
  expect_proven({.model = "small-cnn", .stages = 2});
}

TEST(PipelineEquivalence, HoldsForStagesThatShareIpus) {
  for (const std::vector<std::uint32_t>& ipus : {std::vector<std::uint32_t>{0, 0, 0, 0}, {0, 0, 1, 1}, {1, 0, 0, 1}}) {
    expect_proven({.model = "gpt2",
                   .sizes = {{"layers", 4}, {"hidden", 64}, {"heads", 4}},
                   .accumulation = 6,
                   .stages = 2,
                   .ipu_of_layer = ipus});
  }
}

/// Prints how long the proofs take, for information.
TEST(PipelineEquivalence, HoldsForBertLargeOnFourIpusWithThePublishedAccumulation) {
  CompileOptions options =
      options_of({.model = "bert-large", .optimizer = "lamb", .half = true, .accumulation = 2048, .stages = 4});
  options.evaluation_batches = 10'000;
  options.pipeline.layers_per_ipu = {3, 7, 7, 7};
  const Job plain = plain_job(options);
  Job job = plain;
  ASSERT_TRUE(make_pipeline(job, Schedule::kGrouped));
  std::string verdict;
  const double equivalence = seconds_of([&] { verdict = message_of(verify_equivalence(plain.graph, job.graph)); });
  EXPECT_EQ(verdict, "");

  std::optional<Program> program;
  const double compilation = seconds_of([&] { program = *plan_program(options); });
  const double memory = seconds_of([&] { verdict = message_of(verify_memory(*program)); });
  EXPECT_EQ(verdict, "");
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::cout << "equivalence " << equivalence << " s, memory " << memory << " s, all " << compilation << " s, at most "
            << usage.ru_maxrss / 1024 << " MiB of this process\n";
}

/// Returns the verdict on a small GPT-2 with two stages after `damage`.
std::string verdict_on(const std::function<void(Graph&)>& damage, Schedule schedule = Schedule::kGrouped) {
  const CompileOptions options = options_of({.model = "gpt2", .sizes = {{"layers", 2}, {"hidden", 64}, {"heads", 4}}});
  const Job plain = plain_job(options);
  Job job = plain;
  EXPECT_EQ(message_of(make_pipeline(job, schedule)), "");
  damage(job.graph);
  return message_of(verify_equivalence(plain.graph, job.graph));
}

/// Returns the operations of one region of a function.
std::vector<Operation>& operations(Graph& graph, std::string_view function, std::size_t region) {
  return std::ranges::find(graph.functions, function, &Function::name)->regions.at(region).operations;
}

TEST(PipelineEquivalence, FindsATiedWeightThatIsNotCopiedBehindTheUpdate) {
  EXPECT_THAT(verdict_on([](Graph& graph) {
                auto& regions = std::ranges::find(graph.functions, "train", &Function::name)->regions;
                std::erase_if(regions.back().operations, [&](const Operation& operation) {
                  return Copy::is(operation) && graph.tensor(operation.inputs[0]).role == Role::kParameter;
                });
              }),
              HasSubstr("'transformer.wte.weight' as initialise writes it in load (run 0)"));
}

TEST(PipelineEquivalence, FindsSwappedMicroBatches) {
  EXPECT_THAT(
      verdict_on([](Graph& graph) {
        auto& steady = operations(graph, "train", 2);
        std::ranges::find(steady, Call::kKind, &Operation::kind)->attributes.set("micro_batch", std::int64_t{1});
      }),
      HasSubstr("of micro-batch 2"));
}

TEST(PipelineEquivalence, FindsALostStashEntry) {
  EXPECT_THAT(verdict_on([](Graph& graph) {
                auto& forward = operations(graph, "forward.0", 0);
                forward.erase(std::ranges::find_if(forward, Stash::is));
              }),
              HasSubstr("which nothing has written"));
}

TEST(PipelineEquivalence, FindsWhatAPhaseDoesNotKeep) {
  EXPECT_THAT(verdict_on(
                  [](Graph& graph) {
                    auto& forward = operations(graph, "forward.0", 0);
                    forward.erase(std::ranges::find_if(forward, Stash::is));
                  },
                  Schedule::kPhased),
              HasSubstr("which nothing has written"));
}

TEST(PipelineEquivalence, FindsWhatIsNotBroughtToTheIpuOfAPhase) {
  EXPECT_THAT(verdict_on(
                  [](Graph& graph) {
                    auto& brings = operations(graph, "bring.forward.1", 0);
                    brings.erase(std::ranges::find_if(brings, Stash::is));
                  },
                  Schedule::kPhased),
              HasSubstr("which nothing has written"));
}

TEST(PipelineEquivalence, FindsAPhaseThatReadsTheEntryOfAnotherMicroBatch) {
  EXPECT_THAT(
      verdict_on(
          [](Graph& graph) {
            auto& phase = operations(graph, "train", 4);
            std::ranges::find(phase, Call::kKind, &Operation::kind)->attributes.set("micro_batch", std::int64_t{1});
          },
          Schedule::kPhased),
      HasSubstr("of micro-batch"));
}

TEST(PipelineEquivalence, FindsAnAccumulationThatIsDropped) {
  EXPECT_THAT(verdict_on([](Graph& graph) {
                auto& backward = operations(graph, "backward.1", 0);
                backward.erase(std::ranges::find(backward, "accumulate", &Operation::kind));
              }),
              HasSubstr("as fill writes it in train (run 1)"));
}

TEST(PipelineEquivalence, FindsDropoutWithANewKey) {
  EXPECT_THAT(verdict_on([](Graph& graph) {
                auto& backward = operations(graph, "backward.0", 0);
                std::ranges::find(backward, "dropout", &Operation::kind)->attributes.set("key", std::string{"new"});
              }),
              HasSubstr("has key=\"new\""));
}

}  // namespace
}  // namespace poprun::pipeline_equivalence_test
