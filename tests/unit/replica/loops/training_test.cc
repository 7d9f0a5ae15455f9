/// Whole jobs on replicas that are threads: small-cnn on made-up images.

#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/local/local_world.h"
#include "proto/run_config.pb.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compiler/compile.h"
#include "replica/loops/training_loop.h"
#include "replica/models/layers/layers.h"
#include "replica/program/timeline.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/naive_cnn.h"
#include "tests/unit/replica/texts.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::training_test {
namespace {

using namespace testing;  // NOLINT: the made-up job.
using ::testing::HasSubstr;

TEST(SmallCnn, HasItsParameterCount) {
  const auto program = compile(*compile_options(config(1, 16), dataset()));

  ASSERT_TRUE(program);
  EXPECT_EQ(program->parameter_count(), 421'642U);
}

TEST(Training, FirstStepAgreesWithTheNaiveNetwork) {
  // One step of plain SGD at rate 1 moves each weight by its gradient.
  proto::RunConfig job = config(2, 3);
  job.mutable_training()->set_steps(1);
  set_optimizer(job, "sgd");
  job.mutable_training()->set_learning_rate(1.0);
  proto::RunConfig nothing = job;
  nothing.mutable_training()->set_learning_rate(1e-30);
  const Outcome before = run(nothing);

  const Outcome after = run(job);

  const NaiveCnn naive = naive_step(before.records[0].tensors, 6);
  EXPECT_NEAR(after.records[0].steps[0].loss, naive.loss, 1e-5);
  EXPECT_NEAR(after.records[0].steps[0].accuracy, naive.correct / 6.0, 1e-6);
  ASSERT_EQ(naive.gradients.size(), 8U);
  for (const auto& [name, gradient] : naive.gradients) {
    const std::vector<float>& w0 = before.records[0].tensors.at(name);
    const std::vector<float>& w1 = after.records[0].tensors.at(name);
    double largest = 0;
    for (const double g : gradient) {
      largest = std::max(largest, std::abs(g));
    }
    ASSERT_EQ(w0.size(), gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(w0[i]) - static_cast<double>(w1[i]), gradient[i], 1e-4 * largest)
          << name << "[" << i << "]";
    }
  }
}

TEST(Training, GivesEveryReplicaTheSameWeights) {
  const Outcome outcome = run(config(3, 4));

  EXPECT_EQ(outcome.records[0].tensors, outcome.records[1].tensors);
  EXPECT_EQ(outcome.records[0].tensors, outcome.records[2].tensors);
  EXPECT_EQ(outcome.records[0].steps.size(), 3U);
}

TEST(Training, LowersTheLoss) {
  proto::RunConfig job = config(2, 8);
  job.mutable_training()->set_steps(30);
  const Outcome outcome = run(job);

  EXPECT_LT(outcome.records[0].steps.back().loss, 0.5 * outcome.records[0].steps.front().loss);
}

TEST(Training, LowersTheLossWithAdam) {
  proto::RunConfig job = config(2, 8);
  job.mutable_training()->set_steps(30);
  set_optimizer(job, "adam");
  job.mutable_training()->set_learning_rate(0.002);
  const Outcome outcome = run(job);

  EXPECT_LT(outcome.records[0].steps.back().loss, 0.5 * outcome.records[0].steps.front().loss);
}

TEST(Training, FirstStepOfAdamMovesEachWeightByTheRate) {
  // This holds only if the bias corrections use step 1.
  proto::RunConfig job = config(1, 4);
  job.mutable_training()->set_steps(1);
  set_optimizer(job, "adam", {{"epsilon", 1e-12}});
  job.mutable_training()->set_learning_rate(0.125);
  proto::RunConfig nothing = job;
  nothing.mutable_training()->set_learning_rate(1e-30);

  const std::vector<float> w0 = run(nothing).records[0].tensors.at("fc2.bias");
  const std::vector<float> w1 = run(job).records[0].tensors.at("fc2.bias");

  ASSERT_EQ(w0.size(), 10U);
  for (std::size_t i = 0; i < w0.size(); ++i) {
    EXPECT_NEAR(std::abs(w0[i] - w1[i]), 0.125F, 1e-5);
  }
}

TEST(Training, NamesTheOptimisersThereAre) {
  proto::RunConfig job = config(1, 4);
  job.mutable_training()->set_optimizer("gradient-guess");

  const std::string message = compile(*compile_options(job, dataset())).error().message;

  EXPECT_THAT(message, HasSubstr("training.optimizer: no optimiser is called 'gradient-guess'; available: "));
  for (const Optimizer& optimizer : all_optimizers()) {
    EXPECT_THAT(message, HasSubstr(optimizer.name()));
  }
}

TEST(Training, RefusesHyperParametersThatTheOptimiserLacksAndMissesThoseItHas) {
  proto::RunConfig job = config(1, 4);
  job.mutable_training()->set_optimizer("sgd");
  EXPECT_EQ(compile(*compile_options(job, dataset())).error().message,
            "training.momentum = 0.9: optimiser sgd has no hyper-parameter of this name");

  job = config(1, 4);
  job.mutable_training()->mutable_hyper_parameters()->erase("nesterov");
  EXPECT_EQ(compile(*compile_options(job, dataset())).error().message,
            "training.nesterov is missing; optimiser momentum needs it");
}

TEST(Training, CountsEachTestItemOnce) {
  // Two replicas take 24 items, 5 at a time, in three batches each, of which the last are padded.
  const Outcome outcome = run(config(2, 5));

  ASSERT_EQ(outcome.records[0].evaluations.size(), 1U);
  EXPECT_EQ(outcome.records[0].evaluations[0].items, 24U);
}

TEST(Training, IsUnchangedByPoisonInDeadBytes) {
  proto::RunConfig poisoned = config(2, 4);
  poisoned.mutable_memory()->set_poison_dead(true);
  poisoned.mutable_training()->set_gradient_accumulation(2);
  proto::RunConfig plain = poisoned;
  plain.mutable_memory()->set_poison_dead(false);

  EXPECT_EQ(run(poisoned).records[0].tensors, run(plain).records[0].tensors);
}

TEST(Training, UsesExactlyThePlannedMemory) {
  const Outcome outcome = run(config(2, 4));

  EXPECT_EQ(outcome.results[1].high_water[0].count(),
            static_cast<std::int64_t>(outcome.program.memory(0).images_peak()));
  EXPECT_GE(outcome.program.memory(0).peak(), outcome.program.memory(0).lower_bound());
}

TEST(Training, AccumulationEqualsTheLargerMicroBatchUpToRounding) {
  proto::RunConfig whole = config(1, 8);
  proto::RunConfig halves = config(1, 4);
  halves.mutable_training()->set_gradient_accumulation(2);

  const Outcome a = run(whole);
  const Outcome b = run(halves);

  for (const auto& [name, values] : a.records[0].tensors) {
    const std::vector<float>& other = b.records[0].tensors.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], other[i], 1e-4) << name;
    }
  }
  EXPECT_EQ(b.records[0].steps.size(), 3U);
}

TEST(Training, StartsFromGivenWeights) {
  proto::RunConfig job = config(2, 2);
  job.mutable_training()->set_steps(1);
  const Outcome first = run(job);
  HostWeights weights;
  for (const auto& [name, values] : first.records[0].tensors) {
    weights[name].assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  job.mutable_training()->set_learning_rate(1e-30);

  EXPECT_EQ(run(job, weights).records[1].tensors, first.records[0].tensors);
}

TEST(Training, DeviceTimeIsTheProgramsCost) {
  const Outcome outcome = run(config(2, 4));
  const auto cycles = [&](const char* function) {
    return walk(outcome.program, *find_function(outcome.program, function)).length.count();
  };

  EXPECT_GT(cycles("train"), 0);
  EXPECT_EQ(outcome.results[0].device_time.count(),
            3 * cycles("train") + cycles("evaluate_begin") + cycles("evaluate") + cycles("evaluate_end"));
}

TEST(Training, StartsFromNormalWeightsWhereTheModelSaysSo) {
  proto::RunConfig job = config(1, 2);
  job.mutable_training()->set_steps(1);
  job.mutable_training()->set_learning_rate(1e-30);

  const Outcome outcome = run(job, {}, kToTheEnd, [](Builder& builder, const std::vector<TensorId>& inputs, bool) {
    TensorId x = layers::normalize(builder, inputs[0], 0.25, 0.5);
    x = layers::conv2d(builder, "conv", x,
                       {.channels = 512, .kernel = 5, .stride = 5, .bias = false, .kaiming_normal = true});
    x = layers::linear(builder, "fc", layers::flatten(builder, "features", x), 10);
    const auto outputs = builder.add("softmax_cross_entropy", {x, inputs[1]}, {}, {"loss", "correct", "count"});
    return ModelOutputs{outputs[0], outputs[1], outputs[2]};
  });

  const std::vector<float>& w = outcome.records[0].tensors.at("conv.weight");
  const double expected = std::sqrt(2.0 / (512 * 25));
  const auto count = static_cast<double>(w.size());
  double mean = 0;
  double square = 0;
  double within = 0;
  for (const float value : w) {
    mean += static_cast<double>(value) / count;
    square += static_cast<double>(value * value) / count;
    within += std::abs(static_cast<double>(value)) < expected ? 1 / count : 0;
  }
  // 12,800 draws: each bound is about four standard errors.
  EXPECT_EQ(w.size(), 12'800U);
  EXPECT_NEAR(mean, 0, 0.035 * expected);
  EXPECT_NEAR(std::sqrt(square), expected, 0.025 * expected);
  EXPECT_NEAR(within, 0.6827, 0.0165) << "the share of a normal distribution within one deviation";
}

/// Builds a model with batch normalisation of the images and a classifier.
ModelOutputs normalising_model(Builder& builder, const std::vector<TensorId>& inputs, bool training) {
  TensorId x = layers::normalize(builder, inputs[0], 0.25, 0.5);
  x = layers::batch_norm(builder, "bn", x, training);
  x = layers::linear(builder, "fc", layers::flatten(builder, "features", x), 10);
  const auto outputs = builder.add("softmax_cross_entropy", {x, inputs[1]}, {}, {"loss", "correct", "count"});
  return {outputs[0], outputs[1], outputs[2]};
}

TEST(Buffers, FollowTheMeanOfTheReplicasStatistics) {
  proto::RunConfig job = config(2, 3);
  job.mutable_training()->set_steps(1);

  const Outcome outcome = run(job, {}, kToTheEnd, normalising_model);

  double mean = 0;
  double variance = 0;
  for (std::uint64_t replica = 0; replica < 2; ++replica) {
    std::vector<double> pixels;
    for (std::uint64_t i = 0; i < 3; ++i) {
      for (const char pixel : sample(replica * 3 + i).first) {
        pixels.push_back((static_cast<unsigned char>(pixel) / 255.0 - 0.25) / 0.5);
      }
    }
    const auto count = static_cast<double>(pixels.size());
    const double own = std::accumulate(pixels.begin(), pixels.end(), 0.0) / count;
    for (const double pixel : pixels) {
      variance += (pixel - own) * (pixel - own) / (count - 1) / 2;
    }
    mean += own / 2;
  }
  EXPECT_NEAR(outcome.records[0].tensors.at("bn.running_mean")[0], 0.1 * mean, 1e-6);
  EXPECT_NEAR(outcome.records[0].tensors.at("bn.running_var")[0], 0.9 + 0.1 * variance, 1e-6);
}

TEST(Buffers, AreEqualOnAllReplicasAndNotTrained) {
  proto::RunConfig job = config(3, 4);
  job.mutable_training()->set_gradient_accumulation(2);
  job.mutable_training()->set_weight_decay(0.1);

  const Outcome outcome = run(job, {}, kToTheEnd, normalising_model);

  EXPECT_EQ(outcome.records[0].tensors, outcome.records[2].tensors);
  EXPECT_EQ(outcome.records[0].tensors.size(), 6U);
  EXPECT_EQ(outcome.program.parameter_count(), 7840U + 10U + 2U);
}

TEST(LabelSmoothing, ChangesTheLossOfTrainingButNotOfEvaluation) {
  const auto trained = [](double smoothing) {
    proto::RunConfig job = config(2, 4);
    job.mutable_training()->set_steps(1);
    job.mutable_training()->set_learning_rate(1e-30);
    job.mutable_training()->set_label_smoothing(smoothing);
    return run(job);
  };
  const Outcome plain = trained(0);
  const Outcome smoothed = trained(0.1);
  EXPECT_NE(smoothed.records[0].steps.at(0).loss, plain.records[0].steps.at(0).loss);
  EXPECT_EQ(smoothed.records[0].evaluations.at(0).loss, plain.records[0].evaluations.at(0).loss);
}

TEST(LabelSmoothing, NeedsACrossEntropy) {
  proto::RunConfig job = config(1, 4);
  job.mutable_training()->set_label_smoothing(0.1);
  CompileOptions options = *compile_options(job, testing::dataset());
  options.forward = [](Builder& builder, const std::vector<TensorId>&, bool) {
    const TensorId loss = builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", 1.0}}, "loss");
    return ModelOutputs{loss, loss, loss};
  };
  const auto program = compile(options);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code, ErrorCode::kUsage);
  EXPECT_THAT(program.error().message, HasSubstr("the loss of small-cnn is not a cross-entropy"));
}

/// Returns the weights of small-cnn after a step of plain SGD with this weight decay.
std::map<std::string, std::vector<float>> decayed(double decay, const std::string& exempt) {
  proto::RunConfig job = config(2, 4);
  job.mutable_training()->set_steps(1);
  set_optimizer(job, "sgd");
  job.mutable_training()->set_weight_decay(decay);
  job.mutable_training()->set_no_decay(exempt);
  return run(job).records[0].tensors;
}

TEST(WeightDecay, LeavesAloneWhatIsExempt) {
  // Decay does not affect the gradients of the first step.
  const auto none = decayed(0, "");
  const auto all = decayed(0.1, "");
  for (const auto& [pattern, is_exempt] : std::map<std::string, std::function<bool(const std::string&)>>{
           {"vectors", [](const std::string& name) { return name.ends_with(".bias"); }},
           {"^conv2", [](const std::string& name) { return name.starts_with("conv2"); }}}) {
    SCOPED_TRACE(pattern);
    for (const auto& [name, weights] : decayed(0.1, pattern)) {
      EXPECT_EQ(weights, is_exempt(name) ? none.at(name) : all.at(name)) << name;
    }
  }
  EXPECT_NE(none.at("conv2.weight"), all.at("conv2.weight"));
}

TEST(WeightDecay, ExemptsFromTheTrustRatioOfLars) {
  const auto trained = [](double trust) {
    proto::RunConfig job = config(2, 4);
    set_optimizer(job, "lars", {{"trust-coefficient", trust}});
    job.mutable_training()->set_steps(1);
    job.mutable_training()->set_no_decay("vectors");
    return run(job).records[0].tensors;
  };
  const auto small = trained(0.001);
  for (const auto& [name, weights] : trained(0.1)) {
    EXPECT_EQ(weights == small.at(name), name.ends_with(".bias")) << name;
  }
}

TEST(WeightDecay, NeedsAPatternThatMatchesSomeButNotAll) {
  for (const char* pattern : {"none-such", "."}) {
    proto::RunConfig job = config(1, 4);
    job.mutable_training()->set_weight_decay(0.1);
    job.mutable_training()->set_no_decay(pattern);
    const auto program = compile(*compile_options(job, testing::dataset()));
    ASSERT_FALSE(program);
    EXPECT_EQ(program.error().code, ErrorCode::kUsage);
    EXPECT_THAT(program.error().message, HasSubstr("it must match some, but not all"));
  }
}

TEST(Buffers, StartFromGivenWeights) {
  proto::RunConfig job = config(1, 4);
  const Outcome first = run(job, {}, kToTheEnd, normalising_model);
  HostWeights weights;
  for (const auto& [name, values] : first.records[0].tensors) {
    weights[name].assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  job.mutable_training()->set_steps(1);

  const Outcome second = run(job, weights, kToTheEnd, normalising_model);

  // After one step, the result is 0.9 of the given statistics plus 0.1 of the first batch's, which `fresh` contains.
  job.mutable_training()->set_steps(1);
  const Outcome fresh = run(job, {}, kToTheEnd, normalising_model);
  EXPECT_NEAR(
      second.records[0].tensors.at("bn.running_mean")[0],
      0.9F * first.records[0].tensors.at("bn.running_mean")[0] + fresh.records[0].tensors.at("bn.running_mean")[0],
      1e-6);
}

TEST(Buffers, AreReadAndNotWrittenInEvaluation) {
  proto::RunConfig job = config(1, 4);
  auto options = compile_options(job, dataset());
  options->forward = normalising_model;
  const auto program = compile(*options);
  ASSERT_TRUE(program) << program.error().message;

  std::vector<std::string> operations;
  for (const proto::Step& step : find_function(*program, "evaluate.0")->steps()) {
    operations.push_back(step.execute().operation());
  }

  EXPECT_THAT(operations, ::testing::Contains("batch_norm_inference"));
  EXPECT_THAT(operations, ::testing::Not(::testing::Contains("batch_norm_training")));
  EXPECT_THAT(operations, ::testing::Not(::testing::Contains("batch_norm_update")));
}

TEST(Training, ClipsTheGradientToTheNorm) {
  // One step of plain SGD at rate 1 moves the weights by the gradient, which must have the given norm.
  proto::RunConfig job = config(2, 4);
  job.mutable_training()->set_steps(1);
  job.mutable_training()->set_gradient_accumulation(2);
  set_optimizer(job, "sgd");
  job.mutable_training()->set_learning_rate(1.0);
  job.mutable_training()->set_clip_norm(0.125);
  proto::RunConfig nothing = job;
  nothing.mutable_training()->set_learning_rate(1e-30);
  proto::RunConfig loose = job;
  loose.mutable_training()->set_clip_norm(1e6);
  proto::RunConfig free = job;
  free.mutable_training()->set_clip_norm(0);
  const Outcome before = run(nothing);

  const Outcome after = run(job);

  double squares = 0;
  for (const auto& [name, w0] : before.records[0].tensors) {
    const std::vector<float>& w1 = after.records[0].tensors.at(name);
    for (std::size_t i = 0; i < w0.size(); ++i) {
      const double moved = static_cast<double>(w0[i]) - static_cast<double>(w1[i]);
      squares += moved * moved;
    }
  }
  EXPECT_NEAR(std::sqrt(squares), 0.125, 1e-4);
  EXPECT_EQ(run(loose).records[0].tensors, run(free).records[0].tensors);
}

TEST(Compile, RefusesAMicroBatchThatDoesNotFit) {
  proto::RunConfig job = config(1, 20'000);

  const auto program = compile(*compile_options(job, dataset()));

  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code, ErrorCode::kOutOfMemory);
  ASSERT_TRUE(program.error().facts.shortage);
  EXPECT_EQ(program.error().facts.shortage->had, Bytes{638'976});
  EXPECT_GT(program.error().facts.shortage->needed, program.error().facts.shortage->had);
  EXPECT_THAT(program.error().message, HasSubstr("more than the 638,976 B of a tile"));
  EXPECT_THAT(program.error().message, HasSubstr("  not always live "));
  EXPECT_THAT(program.error().message, HasSubstr("relu1"));
}

TEST(Compile, ExchangesAGradientThatTwoParametersShareOnce) {
  CompileOptions options = *compile_options(config(2, 1), dataset());
  options.evaluate = false;
  options.forward = [](Builder& builder, const std::vector<TensorId>& inputs, bool) {
    const TensorType type{DataType::kF32, {1, 10}, Layout::kRowMajor};
    const TensorId a = builder.variable("a", type, Role::kParameter, {});
    const TensorId b = builder.variable("b", type, Role::kParameter, {});
    const TensorId sum = builder.add_one("add", {a, b}, {}, "sum");
    const auto outputs = builder.add("softmax_cross_entropy", {sum, inputs[1]}, {}, {"loss", "correct", "count"});
    return ModelOutputs{outputs[0], outputs[1], outputs[2]};
  };

  const auto program = compile(options);

  ASSERT_TRUE(program) << program.error().message;
  for (const proto::Step& step : find_function(*program, "train")->steps()) {
    const auto& tensors = step.all_reduce().tensors();
    const std::set<std::uint32_t> distinct(tensors.begin(), tensors.end());
    EXPECT_EQ(distinct.size(), static_cast<std::size_t>(tensors.size()));
  }
}

TEST(Compile, IsDeterministic) {
  const auto a = compile(*compile_options(config(4, 16), dataset()));
  const auto b = compile(*compile_options(config(4, 16), dataset()));

  EXPECT_EQ(a->SerializeAsString(), b->SerializeAsString());
}

TEST(Compile, SaysWhatEachIpuHolds) {
  proto::RunConfig job = config(1, 4);
  job.mutable_topology()->set_ipus_per_replica(2);
  job.mutable_training()->set_gradient_accumulation(2);
  job.mutable_pipeline()->set_schedule("grouped");
  job.mutable_pipeline()->add_layers_per_ipu(3);
  job.mutable_pipeline()->add_layers_per_ipu(1);

  const auto program = compile(*compile_options(job, dataset()));

  ASSERT_TRUE(program) << program.error().message;
  EXPECT_THAT(testing::texts(program->notes()),
              ::testing::ElementsAre("stage 0 on IPU 0: conv1 to fc1 (3 layers), 420,352 parameters",
                                     "stage 1 on IPU 1: fc2, 1,290 parameters"));
}

}  // namespace
}  // namespace poprun::training_test
