/// Half precision: stored values are float16, and computed values are correct up to rounding.

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/layers/model.h"
#include "replica/program/timeline.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/naive_cnn.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::half_precision_test {
namespace {

using testing::config;
using testing::dataset;
using testing::dataset_of;
using testing::Outcome;
using testing::run;
using testing::set_optimizer;

proto::RunConfig half_config(std::uint32_t replicas, std::uint32_t micro_batch_size) {
  proto::RunConfig job = config(replicas, micro_batch_size);
  job.mutable_model()->set_precision("half");
  return job;
}

std::set<std::string> types_of(const Program& program, proto::Role role) {
  std::set<std::string> types;
  for (const proto::Tensor& tensor : program.tensors()) {
    if (tensor.role() == role) {
      types.insert(tensor.type().substr(0, 3));
    }
  }
  return types;
}

TEST(HalfPrecision, StoresWeightsActivationsAndGradientsInTwoBytes) {
  const auto whole = compile(*compile_options(config(2, 16), dataset()));
  const auto half = compile(*compile_options(half_config(2, 16), dataset()));

  ASSERT_TRUE(half) << half.error().message;
  EXPECT_EQ(types_of(*half, proto::ROLE_PARAMETER), std::set<std::string>{"f16"});
  EXPECT_EQ(types_of(*half, proto::ROLE_GRADIENT), std::set<std::string>{"f16"});
  EXPECT_EQ(types_of(*half, proto::ROLE_OPTIMIZER_STATE), std::set<std::string>{"f32"});
  EXPECT_EQ(half->parameter_count(), whole->parameter_count());
  // Momentum stays float, so 6 of 8 bytes per weight remain, and half of the activations' bytes.
  EXPECT_LT(half->memory(0).images_peak(), whole->memory(0).images_peak() * 7 / 10);
  EXPECT_LT(walk(*half, *find_function(*half, "train")).length, walk(*whole, *find_function(*whole, "train")).length);
}

/// Returns the statistics that operators output. They are listed here, not taken from the operators' descriptions.
std::set<TensorId> statistics_in(const Graph& graph) {
  std::set<TensorId> found;
  for (const Function& function : graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        if (operation.kind == "layer_norm" || operation.kind == "rms_norm" || operation.kind == "batch_norm_training") {
          found.insert(operation.outputs.begin() + 1, operation.outputs.end());
        }
      }
    }
  }
  return found;
}

/// "v" is Adam's mean of squares.
bool may_stay_float(const Tensor& tensor, bool half_state) {
  const bool squares_or_master = tensor.name.ends_with(".v") || tensor.name.ends_with(".master");
  return tensor.type.shape.empty() || (tensor.role == Role::kOptimizerState && (!half_state || squares_or_master)) ||
         tensor.role == Role::kBuffer || tensor.role == Role::kMetric || tensor.role == Role::kStream ||
         tensor.role == Role::kConstant;
}

/// Returns whether the tensor chooses experts, which rounding would change, or holds the ids of tokens as numbers.
bool decides(const std::string& name) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  return ends("decoder.input.numbers") || ends("decoder.input.clipped") ||
         (name.find(".block_sparse_moe.") != std::string::npos &&
          (ends(".gate") || ends(".probabilities") || ends(".best") || ends(".total.sum") || ends(".weights")));
}

/// The parameter is the model.
class HalfModel : public ::testing::TestWithParam<std::string> {};

TEST_P(HalfModel, KeepsInFloatWhatItMustOnly) {
  const Model model = *find_model(GetParam());
  for (const auto& [master, half_state] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
    proto::RunConfig job = half_config(2, 2);
    job.mutable_model()->set_name(model.name);
    job.mutable_model()->set_dropout(model.has_dropout ? 0.1F : 0.0F);
    set_optimizer(job, "adamw");
    job.mutable_training()->set_master_weights(master);
    job.mutable_training()->set_optimizer_precision(half_state ? "half" : "float");
    job.mutable_training()->set_gradient_accumulation(2);
    const auto options = compile_options(job, dataset_of(model));
    ASSERT_TRUE(options) << options.error().message;
    const auto graph = build_job(*options);
    ASSERT_TRUE(graph) << graph.error().message;
    const std::set<TensorId> statistics = statistics_in(*graph);

    std::int64_t halves = 0;
    for (std::uint32_t t = 0; t < graph->tensors().size(); ++t) {
      const Tensor& tensor = graph->tensors()[t];
      const bool stays = may_stay_float(tensor, half_state) || statistics.contains(TensorId{t}) || decides(tensor.name);
      if (tensor.type.data == DataType::kF32) {
        EXPECT_TRUE(stays) << tensor.name << " " << to_text(tensor.role);
      }
      if (tensor.type.data == DataType::kF16) {
        EXPECT_FALSE(stays) << tensor.name << " " << to_text(tensor.role);
        ++halves;
      }
    }
    EXPECT_GT(halves, 0);
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Model& model : all_models()) {
    names.push_back(model.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, HalfModel, ::testing::ValuesIn(model_names()), [](const auto& name) {
  std::string text = name.param;
  std::ranges::replace_if(
      text, [](char c) { return c == '-' || c == '.'; }, '_');
  return text;
});

TEST(HalfPrecision, FirstStepAgreesWithTheNaiveNetworkUpToRounding) {
  constexpr double kRate = 8;
  for (const bool master : {false, true}) {
    for (const char* partials : {"float", "half"}) {
      proto::RunConfig job = half_config(2, 3);
      job.mutable_model()->add_partials()->set_partials(partials);
      job.mutable_training()->set_master_weights(master);
      job.mutable_training()->set_loss_scaling(1024);
      job.mutable_training()->set_steps(1);
      set_optimizer(job, "sgd");
      // At this rate, weights move so far that their rounding is invisible.
      job.mutable_training()->set_learning_rate(kRate);
      proto::RunConfig nothing = job;
      nothing.mutable_training()->set_learning_rate(1e-30);
      const Outcome before = run(nothing);
      const Outcome after = run(job);

      const testing::NaiveCnn naive = testing::naive_step(before.records[0].tensors, 6);

      EXPECT_EQ(after.records[0].types.at("fc2.weight"), "f16");
      EXPECT_NEAR(after.records[0].steps[0].loss, naive.loss, 5e-3);
      for (const auto& [name, gradient] : naive.gradients) {
        const std::vector<float>& w0 = before.records[0].tensors.at(name);
        const std::vector<float>& w1 = after.records[0].tensors.at(name);
        double error = 0;
        double norm = 0;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          const double moved = (static_cast<double>(w0[i]) - static_cast<double>(w1[i])) / kRate;
          error += (moved - gradient[i]) * (moved - gradient[i]);
          norm += gradient[i] * gradient[i];
        }
        // A single unit near zero that falls on the other side of its relu can make up 5 % of a gradient.
        EXPECT_LT(std::sqrt(error), 0.12 * std::sqrt(norm)) << name << " partials " << partials;
      }
    }
  }
}

TEST(HalfPrecision, PartialSumsAreThoseOfTheNarrowestSetting) {
  const auto weights = [](const std::vector<std::pair<std::string, std::string>>& by_name,
                          const std::string& everywhere) {
    proto::RunConfig job = half_config(1, 4);
    job.mutable_model()->add_partials()->set_partials(everywhere);
    for (const auto& [operators, partials] : by_name) {
      proto::ProductSetting& setting = *job.mutable_model()->add_partials();
      setting.set_operators(operators);
      setting.set_partials(partials);
    }
    return run(job).records[0].tensors;
  };
  const auto halves = weights({}, "half");
  const auto floats = weights({}, "float");
  ASSERT_NE(halves, floats);
  EXPECT_EQ(weights({{".", "half"}}, "float"), halves);
  EXPECT_EQ(weights({{"^conv", "float"}, {"^fc", "float"}}, "half"), floats);
  const auto mixed = weights({{"^fc1$", "half"}}, "float");
  EXPECT_NE(mixed, halves);
  EXPECT_NE(mixed, floats);
}

TEST(StochasticRounding, IsOnlyOfStepsThatRound) {
  proto::RunConfig job = config(2, 4);
  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_stochastic_rounding(true);
  const auto program = compile(*compile_options(job, dataset()));
  ASSERT_TRUE(program) << program.error().message;
  std::size_t moves = 0;
  std::size_t rounding = 0;
  const auto count = [&](const auto& self, const auto& steps) -> void {
    for (const proto::Step& step : steps) {
      self(self, step.repeat().steps());
      const Operator* op = find_operator(step.execute().operation());
      const bool rounds = step.execute().attributes().find("stochastic=") != std::string::npos;
      if (op != nullptr && op->view != nullptr) {
        EXPECT_FALSE(rounds) << step.execute().name() << " only moves numbers";
        ++moves;
      }
      rounding += rounds ? 1U : 0U;
    }
  };
  for (const proto::Function& function : program->functions()) {
    count(count, function.steps());
  }
  EXPECT_GE(moves, 1U);
  EXPECT_GE(rounding, 8U);
}

TEST(HalfPrecision, GivesEveryReplicaTheSameWeights) {
  for (const bool stochastic : {false, true}) {
    proto::RunConfig job = half_config(3, 4);
    job.mutable_training()->set_stochastic_rounding(stochastic);
    job.mutable_training()->set_gradient_accumulation(2);
    proto::RunConfig poisoned = job;
    poisoned.mutable_memory()->set_poison_dead(true);

    const Outcome outcome = run(job);

    EXPECT_EQ(outcome.records[0].tensors, outcome.records[2].tensors);
    EXPECT_EQ(outcome.records[0].tensors, run(poisoned).records[1].tensors);
  }
}

TEST(HalfPrecision, MasterWeightsKeepSmallUpdates) {
  // Updates far below the distance of halves at 1 are lost without a master copy and kept with one.
  const auto moved = [](bool master) {
    proto::RunConfig job = half_config(1, 8);
    job.mutable_training()->set_master_weights(master);
    set_optimizer(job, "sgd");
    job.mutable_training()->set_learning_rate(2e-4);
    job.mutable_training()->set_steps(40);
    proto::RunConfig start = job;
    start.mutable_training()->set_steps(1);
    start.mutable_training()->set_learning_rate(1e-30);
    const auto before = run(start).records[0].tensors;
    const auto after = run(job).records[0].tensors;
    std::size_t count = 0;
    for (std::size_t i = 0; i < before.at("fc2.weight").size(); ++i) {
      count += before.at("fc2.weight")[i] != after.at("fc2.weight")[i] ? 1U : 0U;
    }
    return count;
  };

  EXPECT_GT(moved(true), 2 * moved(false));
}

/// Returns gpt2 on the first bytes of the made-up images as tokens; `kept`, if given, fills its attention mask.
testing::Forward tiny_gpt2(std::optional<double> kept) {
  return [kept](Builder& builder, const std::vector<TensorId>& inputs, bool training) {
    const Attributes to_integers{{"to", std::string{"i32"}}};
    const std::int64_t B = builder.type(inputs[0]).shape[0];
    const auto named = [&](const char* name) { return (training ? "train/" : "evaluate/") + std::string{name}; };
    const TensorId bytes = builder.add_one(
        "reshape", {inputs[0]}, {{"shape", Shape{B, 784}}, {"layout", std::string{"row-major"}}}, named("bytes"));
    const TensorId first = builder.add_one(
        "slice", {bytes}, {{"axis", std::int64_t{1}}, {"begin", std::int64_t{0}}, {"count", std::int64_t{6}}},
        named("first"));
    const TensorId tokens = builder.add_one("cast", {first}, to_integers, named("tokens"));
    ModelInputs given;
    given.names = {"tokens", "labels"};
    given.tensors = {tokens, tokens};
    given.training = training;
    if (kept) {
      const TensorId mask = builder.add_one("fill", {}, {{"shape", Shape{B, 6}}, {"value", *kept}}, named("mask"));
      given.names.push_back("attention_mask");
      given.tensors.push_back(builder.add_one("cast", {mask}, to_integers, named("kept")));
    }
    const Model model = *find_model("gpt2");
    given.sizes =
        *sizes_of(model, {{"layers", 2}, {"hidden", 16}, {"heads", 2}, {"vocabulary", 256}, {"sequence-length", 6}});
    return model.build(builder, given);
  };
}

TEST(HalfPrecision, MasksOfAttentionStayFinite) {
  // Above the diagonal, the two masks add up. With 0.0, every token is masked.
  for (const auto kept : {std::optional<double>{}, std::optional{1.0}, std::optional{0.0}}) {
    double loss = 0;
    for (const std::string precision : {"float", "half"}) {
      proto::RunConfig job = half_config(1, 4);
      job.mutable_model()->set_precision(precision);
      job.mutable_training()->set_learning_rate(0.01);

      const Outcome outcome = run(job, {}, testing::kToTheEnd, tiny_gpt2(kept));

      ASSERT_EQ(outcome.records[0].steps.size(), 3U) << precision << " " << kept.value_or(-1);
      const double now = outcome.records[0].steps[2].loss;
      EXPECT_NEAR(now, precision == "half" ? loss : now, 0.01);
      loss = now;
    }
  }
}

TEST(HalfPrecision, AutomaticLossScaleSkipsStepsThatOverflow) {
  proto::RunConfig job = half_config(2, 4);
  job.mutable_training()->set_loss_scaling(0);
  job.mutable_training()->set_learning_rate(0.02 / 64);
  job.mutable_training()->set_steps(40);

  const Outcome outcome =
      run(job, {}, testing::kToTheEnd,
          [options = *compile_options(job, dataset())](Builder& builder, const std::vector<TensorId>& inputs, bool t) {
            ModelOutputs outputs = options.forward(builder, inputs, t);
            // 2^12 times 2^6 is beyond the largest half.
            outputs.loss = builder.add_one(
                "mul", {outputs.loss, builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", 64.0}}, "large")}, {},
                "large-loss");
            return outputs;
          });

  EXPECT_GT(outcome.results[0].skipped_steps, 0U);
  EXPECT_LT(outcome.results[0].loss_scale, LossScale::kFirst);
  EXPECT_EQ(outcome.results[0].skipped_steps, outcome.results[1].skipped_steps);
  EXPECT_EQ(outcome.records[0].tensors, outcome.records[1].tensors);
  EXPECT_LT(outcome.records[0].steps.back().loss, 0.7 * outcome.records[0].steps.front().loss);
}

}  // namespace
}  // namespace poprun::half_precision_test
