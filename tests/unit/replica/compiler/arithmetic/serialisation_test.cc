/// Serialised dense layers and embeddings: values in slices match a second implementation in double, and gradients
/// match its differences.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/passes.h"
#include "replica/machine/machine.h"
#include "tests/unit/replica/graph_runner.h"

namespace poprun::serialisation_test {
namespace {

using testing::GraphRunner;
using ::testing::HasSubstr;

constexpr std::int64_t kRows = 3;        ///< Tokens.
constexpr std::int64_t kVocabulary = 7;  ///< Rows of the table, which slices of 3 cut into 3, 3 and 1.
constexpr std::int64_t kHidden = 4;
constexpr std::array<std::int32_t, kRows> kTokens = {6, 2, -7};
constexpr std::array<std::int32_t, kRows> kLabels = {3, -1, 5};  ///< The second does not count.

struct TinyModel {
  bool tied = true;            ///< Whether the projection uses the table of the embedding.
  bool cross_entropy = false;  ///< Whether the loss is the cross-entropy with kLabels, not the sum of squares.
};

TensorType f32(Shape shape) {
  return {DataType::kF32, std::move(shape), Layout::kRowMajor};
}

/// A job that projects embedding(tokens) v^T to y with the tied table w and a bias; the loss is the sum of y^2. Without
/// `tied`, the projection has a separate table, stored by input channels.
CompileOptions options_of(const TinyModel& model) {
  CompileOptions options;
  options.model = "tiny";
  options.device = *find_device("mk2");
  options.inputs = {{"tokens", {DataType::kI32, {kRows}, {}}}, {"labels", {DataType::kI32, {kRows}, {}}}};
  options.optimizer.name = "sgd";
  options.evaluate = false;
  options.forward = [model](Builder& builder, const std::vector<TensorId>& inputs, bool) {
    const auto parameter = [&](const std::string& name, Shape shape) {
      return builder.variable(name, f32(std::move(shape)), Role::kParameter, {});
    };
    const TensorId w = parameter("w", {kVocabulary, kHidden});
    const TensorId v = parameter("v", {kHidden, kHidden});
    const TensorId b = parameter("b", {kVocabulary});
    const TensorId e = builder.add_one("gather", {w, inputs[0]}, {{"axis", std::int64_t{0}}}, "embedded");
    const TensorId h = builder.add_one("matmul", {e, v}, {{"transpose_b", std::int64_t{1}}}, "mixed");
    const TensorId y = model.tied ? builder.add_one("linear", {h, w, b}, {}, "head")
                                  : builder.add_one("linear", {h, parameter("u", {kHidden, kVocabulary}), b},
                                                    {{"input_major", std::int64_t{1}}}, "head");
    if (model.cross_entropy) {
      const auto found = builder.add("softmax_cross_entropy", {y, inputs[1]}, {}, {"loss", "correct", "count"});
      return ModelOutputs{.loss = found[0], .correct = found[1], .count = found[2]};
    }
    const TensorId z = builder.add_one("mul", {y, y}, {}, "squares");
    ModelOutputs outputs;
    outputs.loss = builder.add_one("sum_to", {z}, {{"shape", Shape{}}, {"layout", "row-major"}}, "loss");
    outputs.scored = false;
    return outputs;
  };
  return options;
}

struct Weights {
  std::vector<double> w, v, b, u;
};

Weights weights() {
  const auto made = [](std::int64_t n, double phase) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < n; ++i) {
      values.push_back(static_cast<float>(std::sin(static_cast<double>(i) * 1.7 + phase)));
    }
    return values;
  };
  return {made(kVocabulary * kHidden, 0), made(kHidden * kHidden, 1), made(kVocabulary, 2),
          made(kHidden * kVocabulary, 3)};
}

double loss_of(const Weights& p, const TinyModel& model) {
  double loss = 0;
  for (std::size_t n = 0; n < kRows; ++n) {
    const std::int32_t token = kTokens.at(n);
    std::vector<double> outputs;
    const std::int64_t row = token < 0 ? token + kVocabulary : token;
    for (std::int64_t o = 0; o < kVocabulary; ++o) {
      double y = p.b[static_cast<std::size_t>(o)];
      for (std::int64_t i = 0; i < kHidden; ++i) {
        double h = 0;
        for (std::int64_t j = 0; j < kHidden; ++j) {
          h += p.w[static_cast<std::size_t>(row * kHidden + j)] * p.v[static_cast<std::size_t>(i * kHidden + j)];
        }
        y += h * (model.tied ? p.w[static_cast<std::size_t>(o * kHidden + i)]
                             : p.u[static_cast<std::size_t>(i * kVocabulary + o)]);
      }
      outputs.push_back(y);
      loss += model.cross_entropy ? 0 : y * y;
    }
    if (model.cross_entropy && kLabels.at(n) >= 0) {
      double sum = 0;
      std::ranges::for_each(outputs, [&sum](double y) { sum += std::exp(y); });
      loss += (std::log(sum) - outputs[static_cast<std::size_t>(kLabels.at(n))]) / 2;  // Two labels count.
    }
  }
  return loss;
}

/// Returns the gradient with respect to one group of weights, by central differences.
std::vector<double> slope(std::vector<double> Weights::*group, const TinyModel& model) {
  std::vector<double> slopes;
  for (std::size_t i = 0; i < (weights().*group).size(); ++i) {
    Weights up = weights();
    Weights down = weights();
    (up.*group)[i] += 1e-4;
    (down.*group)[i] -= 1e-4;
    slopes.push_back((loss_of(up, model) - loss_of(down, model)) / 2e-4);
  }
  return slopes;
}

struct Computed {
  Job job;
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;  ///< Sums over all uses of a weight.
};

/// Runs the forward and backward pass of the job as the pass "slices" leaves it.
Computed compute(const CompileOptions& options) {
  Result<Job> job = run_passes(options, "slices");
  EXPECT_TRUE(job) << job.error().message;
  Computed computed{*job, 0, {}};
  const Graph& graph = computed.job.graph;
  GraphRunner runner(graph);
  const Weights given = weights();
  for (const auto& [name, values] : {std::pair{"w", given.w}, {"v", given.v}, {"b", given.b}, {"u", given.u}}) {
    if (graph.has(name)) {
      std::ranges::transform(values, runner.floats(graph.find(name)).begin(),
                             [](double x) { return static_cast<float>(x); });
    }
  }
  std::memcpy(runner.bytes(graph.find("tokens")), kTokens.data(), sizeof kTokens);
  std::memcpy(runner.bytes(graph.find("labels")), kLabels.data(), sizeof kLabels);
  for (const Operation& operation : graph.at(computed.job.training->micro_batch).operations) {
    if (find_machine_operation(operation.kind) == nullptr) {
      runner.run(operation);
    }
  }
  computed.loss = runner.floats(graph.find("loss"))[0];
  for (const ParameterGradient& pair : computed.job.training->gradients) {
    const auto values = runner.floats(pair.gradient);
    std::vector<double>& sum = computed.gradients[graph.tensor(pair.parameter).name];
    sum.resize(values.size());
    std::ranges::transform(values, sum, sum.begin(), std::plus<>{});
  }
  return computed;
}

std::int64_t count(const Job& job, std::string_view kind) {
  return std::ranges::count(job.graph.at(job.training->micro_batch).operations, kind, &Operation::kind);
}

void expect_right(const Computed& computed, const TinyModel& model) {
  EXPECT_NEAR(computed.loss, loss_of(weights(), model), 1e-4);
  for (const auto& [name, group] : {std::pair{"w", &Weights::w}, {"v", &Weights::v}, {"b", &Weights::b}}) {
    const std::vector<double> wanted = slope(group, model);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(computed.gradients.at(name).at(i), wanted[i], 2e-4 * (1 + std::abs(wanted[i]))) << name << " " << i;
    }
  }
}

TEST(Serialisation, OfATiedEmbeddingGivesTheLossAndItsSlopes) {
  CompileOptions options = options_of({});
  options.serialisation.embedding = 3;

  const Computed computed = compute(options);

  expect_right(computed, {});
  EXPECT_EQ(count(computed.job, "linear"), 3);
  EXPECT_EQ(count(computed.job, "linear_weight_gradient"), 3 + 1);  // The last one is v's.
  EXPECT_EQ(count(computed.job, "linear_input_gradient"), 3);
  EXPECT_EQ(count(computed.job, "gather"), 1);
  EXPECT_EQ(count(computed.job, "gather_gradient"), 3);
}

TEST(Serialisation, OfChosenMatmulsGivesTheLossAndItsSlopes) {
  CompileOptions options = options_of({.tied = false});
  options.serialisation.matmuls = {{"head=2", "^head$", 2}, {"mixed=4", "^mixed$", 4}};

  const Computed computed = compute(options);

  expect_right(computed, {.tied = false});
  EXPECT_EQ(count(computed.job, "linear"), 2 + 4);
  EXPECT_EQ(count(computed.job, "gather_gradient"), 1);
  EXPECT_EQ(computed.gradients.at("u").size(), std::size_t{kHidden * kVocabulary});
}

TEST(Serialisation, OfTheSequenceGivesTheLossAndItsSlopes) {
  CompileOptions options = options_of({.tied = false});
  options.serialisation.sequence = {{"head=2", "^head$", 2}, {"mixed=3", "^mixed$", 3}};

  const Computed computed = compute(options);

  expect_right(computed, {.tied = false});
  EXPECT_EQ(count(computed.job, "linear"), 2 + 3);
  EXPECT_EQ(count(computed.job, "linear_weight_gradient"), 2 + 3);
  EXPECT_EQ(count(computed.job, "softmax_cross_entropy"), 0);
}

TEST(Serialisation, OfTheSequenceCutsTheLossToo) {
  for (const bool tied : {false, true}) {
    const TinyModel model{tied, true};
    CompileOptions options = options_of(model);
    options.serialisation.sequence = {{"head=2", "^head$", 2}};
    options.serialisation.embedding = tied ? 3 : 1;

    const Computed computed = compute(options);

    expect_right(computed, model);
    EXPECT_EQ(count(computed.job, "softmax_cross_entropy_gradient"), 2);
    EXPECT_EQ(count(computed.job, "linear"), tied ? 2 * 3 : 2);
  }
}

TEST(Serialisation, OfTheSequenceMustLeaveNoSliceOutAndPutEachInItsPlace) {
  CompileOptions options = options_of({.cross_entropy = true});
  options.serialisation.sequence = {{"head=2", "head", 2}, {"mixed=3", "mixed", 3}};
  const Result<Job> before = run_passes(options, "products");
  const Result<Job> after = run_passes(options, "sequence-slices");
  ASSERT_TRUE(before && after);
  const Pass& pass = *std::ranges::find(all_passes(), "sequence-slices", &Pass::name);
  ASSERT_TRUE(pass.verify(options, *before, *after));
  const auto verdict = [&](const std::function<void(std::vector<Operation>&)>& damage) {
    Job job = *after;
    damage(job.graph.at(job.training->micro_batch).operations);
    const Status status = pass.verify(options, *before, job);
    return status ? "" : status.error().message;
  };
  const auto number = [](std::vector<Operation>& all, std::string_view kind, int k) -> Operation& {
    return *std::ranges::find_if(all, [&](const Operation& o) { return o.kind == kind && k-- == 0; });
  };

  EXPECT_THAT(verdict([&](auto& all) { number(all, "slice", 0).attributes.set("begin", std::int64_t{1}); }),
              HasSubstr("'mixed' is neither what it was nor the join of its slices"));
  EXPECT_THAT(verdict([&](auto& all) { number(all, "concat", 0).inputs.pop_back(); }), HasSubstr("'mixed'"));
  EXPECT_THAT(verdict([&](auto& all) { number(all, "join_losses", 0).inputs.resize(3); }), HasSubstr("'loss'"));
  EXPECT_THAT(verdict([&](auto& all) {
                number(all, "softmax_cross_entropy", 1).inputs[1] = number(all, "softmax_cross_entropy", 0).inputs[1];
              }),
              HasSubstr("'loss'"));
}

TEST(Serialisation, OfOneOutputAtATimeGivesTheLossAndItsSlopes) {
  CompileOptions options = options_of({});
  options.serialisation.embedding = kVocabulary;

  expect_right(compute(options), {});
}

TEST(Serialisation, ByTheLastOfSeveralSettings) {
  CompileOptions options = options_of({});
  options.serialisation.embedding = 3;
  options.serialisation.matmuls = {{"head=2", "head", 2}, {"head=1", "head", 1}};

  const Computed computed = compute(options);

  expect_right(computed, {});
  EXPECT_EQ(count(computed.job, "linear"), 1);
  EXPECT_EQ(count(computed.job, "gather_gradient"), 3);
}

TEST(Serialisation, AccumulatesEachSliceWhereItIsMade) {
  CompileOptions options = options_of({});
  options.serialisation.embedding = 3;
  options.gradient_accumulation = 2;

  const Result<Job> job = run_passes(options, "accumulation");

  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(count(*job, "concat"), 0);
  const auto& update = job->graph.at(job->training->update).operations;
  EXPECT_EQ(std::ranges::count(update, "concat", &Operation::kind), 3);  // w twice, b.
  EXPECT_EQ(std::ranges::count_if(job->graph.tensors(),
                                  [](const Tensor& t) {
                                    return t.name.find(".accumulator.") != std::string::npos &&
                                           t.name.find("slice") != std::string::npos;
                                  }),
            9);
}

std::string refusal(const std::function<void(CompileOptions&)>& change) {
  CompileOptions options = options_of({});
  change(options);
  const auto job = run_passes(options, "serialisation");
  return job ? "" : job.error().message;
}

TEST(Serialisation, IsRefusedWhereThereIsNothingToCut) {
  EXPECT_THAT(refusal([](CompileOptions& o) { o.serialisation.embedding = 8; }),
              HasSubstr("'w' has 7 rows; use at most that many slices"));
  EXPECT_THAT(refusal([](CompileOptions& o) {
                o.serialisation.matmuls = {{"haed=2", "haed", 2}};
              }),
              HasSubstr("no dense layer in the model has a matching name; did you mean head?"));
  EXPECT_THAT(refusal([](CompileOptions& o) {
                o.serialisation.matmuls = {{"mixed=5", "mixed", 5}};
              }),
              HasSubstr("'mixed' has 4 output channels; use at most that many slices"));
  EXPECT_THAT(refusal([](CompileOptions& o) {
                o.serialisation.sequence = {{"mixed=4", "mixed", 4}};
              }),
              HasSubstr("model.serialised-sequence: mixed=4: 'mixed' has 3 positions; use at most that many slices"));
}

/// Returns the verdict of the verifier of "slices" after `damage`.
std::string verdict_on(const std::function<void(Graph&, std::vector<Operation>&)>& damage) {
  CompileOptions options = options_of({});
  options.serialisation.embedding = 3;
  const Result<Job> before = run_passes(options, "differentiation");
  Job job = *before;
  const Pass& pass = *std::ranges::find(all_passes(), "slices", &Pass::name);
  EXPECT_TRUE(pass.run(options, job));
  EXPECT_TRUE(pass.verify(options, *before, job));
  damage(job.graph, job.graph.at(job.training->micro_batch).operations);
  const Status status = pass.verify(options, *before, job);
  return status ? "" : status.error().message;
}

Operation& find(std::vector<Operation>& operations, std::string_view kind, int number) {
  for (Operation& operation : operations) {
    if (operation.kind == kind && number-- == 0) {
      return operation;
    }
  }
  ADD_FAILURE() << "no " << kind;
  return operations.front();
}

TEST(Serialisation, MustLeaveNoSliceOutAndPutEachInItsPlace) {
  EXPECT_THAT(verdict_on([](Graph&, std::vector<Operation>& all) {
                find(all, "insert", 0).attributes.set("begin", std::int64_t{2});
              }),
              HasSubstr("'head' has a slice at the wrong offset"));
  EXPECT_THAT(verdict_on([](Graph&, std::vector<Operation>& all) {
                find(all, "add", 1).inputs[1] = find(all, "linear_input_gradient", 0).outputs[0];
              }),
              HasSubstr("does not consist of all its slices"));
  EXPECT_THAT(verdict_on([](Graph&, std::vector<Operation>& all) {
                Operation& join = find(all, "concat", 0);
                std::swap(join.inputs[0], join.inputs[1]);
              }),
              HasSubstr("does not consist of all its slices"));
  EXPECT_THAT(verdict_on([](Graph&, std::vector<Operation>& all) {
                Operation& product = find(all, "linear_input_gradient", 1);
                product.inputs[1] = find(all, "linear_input_gradient", 0).inputs[1];
              }),
              HasSubstr("multiplies different slices"));
  EXPECT_THAT(verdict_on([](Graph&, std::vector<Operation>& all) {
                find(all, "gather_gradient", 1).attributes.set("begin", std::int64_t{0});
              }),
              HasSubstr("does not consist of all its slices"));
}

}  // namespace
}  // namespace poprun::serialisation_test
