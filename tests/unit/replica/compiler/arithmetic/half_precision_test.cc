/// Half precision: stored values are float16, and computed values are correct up to rounding.

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/base/half.h"
#include "replica/engine/value_judge.h"
#include "replica/loops/host_scalars.h"
#include "replica/models/layers/model.h"
#include "replica/ops/half/half_kernel.h"
#include "replica/program/timeline.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/naive_cnn.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::half_precision_test {
namespace {

using testing::config;
using testing::dataset;
using testing::dataset_of;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run;
using testing::set_optimizer;

/// One use of an operator, on its own tensors.
class Use {
 public:
  Use(std::string kind, std::vector<TensorType> inputs, std::vector<TensorType> outputs, Attributes attributes)
      : signature_{std::move(inputs), std::move(outputs), std::move(attributes)},
        kernel_(prepare_kernel(*find_operator(kind), signature_)) {
    for (const TensorType& type : signature_.inputs) {
      inputs_.push_back(buffer(type.bytes()));
      operands_.inputs.push_back(inputs_.back().get()->bytes);
    }
    for (const TensorType& type : signature_.outputs) {
      outputs_.push_back(buffer(type.bytes()));
      operands_.outputs.push_back(outputs_.back().get()->bytes);
    }
    scratch_ = buffer(kernel_->scratch());
    operands_.scratch = scratch_.get()->bytes;
    operands_.moment = &moment;
  }

  /// Makes output `k` an in-place update of input `i`.
  void update_in_place(std::size_t k, std::size_t i) { operands_.outputs[k] = inputs_[i].get()->bytes; }

  void run() { kernel_->run(operands_); }

  void set_input(std::size_t i, const std::vector<float>& values) {
    for (std::size_t e = 0; e < values.size(); ++e) {
      put(inputs_[i].get()->bytes, signature_.inputs[i].data, e, values[e]);
    }
  }
  [[nodiscard]] double output(std::size_t k, std::size_t e) const {
    return get(operands_.outputs[k], signature_.outputs[k].data, e);
  }
  [[nodiscard]] double input(std::size_t i, std::size_t e) const {
    return get(operands_.inputs[i], signature_.inputs[i].data, e);
  }

  Moment moment{.seed = 1, .step = 2, .micro_batch = 3, .replica = 4};

 private:
  struct Lines {
    std::byte* bytes;
    ~Lines() { ::operator delete (bytes, std::align_val_t{64}); }
  };
  static std::unique_ptr<Lines> buffer(Bytes size) {
    const auto bytes = static_cast<std::size_t>(size.count()) + 64;
    return std::make_unique<Lines>(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
  }
  static void put(std::byte* to, DataType type, std::size_t e, float value) {
    if (type == DataType::kF16) {
      const Half half = to_half(value);
      std::memcpy(to + 2 * e, &half, 2);
    } else {
      std::memcpy(to + 4 * e, &value, 4);
    }
  }
  static double get(const std::byte* from, DataType type, std::size_t e) {
    Half half = 0;
    float value = 0;
    std::memcpy(&half, from + 2 * e, 2);
    if (type != DataType::kF16) {
      std::memcpy(&value, from + 4 * e, 4);
    }
    return static_cast<double>(type == DataType::kF16 ? to_float(half) : value);
  }

  Signature signature_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<std::unique_ptr<Lines>> inputs_;
  std::vector<std::unique_ptr<Lines>> outputs_;
  std::unique_ptr<Lines> scratch_;
  Operands operands_;
};

TensorType f16(Shape shape, Layout layout = Layout::kRowMajor) {
  return {DataType::kF16, std::move(shape), layout};
}
TensorType f32(Shape shape) {
  return {DataType::kF32, std::move(shape), Layout::kRowMajor};
}

std::vector<float> random_halves(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return to_float(to_half(uniform(random))); });
  return values;
}

/// Rounds a double to half through float. The second rounding matters only halfway between two halves.
double rounded(double value) {
  return static_cast<double>(to_float(to_half(static_cast<float>(value))));
}

/// Returns the distance between neighbouring halves at a value.
double step_at(double value) {
  return std::ldexp(1.0, std::max(std::ilogb(std::max(std::abs(value), 1e-9)), -14) - 10);
}

TEST(HalfKernel, ComputesInFloatAndRoundsOnce) {
  constexpr std::size_t kRows = 3;
  constexpr std::size_t kIn = 96;
  constexpr std::size_t kOut = 5;
  Use use("linear", {f16({kRows, kIn}), f16({kOut, kIn}), f16({kOut})}, {f16({kRows, kOut})}, {});
  const auto x = random_halves(kRows * kIn, 1);
  const auto w = random_halves(kOut * kIn, 2);
  const auto b = random_halves(kOut, 3);
  use.set_input(0, x);
  use.set_input(1, w);
  use.set_input(2, b);

  use.run();

  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t o = 0; o < kOut; ++o) {
      double sum = static_cast<double>(b[o]);
      for (std::size_t i = 0; i < kIn; ++i) {
        sum += static_cast<double>(x[r * kIn + i]) * static_cast<double>(w[o * kIn + i]);
      }
      EXPECT_NEAR(use.output(0, r * kOut + o), sum, 0.51 * step_at(sum));
    }
  }
}

/// Returns a sum over channels in kPartials pieces: each piece is rounded, and so is their sum.
double sum_of_rounded_pieces(const std::vector<double>& products, double once) {
  const auto size = static_cast<std::int64_t>(products.size());
  double sum = 0;
  for (std::int64_t p = 0; p < kPartials; ++p) {
    double piece = p == 0 ? once : 0;
    for (std::int64_t i = size * p / kPartials; i < size * (p + 1) / kPartials; ++i) {
      piece += products[static_cast<std::size_t>(i)];
    }
    sum += rounded(piece);
  }
  return rounded(sum);
}

TEST(HalfKernel, RoundsPartialSumsOfTheInputChannelsWhereAsked) {
  constexpr std::size_t kIn = 99;
  const auto x = random_halves(kIn, 4);
  const auto w = random_halves(kIn, 5);
  std::vector<double> products;
  for (std::size_t i = 0; i < kIn; ++i) {
    // Large pieces nearly cancel, so that their rounding is visible.
    const double sign = i < kIn / 2 ? 1 : -1;
    products.push_back(40 * sign * std::abs(static_cast<double>(x[i])) * std::abs(static_cast<double>(w[i])));
  }
  const auto run = [&](const Attributes& attributes) {
    Use use("linear", {f16({1, kIn}), f16({1, kIn}), f16({1})}, {f16({1, 1})}, attributes);
    std::vector<float> xs(kIn);
    std::vector<float> ws(kIn);
    for (std::size_t i = 0; i < kIn; ++i) {
      xs[i] = std::abs(x[i]) * (i < kIn / 2 ? 1.0F : -1.0F);
      ws[i] = 40 * std::abs(w[i]);
    }
    use.set_input(0, xs);
    use.set_input(1, ws);
    use.set_input(2, {0.5F});
    for (std::size_t i = 0; i < kIn; ++i) {
      products[i] = use.input(0, i) * use.input(1, i);
    }
    use.run();
    return use.output(0, 0);
  };

  const double whole = run({});
  const double pieces = run({{"partials", std::string{"half"}}});

  EXPECT_EQ(pieces, sum_of_rounded_pieces(products, 0.5));
  EXPECT_NE(pieces, whole);
  EXPECT_NEAR(pieces, whole, kPartials * step_at(40.0 * kIn / 4));
}

TEST(HalfKernel, CutsTheChannelsOfImages) {
  // With one pixel, a channels-last image is just its channels, and a convolution is a dense layer.
  constexpr std::int64_t kIn = 70;
  const TensorType image = f16({1, kIn, 1, 1}, Layout::kChannelsLast);
  const TensorType out = f16({1, 2, 1, 1}, Layout::kChannelsLast);
  Attributes attributes{{"stride", std::vector<std::int64_t>{1, 1}},
                        {"pad", std::vector<std::int64_t>{0, 0, 0, 0}},
                        {"dilation", std::vector<std::int64_t>{1, 1}},
                        {"groups", std::int64_t{1}},
                        {"partials", std::string{"half"}}};
  Use use("conv2d", {image, f16({2, kIn, 1, 1}), f16({2})}, {out}, attributes);
  const auto x = random_halves(kIn, 6);
  const auto w = random_halves(2 * kIn, 7);
  use.set_input(0, x);
  use.set_input(1, w);
  use.set_input(2, {0.25F, -3});

  use.run();

  for (std::size_t o = 0; o < 2; ++o) {
    std::vector<double> products;
    for (std::size_t i = 0; i < kIn; ++i) {
      products.push_back(static_cast<double>(x[i]) * static_cast<double>(w[o * kIn + i]));
    }
    EXPECT_EQ(use.output(0, o), sum_of_rounded_pieces(products, o == 0 ? 0.25 : -3.0)) << o;
  }
}

TEST(HalfKernel, UpdatesInPlace) {
  Use use("sgd", {f16({3}), f16({3}), f32({})}, {f16({3})}, {{"scale", 0.5}, {"weight_decay", 0.0}});
  use.update_in_place(0, 0);
  use.set_input(0, {1, 2, -3});
  use.set_input(1, {0.5F, -1, 4});
  use.set_input(2, {0.25F});

  use.run();

  EXPECT_EQ(use.input(0, 0), 1 - 0.25 * 0.5 * 0.5);
  EXPECT_EQ(use.input(0, 1), 2 + 0.25 * 0.5);
  EXPECT_EQ(use.input(0, 2), -3.5);
}

TEST(HalfKernel, RoundsAtRandomByNameStepAndElement) {
  constexpr std::int64_t kCount = 4000;
  const auto draw = [](std::uint64_t step, std::uint32_t replica, const std::string& name) {
    Use use("assign", {f16({kCount}), f32({kCount})}, {f16({kCount})}, {{"stochastic", name}});
    use.update_in_place(0, 0);
    use.set_input(1, std::vector<float>(kCount, 1.0F + 0.25F * 0x1p-10F));
    use.moment.step = step;
    use.moment.replica = replica;
    use.run();
    std::vector<double> drawn;
    for (std::size_t e = 0; e < kCount; ++e) {
      drawn.push_back(use.output(0, e));
    }
    return drawn;
  };

  const auto first = draw(7, 0, "w");

  double mean = 0;
  for (const double value : first) {
    EXPECT_TRUE(value == 1 || value == 1 + 0x1p-10);
    mean += value / kCount;
  }
  // A quarter of the values is rounded up: 1,000 of 4,000, with a standard deviation of 27.
  EXPECT_NEAR((mean - 1) / 0x1p-10, 0.25, 0.03);
  EXPECT_EQ(first, draw(7, 5, "w")) << "the same on every replica";
  EXPECT_NE(first, draw(8, 0, "w"));
  EXPECT_NE(first, draw(7, 0, "v"));
}

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

TEST(LossScale, HalvesAfterAnOverflowAndDoublesAfterManyGoodSteps) {
  LossScale scale;
  scale.after_step(false);
  EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
  for (std::uint64_t k = 0; k < LossScale::kGrowthInterval; ++k) {
    EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
    scale.after_step(true);
  }
  EXPECT_EQ(scale.value(), LossScale::kFirst);
  EXPECT_EQ(scale.skipped(), 1U);
  for (int k = 0; k < 20; ++k) {
    scale.after_step(false);
  }
  EXPECT_EQ(scale.value(), LossScale::kLeast);
  EXPECT_FALSE(scale.can_fall());
}

TEST(Finite, FindsTheFirstNumberThatIsNone) {
  std::vector<float> values(100, 1.5F);
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_FALSE(find_not_finite(f32({100}), bytes));
  values[70] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(find_not_finite(f32({100}), bytes)->what, "infinity");
  EXPECT_EQ(find_not_finite(f32({100}), bytes)->element, 70);
  values[80] = std::nanf("");
  EXPECT_EQ(find_not_finite(f32({100}), bytes)->what, "NaN") << "the worse of the two";
  EXPECT_EQ(find_not_finite(f32({100}), bytes)->element, 80);
  std::vector<Half> halves(33, 0x7BFF);
  EXPECT_FALSE(find_not_finite(f16({33}), std::as_bytes(std::span(halves))));
  halves[32] = 0xFC00;
  EXPECT_EQ(find_not_finite(f16({33}), std::as_bytes(std::span(halves)))->element, 32);
}

TEST(Finite, AnExtremeIsAnInfinityOrTheLargestNumberThereIs) {
  const auto extreme = [](float value, DataType result) {
    const std::vector<float> values = {1.0F, value, -2.0F};
    return has_extreme(f32({3}), std::as_bytes(std::span(values)), result);
  };
  EXPECT_TRUE(extreme(-std::numeric_limits<float>::infinity(), DataType::kF32));
  EXPECT_TRUE(extreme(std::numeric_limits<float>::lowest(), DataType::kF32));
  EXPECT_FALSE(extreme(-3.4e38F, DataType::kF32));
  EXPECT_TRUE(extreme(-65504.0F, DataType::kF16));
  EXPECT_FALSE(extreme(-65503.0F, DataType::kF16));
  EXPECT_FALSE(extreme(65504.0F, DataType::kF32));
  const std::vector<Half> halves = {0x0001, 0xFBFF};
  EXPECT_TRUE(has_extreme(f16({2}), std::as_bytes(std::span(halves)), DataType::kF32));
  EXPECT_FALSE(has_extreme(f16({1}), std::as_bytes(std::span(halves)), DataType::kF16));
}

/// Returns the error that ends a job with one replica.
Error failure_of(const proto::RunConfig& job) {
  const auto program = compile(*compile_options(job, dataset()));
  EXPECT_TRUE(program);
  const auto training = training_options(job, dataset());
  auto world = LocalWorld::create({.replicas = 1});
  testing::Progress progress;
  const HostWeights weights;
  TrainingLoop loop(*program, *training,
                    {.communicator = (*world)->communicator(ReplicaId{0}),
                     .progress = progress,
                     .reporter = nullptr,
                     .initial_weights = weights,
                     .streams = [](JobStream /*stream*/, std::uint64_t /*first*/) {
                       return std::make_unique<testing::SampleStream>(0, 64, 0, 1, 4);
                     }});
  const auto result = loop.run();
  EXPECT_FALSE(result);
  return result ? Error{} : result.error();
}

TEST(Finite, StopsTheJobWithOperatorTensorStepAndReplica) {
  proto::RunConfig job = half_config(1, 4);
  job.mutable_training()->set_loss_scaling(1e6);

  const Error error = failure_of(job);

  EXPECT_EQ(error.code, ErrorCode::kData);
  EXPECT_THAT(error.message, HasSubstr("infinity in element"));
  EXPECT_THAT(error.message, HasSubstr("produced by softmax_cross_entropy_gradient in step 1 on replica 0"));
}

TEST(Finite, WeightsThatAnUpdateSpoiledAreNamedByWhoReadsThem) {
  proto::RunConfig job = config(1, 4);
  job.mutable_training()->set_learning_rate(1e38);
  set_optimizer(job, "momentum", {{"momentum", 0}});
  job.mutable_training()->set_weight_decay(1e6);

  EXPECT_THAT(failure_of(job).message, HasSubstr("read by conv2d in step 2 on replica 0"));

  job.mutable_training()->set_steps(1);
  job.mutable_training()->set_evaluate(false);
  EXPECT_THAT(failure_of(job).message, HasSubstr("'conv1.bias' f32[32], read by the host in step"));
}

}  // namespace
}  // namespace poprun::half_precision_test
