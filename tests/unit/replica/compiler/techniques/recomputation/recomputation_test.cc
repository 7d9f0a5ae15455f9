/// Tests the recomputation pass from text to text, its verifier on graphs that a broken pass could produce, and the
/// results of random graphs.

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/arithmetic/differentiation.h"
#include "replica/compiler/lowering/lower.h"
#include "replica/compiler/passes.h"
#include "replica/compiler/techniques/pipeline/schedule.h"
#include "replica/compiler/techniques/recomputation/kept.h"
#include "replica/compiler/techniques/recomputation/standard.h"
#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/texts.h"

namespace poprun::recomputation_test {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

const Pass& recomputation() {
  return *std::ranges::find(all_passes(), "recomputation", &Pass::name);
}

CompileOptions options_of(Recomputation mode, const std::string& checkpoints = "", const std::string& recompute = "") {
  CompileOptions options;
  options.pipeline = {.recomputation = mode, .recomputation_checkpoints = checkpoints, .recompute = recompute};
  options.gradient_accumulation = 8;
  return options;
}

/// Returns the job of a graph whose second function, "train", has the regions begin, micro-batch and update.
Job job_of(Graph graph) {
  Job job{.graph = std::move(graph), .training = {}, .evaluation = {}};
  job.training =
      TrainingStep{.begin = {1, 0}, .micro_batch = {1, 1}, .update = {1, 2}, .scalars = {}, .metrics = {}, .loss = {}};
  return job;
}

/// Returns three layers whose stages are the digits of `stages`. Each gradient is accumulated right after its producer.
Job three_layers(const std::string& stages) {
  std::string text = R"(
    layer a
    layer b
    layer c
    tensor w : f32[2] parameter
    tensor v : f32[2] parameter
    tensor w.accumulator : f32[2] gradient
    tensor v.accumulator : f32[2] gradient
    tensor metrics : f32[3,3] metric
    tensor one : f32[] metric
    tensor x : f32[2] stream
    tensor h : f32[2] activation
    tensor i : f32[2] activation
    tensor j : f32[2] activation
    tensor k : f32[2] activation
    tensor l : f32[2] activation
    tensor loss : f32[] activation
    tensor l.gradient : f32[2] activation
    tensor k.gradient : f32[2] activation
    tensor j.gradient : f32[2] activation
    tensor v.gradient : f32[2] gradient
    tensor i.gradient : f32[2] activation
    tensor h.gradient : f32[2] activation
    tensor w.gradient : f32[2] gradient
    function load
    repeat 1
    w = initialise() constant=1.0
    v = initialise() constant=1.0
    function train
    repeat 1
    metrics = fill() shape=[3,3] value=0.0
    one = fill() shape=[] value=1.0
    w.accumulator = fill() shape=[2] value=0.0
    v.accumulator = fill() shape=[2] value=0.0
    repeat 2
    x = stream_in() stream="train"
    @a:A:forward h = mul(x, w)
    @a:A:forward i = mul(h, h)
    @b:B:forward j = mul(i, v)
    @b:B:forward k = mul(j, j)
    @c:C:forward l = tanh(k)
    @c:C:forward loss = sum_to(l) layout="row-major" shape=[]
    @c:C:forward metrics = accumulate_metrics(metrics, loss, one, one)
    @c:C:backward l.gradient = fill() shape=[2] value=1.0
    @c:C:backward k.gradient = mul(l.gradient, l)
    @b:B:backward j.gradient = mul(k.gradient, j)
    @b:B:backward v.gradient = mul(j.gradient, i)
    @b:B:backward v.accumulator = accumulate(v.accumulator, v.gradient) mean=0
    @b:B:backward i.gradient = mul(j.gradient, v)
    @a:A:backward h.gradient = mul(i.gradient, h)
    @a:A:backward w.gradient = mul(h.gradient, x)
    @a:A:backward w.accumulator = accumulate(w.accumulator, w.gradient) mean=0
    repeat 1
  )";
  for (std::size_t s = 0; s < 3; ++s) {
    const std::string from = std::string(":") + "ABC"[s] + ":";
    const std::string to = std::string(":") + stages[s] + ":";
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from)) {
      text.replace(at, 3, to);
    }
  }
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph) << graph.error().message;
  const Status status = verify_operations(*graph);
  EXPECT_TRUE(status) << status.error().message;
  Job job = job_of(std::move(*graph));
  const auto last = static_cast<std::uint32_t>(stages.back() - '0');
  for (std::uint32_t stage = 1; stage <= last; ++stage) {
    job.ipu_of_stage.push_back(stage);
  }
  return job;
}

/// Runs the pass; returns the operations that it changed, without their origins, followed by its notes, or why the
/// result is refused.
std::string after(Job job, const CompileOptions& options) {
  const Job before = job;
  EXPECT_TRUE(recomputation().applies(options));
  if (const Status status = recomputation().run(options, job); !status) {
    return status.error().message;
  }
  for (const Status& status : {verify_operations(job.graph), recomputation().verify(options, before, job)}) {
    if (!status) {
      return status.error().message;
    }
  }
  std::istringstream lines(to_text(job.graph));
  const std::string was = to_text(before.graph);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const bool is_new = was.find(line + "\n") == std::string::npos;
    if (is_new && !line.starts_with("tensor ")) {
      text += line + "\n";
    }
  }
  for (const std::string& note : testing::texts(job.notes)) {
    text += "note: " + note + "\n";
  }
  return text;
}

TEST(Recomputation, KeepsTheInputsOfLayersAndAllOfTheLastLayer) {
  EXPECT_EQ(after(three_layers("000"), options_of(Recomputation::kLayer)),
            "@b:0:recomputed j.recomputed = mul(i, v)\n"
            "@b:0:backward j.gradient = mul(k.gradient, j.recomputed)\n"
            "@a:0:recomputed h.recomputed = mul(x, w)\n"
            "@a:0:backward h.gradient = mul(i.gradient, h.recomputed)\n");
}

TEST(Recomputation, KeepsTheInputsOfStages) {
  EXPECT_EQ(after(three_layers("001"), options_of(Recomputation::kPipeline)),
            "@a:0:recomputed h.recomputed = mul(x, w)\n"
            "@a:0:recomputed i.recomputed = mul(h.recomputed, h.recomputed)\n"
            "@b:0:recomputed j.recomputed = mul(i.recomputed, v)\n"
            "@b:0:backward j.gradient = mul(k.gradient, j.recomputed)\n"
            "@b:0:backward v.gradient = mul(j.gradient, i.recomputed)\n"
            "@a:0:backward h.gradient = mul(i.gradient, h.recomputed)\n");
  EXPECT_EQ(after(three_layers("011"), options_of(Recomputation::kPipeline)),
            "@a:0:recomputed h.recomputed = mul(x, w)\n"
            "@a:0:backward h.gradient = mul(i.gradient, h.recomputed)\n")
      << "the last stage keeps everything, and i is its input";
}

TEST(Recomputation, OfAllGoesOnInTheLastStage) {
  EXPECT_THAT(after(three_layers("011"), options_of(Recomputation::kAll)),
              StartsWith("@b:1:recomputed j.recomputed = mul(i, v)\n"
                         "@b:1:recomputed k.recomputed = mul(j.recomputed, j.recomputed)\n"
                         "@c:1:recomputed l.recomputed = tanh(k.recomputed)\n"
                         "@c:1:backward k.gradient = mul(l.gradient, l.recomputed)\n"
                         "@b:1:backward j.gradient = mul(k.gradient, j.recomputed)\n"
                         "@a:0:recomputed h.recomputed = mul(x, w)\n"
                         "@a:0:backward h.gradient = mul(i.gradient, h.recomputed)\n"));
}

TEST(Recomputation, KeepsCheckpointsWhateverTheMode) {
  EXPECT_EQ(after(three_layers("001"), options_of(Recomputation::kPipeline, "^i$")),
            "@b:0:recomputed j.recomputed = mul(i, v)\n"
            "@b:0:backward j.gradient = mul(k.gradient, j.recomputed)\n"
            "@a:0:recomputed h.recomputed = mul(x, w)\n"
            "@a:0:backward h.gradient = mul(i.gradient, h.recomputed)\n");
}

TEST(Recomputation, RecomputesChosenActivationsWhateverTheMode) {
  EXPECT_EQ(after(three_layers("000"), options_of(Recomputation::kNone, "", "^[il]$")),
            "@c:0:recomputed l.recomputed = tanh(k)\n"
            "@c:0:backward k.gradient = mul(l.gradient, l.recomputed)\n"
            "@a:0:recomputed i.recomputed = mul(h, h)\n"
            "@b:0:backward v.gradient = mul(j.gradient, i.recomputed)\n");
}

TEST(Recomputation, SaysWhereItHasNoEffect) {
  EXPECT_EQ(after(three_layers("000"), options_of(Recomputation::kPipeline)),
            "note: pipeline.recomputation = pipeline has no effect: the model is a single stage, "
            "whose backward pass immediately follows its forward pass\n");
  EXPECT_EQ(after(three_layers("000"), options_of(Recomputation::kNone, "^i$")),
            "note: pipeline.recomputation-checkpoints has no effect without recomputation: every "
            "activation is kept\n");
  Job one_layer = three_layers("000");
  for (Operation& operation : one_layer.graph.at({1, 1}).operations) {
    operation.origin.layer = 0;
  }
  EXPECT_EQ(
      after(one_layer, options_of(Recomputation::kLayer)),
      "note: pipeline.recomputation = layer has no effect: the backward pass reads only "
      "inputs of layers and activations of the last layer, whose backward pass immediately follows its forward pass\n");
}

TEST(Recomputation, BlamesCheckpointsThatKeepEverything) {
  EXPECT_EQ(after(three_layers("001"), options_of(Recomputation::kPipeline, ".*")),
            "note: pipeline.recomputation = pipeline has no effect: "
            "pipeline.recomputation-checkpoints = .* keeps every activation that would be "
            "recomputed\n");
  CompileOptions standard = options_of(Recomputation::kStandard, ".*");
  standard.device = *find_device("mk2");
  EXPECT_THAT(after(three_layers("001"), standard),
              HasSubstr("note: pipeline.recomputation = standard has no effect: "
                        "pipeline.recomputation-checkpoints = .* keeps every activation"));
  standard.pipeline.recomputation_checkpoints = "^i$";
  EXPECT_THAT(after(three_layers("001"), standard), Not(HasSubstr("has no effect"))) << "the memory suffices";
  EXPECT_EQ(after(three_layers("000"), options_of(Recomputation::kPipeline, ".*")),
            "note: pipeline.recomputation = pipeline has no effect: the model is a single stage, "
            "whose backward pass immediately follows its forward pass\n");
}

TEST(Recomputation, SaysWhereItTakesTimeAndSavesNoMemory) {
  const auto notes_of = [](const Job& job, Recomputation mode, Schedule schedule) {
    CompileOptions options = options_of(mode);
    options.pipeline.schedule = schedule;
    const std::string text = after(job, options);
    return text.find("note: ") == std::string::npos ? "" : text.substr(text.find("note: "));
  };
  const auto notes = [&](const std::string& stages, Recomputation mode, Schedule schedule) {
    return notes_of(three_layers(stages), mode, schedule);
  };
  EXPECT_EQ(notes("011", Recomputation::kAll, Schedule::kGrouped),
            "note: pipeline.recomputation = all takes time but saves no memory in stage 1; "
            "pipeline.recomputation = pipeline leaves that stage out\n");
  EXPECT_EQ(notes("000", Recomputation::kAll, Schedule::kGrouped),
            "note: pipeline.recomputation = all takes time but saves no memory in the only stage\n");
  EXPECT_EQ(notes("001", Recomputation::kPipeline, Schedule::kSequential),
            "note: pipeline.recomputation = pipeline takes time but saves no memory in stage 0\n");
  EXPECT_EQ(notes("001", Recomputation::kPipeline, Schedule::kGrouped), "");
  Job on_one_ipu = three_layers("001");
  on_one_ipu.ipu_of_stage = {0, 0};
  EXPECT_EQ(notes_of(on_one_ipu, Recomputation::kPipeline, Schedule::kSequential), "")
      << "what stage 0 keeps lives on while stage 1 runs";
}

TEST(Recomputation, KeepsTheInputsOfStagesByDefault) {
  const CompileOptions unsaid;
  CompileOptions sequential;
  sequential.pipeline.schedule = Schedule::kSequential;
  const Job job = three_layers("001");
  EXPECT_EQ(after(job, unsaid), after(job, options_of(Recomputation::kPipeline)));
  EXPECT_EQ(after(job, sequential), "") << "the backward pass follows at once in every stage";
  EXPECT_EQ(after(three_layers("000"), unsaid), "");
}

TEST(Recomputation, NeedsABackwardPass) {
  CompileOptions inference = options_of(Recomputation::kAll);
  inference.inference = true;
  EXPECT_FALSE(recomputation().applies(inference));
  EXPECT_FALSE(recomputation().applies(options_of(Recomputation::kNone)));
}

TEST(Recomputation, RefusesNamesThatFitNothing) {
  EXPECT_EQ(after(three_layers("000"), options_of(Recomputation::kLayer, "los")),
            "pipeline.recomputation-checkpoints = los: no recomputable activation in the model has a matching name; "
            "available: h, i, j, ...")
      << "the step reports the loss";
  EXPECT_THAT(after(three_layers("000"), options_of(Recomputation::kLayer, "", "(")),
              HasSubstr("pipeline.recompute = (: not a valid regular expression"));
  EXPECT_EQ(after(three_layers("000"), options_of(Recomputation::kLayer, "[hi]", "i|j")),
            "'i' matches both pipeline.recomputation-checkpoints and pipeline.recompute; it must "
            "match only one of them");
}

TEST(Recomputation, NumbersACloneWhoseNameTheModelHas) {
  Job job = three_layers("000");
  job.graph.add_tensor({"h.recomputed", {DataType::kF32, {2}, {}}});
  EXPECT_THAT(after(job, options_of(Recomputation::kLayer)), HasSubstr("h.recomputed.1 = mul(x, w)"));
}

/// These operations must run once: updates, readers of updated tensors, and operations whose results the step reports.
TEST(Recomputation, NeverRepeatsWhatMustRunOnce) {
  Job job = job_of(*parse_graph(R"(
    tensor running : f32[2] buffer
    tensor metrics : f32[3,3] metric
    tensor x : f32[2] stream
    tensor a : f32[2] activation
    tensor b : f32[2] activation
    tensor loss : f32[] activation
    tensor correct : f32[] activation
    tensor a.gradient : f32[2] gradient
    tensor b.gradient : f32[2] gradient
    function load
    repeat 1
    running = initialise() constant=1.0
    function train
    repeat 1
    metrics = fill() shape=[3,3] value=0.0
    repeat 1
    x = stream_in() stream="train"
    a = mul(x, running)
    running = accumulate(running, x) mean=0
    b = tanh(a)
    loss = sum_to(b) layout="row-major" shape=[]
    correct = tanh(loss)
    metrics = accumulate_metrics(metrics, loss, correct, loss)
    @:0:backward b.gradient = mul(b, loss)
    @:0:backward a.gradient = mul(b.gradient, a)
    repeat 1
  )"));
  EXPECT_THAT(after(job, options_of(Recomputation::kAll)),
              StartsWith("@:0:recomputed b.recomputed = tanh(a)\n"
                         "@:0:backward b.gradient = mul(b.recomputed, loss)\nnote: "));
}

TEST(Recomputation, SaysWhatStandardDecided) {
  Job job = three_layers("000");
  CompileOptions options = options_of(Recomputation::kStandard);
  options.device = *find_device("mk2");
  EXPECT_THAT(after(job, options), MatchesRegex("note: pipeline.recomputation = standard recomputes nothing: the "
                                                "fullest IPU needs only about [0-9]+ B of 448.5 MiB "
                                                "\\(pipeline.recomputation-memory = 0.5\\) without recomputation\n"));
  options.pipeline.recomputation_memory = 1e-9;
  EXPECT_THAT(after(job, options), HasSubstr("note: pipeline.recomputation = standard misses its goal of 0 B "
                                             "(pipeline.recomputation-memory = 1e-09): the fullest IPU "
                                             "needs at least about "));
}

TEST(NarrowPlaces, AreCutWhereItCostsLeast) {
  const std::vector<std::int64_t> bytes = {4, 4, 4, 4, 4, 4};
  EXPECT_EQ(cut_at_narrow_places(bytes, {9, 9, 1, 9, 9, 9}, 12), (CutPlaces{3}));
  EXPECT_EQ(cut_at_narrow_places(bytes, {9, 2, 9, 3, 9, 9}, 8), (CutPlaces{2, 4}));
  EXPECT_EQ(cut_at_narrow_places(bytes, {5, 5, 5, 5, 5, 9}, 1), (CutPlaces{1, 2, 3, 4, 5}));
  EXPECT_EQ(cut_at_narrow_places(bytes, {5, 5, 5, 5, 5, 9}, 24), CutPlaces{});
  EXPECT_EQ(cut_at_narrow_places({}, {}, 1), CutPlaces{});
}

/// Returns the verdict of the verifier after `damage` to three layers with recomputation by layer.
std::string verdict_on(const std::function<void(std::vector<Operation>&, Graph&)>& damage) {
  const CompileOptions options = options_of(Recomputation::kLayer);
  const Job before = three_layers("000");
  Job job = before;
  EXPECT_TRUE(recomputation().run(options, job));
  EXPECT_TRUE(recomputation().verify(options, before, job)) << "before the damage";
  damage(job.graph.at(job.training->micro_batch).operations, job.graph);
  const Status status = recomputation().verify(options, before, job);
  return status ? "" : status.error().message;
}

/// Returns the first operation that writes a tensor.
Operation& writer(std::vector<Operation>& operations, const Graph& graph, std::string_view name) {
  return *std::ranges::find_if(operations, [&](const Operation& operation) {
    return std::ranges::count(operation.outputs, graph.find(name)) != 0;
  });
}

TEST(RecomputationVerifier, FindsACloneThatComputesSomethingElse) {
  EXPECT_EQ(verdict_on([](auto& operations, Graph& graph) {
              writer(operations, graph, "j.recomputed").attributes.set("key", "another");
            }),
            "pass recomputation: mul 'j.recomputed' is not a clone of a forward operation");
  EXPECT_EQ(verdict_on([](auto& operations, Graph& graph) {
              writer(operations, graph, "j.recomputed").inputs[0] = graph.find("h");
            }),
            "pass recomputation: mul 'j.recomputed' reads 'h' instead of 'i'");
  EXPECT_THAT(verdict_on([](auto& operations, Graph& graph) {
                writer(operations, graph, "j.recomputed").outputs[0] = graph.find("j");
              }),
              HasSubstr("mul 'j' is not a clone of a forward operation"));
}

TEST(RecomputationVerifier, FindsASecondClone) {
  EXPECT_EQ(verdict_on([](auto& operations, Graph& graph) {
              operations.push_back(writer(operations, graph, "j.recomputed"));
            }),
            "pass recomputation: mul 'j.recomputed' is a second clone");
}

TEST(RecomputationVerifier, FindsTheCloneOfAnUpdate) {
  EXPECT_EQ(verdict_on([](auto& operations, Graph& graph) {
              Operation clone = writer(operations, graph, "metrics");
              clone.origin.direction = Direction::kRecomputed;
              Tensor metrics{"metrics.recomputed", graph.tensor(graph.find("metrics")).type};
              metrics.copy_of = graph.find("metrics");
              clone.outputs = {graph.add_tensor(std::move(metrics))};
              operations.push_back(clone);
            }),
            "pass recomputation: accumulate_metrics 'metrics.recomputed' is the clone of an "
            "operation that must run once");
}

TEST(RecomputationVerifier, FindsABackwardPassThatReadsWhatIsNotKept) {
  EXPECT_EQ(verdict_on([](auto& operations, Graph& graph) {
              writer(operations, graph, "j.gradient").inputs[1] = graph.find("j");
            }),
            "pass recomputation: mul 'j.gradient' reads 'j', which is neither kept nor recomputed");
  EXPECT_EQ(verdict_on([](auto& operations, Graph& graph) {
              writer(operations, graph, "h.gradient").inputs[1] = graph.find("j.recomputed");
            }),
            "pass recomputation: mul 'h.gradient' reads 'j.recomputed' instead of 'h'");
}

TEST(RecomputationVerifier, FindsAnotherForwardPass) {
  EXPECT_EQ(
      verdict_on([](auto& operations, Graph& graph) { writer(operations, graph, "k").inputs[0] = graph.find("i"); }),
      "pass recomputation: mul 'k' reads 'i' instead of 'j'");
  EXPECT_EQ(verdict_on([](auto& operations, Graph& /*graph*/) { operations.pop_back(); }),
            "pass recomputation: accumulate 'w.accumulator' is missing");
  EXPECT_EQ(
      verdict_on([](auto& operations, Graph& /*graph*/) { operations.insert(operations.begin(), operations[1]); }),
      "pass recomputation: mul 'h' is not the same operation as before");
}

TEST(RecomputationVerifier, FindsChangesElsewhere) {
  EXPECT_EQ(verdict_on([](auto& /*operations*/, Graph& graph) {
              graph.at({1, 0}).operations[0].attributes.set("value", 1.0);
            }),
            "pass recomputation: changes function train");
  EXPECT_EQ(
      verdict_on([](auto& /*operations*/, Graph& graph) { graph.set_data_type(graph.find("k"), DataType::kF16); }),
      "pass recomputation: 'k' no longer has the same name, type, role and IPU");
}

/// A random model of several layers and stages on rows of numbers, with its gradients.
class RandomJob {
 public:
  explicit RandomJob(unsigned seed, bool single_stage = false) : random_(seed) {
    Graph graph;
    graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}, {1, {}}, {1, {}}}}};
    const TensorId x = graph.add_tensor({"x", kRows, Role::kStream});
    graph.at({1, 0}).operations.push_back({"stream_in", {}, {x}, {{"stream", std::string{"train"}}}});
    Builder builder(graph, {1, 1}, "");
    values_ = {x};
    const std::size_t layers = 1 + draw(6);
    for (std::size_t l = 0; l < layers; ++l) {
      graph.layers.push_back({"layer" + std::to_string(l)});
    }
    const std::size_t size = 4 + draw(30);
    Origin origin{.layer = 0};
    for (std::size_t n = 0; n < size; ++n) {
      origin.layer = static_cast<std::int32_t>(n * layers / size);
      origin.stage += draw(6) == 0 && !single_stage ? 1U : 0U;
      builder.set_origin(origin);
      add_value(builder, "v" + std::to_string(n));
    }
    const TensorId loss =
        builder.add_one("sum_to", {values_.back()}, {{"layout", std::string{"row-major"}}, {"shape", Shape{}}}, "loss");
    builder.set_origin({.layer = origin.layer, .stage = origin.stage, .direction = Direction::kBackward});
    const TensorId scale = builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", 1.0}}, "loss.gradient");
    auto gradients = differentiate(builder, {{loss, scale}});
    EXPECT_TRUE(gradients) << gradients.error().message;
    job = job_of(std::move(graph));
    job.training->gradients = *gradients;
    job.ipu_of_stage.resize(origin.stage + 1);
    std::iota(job.ipu_of_stage.begin(), job.ipu_of_stage.end(), 0U);
  }

  std::size_t draw(std::size_t below) { return random_() % below; }

  static constexpr std::int64_t kWidth = 64;
  inline static const TensorType kRows{DataType::kF32, {8, kWidth}, Layout::kRowMajor};
  Job job;

 private:
  /// Returns mostly one of the newest values, and sometimes a much older value, as residual connections and masks are.
  TensorId any_value() {
    const std::size_t back = draw(4) == 0 ? draw(values_.size()) : draw(std::min<std::size_t>(2, values_.size()));
    return values_[values_.size() - 1 - back];
  }

  void add_value(Builder& builder, const std::string& name) {
    const auto parameter = [&](const std::string& suffix) {
      return builder.variable(name + suffix, {DataType::kF32, {kWidth}, Layout::kRowMajor}, Role::kParameter, {});
    };
    const TensorId a = values_.size() == 1 ? values_[0] : any_value();
    switch (draw(6)) {
      case 0:
        values_.push_back(builder.add_one("tanh", {a}, {}, name));
        break;
      case 1:
        values_.push_back(builder.add_one("gelu", {a}, {}, name));
        break;
      case 2:
        values_.push_back(builder.add_one("mul", {a, any_value()}, {}, name));
        break;
      case 3:
        values_.push_back(builder.add_one("dropout", {a}, {{"rate", 0.25}, {"key", name}}, name));
        break;
      case 4:
        values_.push_back(builder.add_one("add", {a, any_value()}, {}, name));
        break;
      default:
        break;
    }
    // The model's last value must depend on a parameter.
    values_.push_back(builder.add("layer_norm", {values_.back(), parameter(".weight"), parameter(".bias")},
                                  {{"epsilon", 1e-3}}, {name + ".normal", name + ".mean", name + ".variance"})[0]);
  }

  std::mt19937 random_;
  std::vector<TensorId> values_;
};

/// Returns the bytes of every gradient after one micro-batch on made-up numbers.
std::vector<std::vector<std::byte>> gradients_of(const Job& job) {
  testing::GraphRunner runner(job.graph);
  std::mt19937 random(7);
  for (std::uint32_t t = 0; t < job.graph.tensors().size(); ++t) {
    const Role role = job.graph.tensors()[t].role;
    if (role == Role::kParameter || role == Role::kStream) {
      for (float& value : runner.floats(TensorId{t})) {
        value = static_cast<float>(random() % 2001) / 1000 - 1;
      }
    }
  }
  runner.run(job.graph.at(job.training->micro_batch).operations);
  std::vector<std::vector<std::byte>> gradients;
  for (const ParameterGradient& pair : job.training->gradients) {
    const auto size = static_cast<std::size_t>(job.graph.tensor(pair.gradient).type.bytes().count());
    gradients.emplace_back(runner.bytes(pair.gradient), runner.bytes(pair.gradient) + size);
  }
  return gradients;
}

class RecomputationProperty : public ::testing::TestWithParam<unsigned> {};

TEST_P(RecomputationProperty, ChangesNoBitOfAnyGradient) {
  RandomJob random(GetParam());
  const auto plain = gradients_of(random.job);
  for (const Recomputation mode :
       {Recomputation::kNone, Recomputation::kLayer, Recomputation::kPipeline, Recomputation::kAll}) {
    for (const auto& [checkpoints, recompute] :
         {std::pair{"", ""}, {"v.*[02468]", ""}, {"v.*[13579].normal", "v.*[02468].normal"}}) {
      const CompileOptions options = options_of(mode, checkpoints, recompute);
      Job job = random.job;
      ASSERT_TRUE(recomputation().run(options, job));
      for (const Status& status : {verify_operations(job.graph), recomputation().verify(options, random.job, job)}) {
        ASSERT_TRUE(status) << status.error().message;
      }
      EXPECT_EQ(gradients_of(job), plain) << word_of(mode) << " " << checkpoints << " " << recompute;
    }
  }
}

/// Returns what mode standard chooses with `memory` on every IPU, and the resulting job.
std::pair<StandardChoice, Job> standard(const Job& before, Bytes memory) {
  const MicroBatch micro_batch(before.graph, before.training->micro_batch);
  StandardGoal goal{.ipu_of_stage = before.ipu_of_stage, .stash_lengths = {}, .work = {}, .capacity = memory};
  const auto stages = static_cast<std::uint32_t>(before.ipu_of_stage.size());
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    goal.stash_lengths.push_back(stash_length(Schedule::kGrouped, stages, stage, 16));
  }
  for (MicroBatch::Index i = 0; i < micro_batch.backward(); ++i) {
    const std::string& kind = micro_batch.operations()[i].kind;
    goal.work.push_back(kind == "layer_norm" ? 50 : 10);
  }
  StandardChoice choice =
      choose_standard(before.graph, micro_batch, before.graph.at(before.training->update), {}, goal);
  Job after = before;
  insert_clones(after.graph, after.training->micro_batch, plan_clones(micro_batch, choice.kept), choice.kept);
  return {std::move(choice), std::move(after)};
}

TEST_P(RecomputationProperty, StandardStaysWithinItsMemory) {
  const Job before = RandomJob(GetParam()).job;
  const CompileOptions options = options_of(Recomputation::kStandard);
  const auto [least, unused] = standard(before, Bytes{0});
  const auto [everything, plain] = standard(before, Bytes{1'000'000'000});
  EXPECT_EQ(everything.recomputed, 0);
  EXPECT_EQ(to_text(plain.graph), to_text(before.graph));
  EXPECT_LE(least.fullest, everything.fullest);
  const auto gradients = gradients_of(before);
  double recomputed = 1;
  for (int part = 0; part <= 4; ++part) {
    const Bytes memory = least.fullest + Bytes{(everything.fullest - least.fullest).count() * part / 4};
    const auto [choice, after] = standard(before, memory);
    EXPECT_LE(choice.fullest, memory);
    constexpr double kSlack = 0.1;  // The choice is the best of a family of choices, not of all.
    EXPECT_LE(choice.recomputed, recomputed + kSlack) << "more memory, more work";
    recomputed = choice.recomputed;
    for (const Status& status : {verify_operations(after.graph), recomputation().verify(options, before, after)}) {
      ASSERT_TRUE(status) << status.error().message;
    }
    EXPECT_EQ(gradients_of(after), gradients);
  }
}

TEST_P(RecomputationProperty, StandardKnowsWhatASingleStageNeeds) {
  const Job before = RandomJob(GetParam(), /*single_stage=*/true).job;
  for (const std::int64_t memory : {0, 20'000, 60'000, 1'000'000'000}) {
    const auto [choice, after] = standard(before, Bytes{memory});
    const MemoryClaims claims = claims_of(after.graph, compute_liveness(after.graph), 0);
    const auto needed = static_cast<double>(plan_memory(claims.claims).lower_bound.count());
    // Two things differ: tensors begin at multiples of 64 bytes, and x, which is read once, counts as a variable here.
    EXPECT_NEAR(static_cast<double>(choice.fullest.count()), needed,
                0.05 * needed + static_cast<double>(RandomJob::kRows.bytes().count()));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RecomputationProperty, ::testing::Range(0U, 100U));

}  // namespace
}  // namespace poprun::recomputation_test
