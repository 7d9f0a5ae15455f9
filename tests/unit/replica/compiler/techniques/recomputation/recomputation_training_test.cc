/// Recomputation in whole jobs: results are bit-identical and need less memory.

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/techniques/recomputation/kept.h"
#include "replica/loops/tensor_dump.h"
#include "replica/models/layers/layers.h"
#include "replica/models/layers/transformer.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::recomputation_training_test {
namespace {

using testing::config;
using testing::dataset;
using testing::Outcome;
using testing::run_program;
using testing::set_optimizer;

/// Builds two transformer layers with dropout, whose sequence is the rows of an image.
ModelOutputs tiny_transformer(Builder& builder, const std::vector<TensorId>& tensors, bool training) {
  const ModelInputs inputs{.names = {"images", "labels"}, .tensors = tensors, .classes = 10, .sizes = {}};
  builder.layer("embeddings", /*counted=*/false);
  const std::int64_t batch = builder.type(tensors[0]).shape[0];
  TensorId x = layers::normalize(builder, tensors[0], 0.25, 0.5);
  x = layers::reshape(builder, "rows", x, {batch, 28, 28});
  const double rate = training ? 0.2 : 0;
  for (const std::string name : {"block0", "block1"}) {
    builder.layer(name);
    const auto heads = [&](const std::string& part) {
      const TensorId y = layers::dense(builder, name + part, x, {.features = 28});
      return layers::split_heads(builder, name + part, y, 4);
    };
    const TensorId query = heads(".query");
    const TensorId key = heads(".key");
    TensorId y = layers::attention(builder, name,
                                   {.query = query, .key = key, .value = heads(".value"), .mask = {}, .dropout = rate});
    y = layers::dropout(builder, name + ".dropout", y, rate);
    x = builder.add_one("add", {x, y}, {}, name + ".residual");
    x = layers::layer_norm(builder, name + ".norm", x, 1e-5);
  }
  builder.layer("head", /*counted=*/false);
  x = layers::flatten(builder, "flat", x);
  return layers::score(builder, layers::linear(builder, "head", x, 10), inputs, "loss");
}

/// Returns a job of a named model or of the tiny transformer.
CompileOptions options_of(proto::RunConfig job, const std::string& model) {
  const bool is_own = model == "transformer";
  job.mutable_model()->set_name(is_own ? "small-cnn" : model);
  auto options = compile_options(job, dataset());
  EXPECT_TRUE(options) << options.error().message;
  if (is_own) {
    options->forward = tiny_transformer;
  }
  return *options;
}

Outcome run_with(const proto::RunConfig& job, const std::string& model, Recomputation mode, std::int64_t ipus = 1) {
  CompileOptions options = options_of(job, model);
  options.ipus_per_replica = ipus;
  options.pipeline.recomputation = mode;
  options.pipeline.recomputation_memory = 0;  // Makes mode standard recompute as much as it can.
  auto program = compile(options);
  EXPECT_TRUE(program) << program.error().message;
  return run_program(job, std::move(program).value());
}

/// The parameter is the model.
class RecomputationInTraining : public ::testing::TestWithParam<const char*> {
 protected:
  /// Runs three steps of four micro-batches, with dead bytes as NaN, on one IPU and as a pipeline. A large model runs
  /// one step, without poison and in fewer modes.
  static void expect_the_same_bits(proto::RunConfig job) {
    job.mutable_training()->set_gradient_accumulation(4);
    job.mutable_training()->set_evaluate(false);
    const bool large = std::string_view{GetParam()} == "resnet18";
    job.mutable_memory()->set_poison_dead(!large);
    if (large) {
      job.mutable_training()->set_steps(1);
    }
    const Outcome plain = run_with(job, GetParam(), Recomputation::kNone);
    for (const std::int64_t ipus : {1, 2}) {
      for (const Recomputation mode :
           {Recomputation::kStandard, Recomputation::kLayer, Recomputation::kPipeline, Recomputation::kAll}) {
        if (large && (ipus == 1 || mode == Recomputation::kPipeline)) {
          continue;
        }
        const Outcome less = run_with(job, GetParam(), mode, ipus);
        EXPECT_EQ(less.records[0].tensors, plain.records[0].tensors) << word_of(mode) << " on " << ipus;
        for (std::size_t step = 0; step < plain.records[0].steps.size(); ++step) {
          EXPECT_EQ(less.records[0].steps[step].loss, plain.records[0].steps[step].loss)
              << word_of(mode) << " on " << ipus << " in step " << step;
        }
      }
    }
  }
};

TEST_P(RecomputationInTraining, ChangesNoBitInFloat) {
  expect_the_same_bits(config(1, 2));
}

TEST_P(RecomputationInTraining, ChangesNoBitInHalfWithStochasticRounding) {
  proto::RunConfig job = config(1, 2);
  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_stochastic_rounding(true);
  job.mutable_training()->set_loss_scaling(0);
  expect_the_same_bits(job);
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputationInTraining, ::testing::Values("small-cnn", "resnet18", "transformer"));

TEST(RecomputationInDumps, ShowsTheOriginalsOnly) {
  CompileOptions options = options_of(config(1, 2), "small-cnn");
  options.ipus_per_replica = 2;
  options.gradient_accumulation = 4;
  options.pipeline.recomputation = Recomputation::kAll;
  const auto program = compile(options);
  ASSERT_TRUE(program) << program.error().message;

  const auto plans = plan_dumps(*program, {{"conv2", 1}}, 1);

  ASSERT_TRUE(plans) << plans.error().message;
  std::set<std::string> names;
  for (const auto& [step, entries] : plans->at(1).after) {
    for (const DumpEntry& entry : entries) {
      names.insert(entry.name);
    }
  }
  EXPECT_THAT(names, ::testing::Contains("conv2"));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains(::testing::HasSubstr("recomputed"))));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains(::testing::HasSubstr("@"))));
}

/// Returns a model on made-up data of the given shapes, with Adam.
CompileOptions model_options(const std::string& name, std::map<std::string, std::int64_t> sizes,
                             std::vector<StreamedTensor> inputs) {
  CompileOptions options;
  options.model = name;
  options.inputs = std::move(inputs);
  const Model model = *find_model(name);
  options.forward = [model, sizes = *sizes_of(model, sizes), streamed = options.inputs](
                        Builder& builder, const std::vector<TensorId>& tensors, bool training) {
    ModelInputs given{.names = {}, .tensors = tensors, .classes = 1000, .training = training, .sizes = sizes};
    given.dropout = model.has_dropout && training ? 0.1 : 0;
    for (const StreamedTensor& input : streamed) {
      given.names.push_back(input.name);
    }
    return model.build(builder, given);
  };
  options.device = *find_device("mk2");
  options.optimizer = {.name = "adam", .hyper_parameters = {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}}};
  options.evaluate = false;
  options.gradient_accumulation = 8;  // Gradients die early: each is accumulated right after its producer.
  return options;
}

StreamedTensor integers(const std::string& name, Shape shape) {
  return {name, {DataType::kI32, std::move(shape), {}}};
}

const std::map<std::string, CompileOptions>& deep_models() {
  static const std::map<std::string, CompileOptions> kModels = {
      {"bert, 4 layers, 8 x 128",
       model_options("bert-base", {{"layers", 4}},
                     {integers("tokens", {8, 128}), integers("segments", {8, 128}), integers("positions", {8, 20}),
                      integers("labels", {8, 20}), integers("next_sentence", {8})})},
      {"gpt2, 4 layers, 2 x 512",
       model_options("gpt2", {{"layers", 4}}, {integers("tokens", {2, 512}), integers("labels", {2, 512})})},
      {"resnet18, 8 x 224 x 224",
       model_options("resnet18", {}, {{"images", {DataType::kU8, {8, 3, 224, 224}, {}}}, integers("labels", {8})})}};
  return kModels;
}

/// Returns the peak of the images' bytes on the IPU that needs most.
double images_of(CompileOptions options, Recomputation mode, double proportion = 0.9) {
  options.pipeline.recomputation = mode;
  options.pipeline.recomputation_memory = proportion;
  const auto program = plan_program(options);
  EXPECT_TRUE(program) << program.error().message;
  const auto& ipus = program.value().memory();
  return static_cast<double>(std::ranges::max_element(ipus, {}, &proto::IpuMemory::images_peak)->images_peak());
}

TEST(RecomputationInMemory, LowersThePeakOfDeepModels) {
  for (const auto& [name, options] : deep_models()) {
    EXPECT_LT(images_of(options, Recomputation::kLayer), 0.85 * images_of(options, Recomputation::kNone)) << name;
  }
}

TEST(RecomputationInMemory, StandardReachesItsGoals) {
  for (const auto& [name, single] : deep_models()) {
    for (const std::int64_t ipus : {1, 2}) {
      CompileOptions options = single;
      options.ipus_per_replica = ipus;
      if (ipus > 1) {  // Balanced stages would not be the same in every mode.
        options.pipeline.layers_per_ipu = {3, -1};
      }
      const auto capacity = static_cast<double>(options.device.capacity().count());
      const double none = images_of(options, Recomputation::kNone);
      const double layer = images_of(options, Recomputation::kLayer);
      for (const double part : {0.0, 0.5, 1.0}) {
        const double goal = layer + part * (none - layer);
        const double needs = images_of(options, Recomputation::kStandard, goal / capacity);
        EXPECT_LE(needs, 1.03 * goal) << name << " on " << ipus << " at " << part;
      }
    }
  }
}

}  // namespace
}  // namespace poprun::recomputation_training_test
