/// Tests each pass from text to text, and each verifier on graphs that a broken pass could produce.

#include "replica/compiler/passes.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/compiler/pass_text.h"

namespace poprun::passes_test {
namespace {

using namespace pass_text;
using ::testing::HasSubstr;

/// The forward pass of a training step, with the step's beginning. The loss is the sum of w * x.
constexpr std::string_view kForward = R"(
    tensor w : f32[2] parameter
    tensor x : f32[2] stream
    tensor learning-rate : f32[] stream
    tensor step : f32[] stream
    tensor train.metrics : f32[3,3] metric
    tensor y : f32[2] activation
    tensor loss : f32[] activation
    function load
    repeat 1
    w = initialise() constant=1.0
    function train
    repeat 1
    learning-rate, step = stream_in() stream="control"
    train.metrics = fill() shape=[3,3] value=0.0
    repeat 1
    x = stream_in() stream="train"
    y = mul(x, w)
    loss = sum_to(y) layout="row-major" shape=[]
    repeat 1
)";

/// The same step after the exchange.
const std::string kExchangedAndReady =
    std::string{kBackward} +
    "w.gradient, running, train.metrics = all_reduce(w.gradient, running, train.metrics) "
    "reduction=\"mean\"\n";

/// A parameter that two operations use, and the gradients of both uses.
constexpr std::string_view kTied = R"(
    tensor w : f32[2] parameter
    tensor x : f32[2] stream
    tensor learning-rate : f32[] stream
    tensor step : f32[] stream
    tensor train.metrics : f32[3,3] metric
    tensor loss : f32[] activation
    tensor y : f32[2] activation
    tensor x.gradient : f32[2] activation
    tensor w.gradient : f32[2] gradient
    tensor w.gradient.1 : f32[2] gradient
    function load
    repeat 1
    w = initialise() uniform=0.5
    function train
    repeat 1
    learning-rate, step = stream_in() stream="control"
    train.metrics = fill() shape=[3,3] value=0.0
    repeat 1
    x = stream_in() stream="train"
    y = mul(x, w)
    w.gradient = mul(x, y)
    x.gradient = mul(w.gradient, y)
    w.gradient.1 = mul(x.gradient, x)
    repeat 1
)";

TEST(Passes, DifferentiationAppendsTheBackwardPass) {
  EXPECT_THAT(after("differentiation", kForward, options()),
              HasSubstr("loss = sum_to(y) layout=\"row-major\" shape=[]\n"
                        "@:0:backward loss.gradient = fill() shape=[] value=1.0\n"));
  EXPECT_THAT(after("differentiation", kForward, options()), HasSubstr("w.gradient = "));
}

TEST(Passes, DifferentiationGivesGradientsTheLayerAndStageOfWhatTheyBelongTo) {
  std::string forward = "layer dense\nlayer classifier\n" + std::string{kForward};
  forward.replace(forward.find("y = mul"), 1, "@dense:0:forward y");
  forward.replace(forward.find("loss = sum_to"), 4, "@classifier:1:forward loss");

  const std::string text = after("differentiation", forward, options());

  EXPECT_THAT(text, HasSubstr("@classifier:1:backward loss.gradient = fill"));
  EXPECT_THAT(text, HasSubstr("@classifier:1:backward y.gradient = "));
  EXPECT_THAT(text, HasSubstr("@dense:0:backward w.gradient = "));
}

/// A step whose loss sums the elements of (w * x) * w and of w * w.
constexpr std::string_view kUsedThrice = R"(
    tensor w : f32[2] parameter
    tensor x : f32[2] stream
    tensor learning-rate : f32[] stream
    tensor step : f32[] stream
    tensor train.metrics : f32[3,3] metric
    tensor y : f32[2] activation
    tensor z : f32[2] activation
    tensor v : f32[2] activation
    tensor u : f32[2] activation
    tensor loss : f32[] activation
    function load
    repeat 1
    w = initialise() constant=1.0
    function train
    repeat 1
    learning-rate, step = stream_in() stream="control"
    train.metrics = fill() shape=[3,3] value=0.0
    repeat 1
    x = stream_in() stream="train"
    y = mul(x, w)
    z = mul(y, w)
    v = mul(w, w)
    u = add(z, v)
    loss = sum_to(u) layout="row-major" shape=[]
    repeat 1
)";

TEST(Passes, DifferentiationKeepsTheUsesOfAParameterApart) {
  const Job before = job_of(kUsedThrice);
  Job job = before;
  ASSERT_TRUE(pass_of("differentiation").run(options(), job));
  ASSERT_TRUE(pass_of("differentiation").verify(options(), before, job));
  std::vector<std::string> names;
  for (const auto& [parameter, gradient] : job.training->gradients) {
    EXPECT_EQ(job.graph.tensor(parameter).name, "w");
    names.push_back(job.graph.tensor(gradient).name);
  }
  // mul(w, w) is one use with two contributions; their sum has the plain name.
  EXPECT_EQ(names, (std::vector<std::string>{"w.gradient", "w.gradient.3", "w.gradient.4"}));
  const std::string text = to_text(job.graph);
  EXPECT_THAT(text, HasSubstr("w.gradient = add("));
  EXPECT_THAT(text, HasSubstr("w.gradient.4 = mul("));
}

/// The model already has a tensor called w.gradient, so the gradients get other names.
TEST(Passes, DifferentiationLeavesNamesToTheModel) {
  std::string forward{kUsedThrice};
  for (std::size_t at = 0; (at = forward.find("z", at)) != std::string::npos;) {
    const bool is_word = !std::isalnum(forward[at + 1]) && !std::isalnum(forward[at - 1]);
    forward.replace(at, 1, is_word ? "w.gradient" : "z");
    at += is_word ? 10 : 1;
  }
  const Job before = job_of(forward);
  Job job = before;

  ASSERT_TRUE(pass_of("differentiation").run(options(), job));
  ASSERT_TRUE(pass_of("differentiation").verify(options(), before, job));

  std::vector<std::string> names;
  for (const auto& [parameter, gradient] : job.training->gradients) {
    names.push_back(job.graph.tensor(gradient).name);
    EXPECT_GE(index_of(gradient), before.graph.tensors().size());
  }
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 3U);
  EXPECT_EQ(job.graph.tensor(job.graph.find("w.gradient")).role, Role::kActivation);
}

/// `add` does not declare that it works on shards, like an optimiser's rule by default.
constexpr std::string_view kStates = R"(
    tensor w : f32[6] parameter
    tensor g : f32[6] activation
    tensor m : f32[6] optimizer-state
    tensor v : f32[6] optimizer-state
    tensor train.metrics : f32[3] metric
    tensor loss : f32[] activation
    function load
    repeat 1
    w = initialise() constant=1.0
    m = initialise() constant=0.0
    v = initialise() constant=0.0
    function train
    repeat 1
    train.metrics = fill() shape=[3] value=0.0
    repeat 1
    g = fill() shape=[6] value=1.0
    loss = sum_to(g) layout="row-major" shape=[]
    repeat 1
    m = add(m, g)
    v = accumulate(v, g) mean=0
    w = assign(w, m)
)";

TEST(Passes, ShardingLeavesStateWholeThatAnOperatorUpdatesAsAWhole) {
  const CompileOptions sharded = options_with([](CompileOptions& o) {
    o.replicas = 2;
    o.sharding.optimizer_state = true;
    o.sharding.elements_min = 1;
  });
  Job job = job_of(kStates);

  ASSERT_TRUE(pass_of("sharding").run(sharded, job));

  EXPECT_FALSE(job.graph.has("m.shard"));
  EXPECT_TRUE(job.graph.has("v.shard"));
  EXPECT_THAT(job.locations,
              ::testing::ElementsAre("m: not sharded, add updates the full tensor", "v: sharded over 2 replicas"));
  EXPECT_THAT(testing::texts(job.notes),
              ::testing::Contains("memory.replicated-tensor-sharding: the state of add is not "
                                  "sharded, because the update does not work on shards"));
}

TEST(Passes, DifferentiationMustLeaveTheForwardPassAlone) {
  const auto swap_inputs = [](Job& job) {
    std::swap(operations(job, job.training->micro_batch)[1].inputs[0],
              operations(job, job.training->micro_batch)[1].inputs[1]);
  };
  EXPECT_THAT(verdict_on("differentiation", kForward, options(), swap_inputs),
              HasSubstr("'loss' no longer has the same forward pass"));
}

TEST(Passes, DifferentiationMustMakeGradientsOfTheRightType) {
  const auto take_another = [](Job& job) { job.training->gradients[0].gradient = job.training->loss; };
  EXPECT_THAT(verdict_on("differentiation", kForward, options(), take_another),
              HasSubstr("'loss' is not produced by the backward pass, or does not have its parameter's type"));
}

TEST(Passes, AccumulationAddsEachGradientToASumOfItsOwn) {
  EXPECT_EQ(after("accumulation", kBackward, options_with([](CompileOptions& o) { o.gradient_accumulation = 4; })),
            "w.accumulator : f32[2]\n"
            "function train\n"
            "repeat 1\n"
            "learning-rate, step = stream_in() stream=\"control\"\n"
            "train.metrics = fill() shape=[3,3] value=0.0\n"
            "w.accumulator = fill() shape=[2] value=0.0\n"
            "repeat 1\n"
            "x = stream_in() stream=\"train\"\n"
            "w.gradient = mul(x, v)\n"
            "w.accumulator = accumulate(w.accumulator, w.gradient) mean=0\n"
            "repeat 1\n");
}

TEST(Passes, AccumulationTakesAGradientAsSoonAsItIsMade) {
  const std::string text =
      after("accumulation", kTied, options_with([](CompileOptions& o) { o.gradient_accumulation = 4; }));
  EXPECT_THAT(text, HasSubstr("w.accumulator = fill() shape=[2] value=0.0\n"
                              "w.accumulator.1 = fill() shape=[2] value=0.0\n"));
  EXPECT_THAT(text, HasSubstr("w.gradient = mul(x, y)\n"
                              "w.accumulator = accumulate(w.accumulator, w.gradient) mean=0\n"
                              "x.gradient = mul(w.gradient, y)\n"
                              "w.gradient.1 = mul(x.gradient, x)\n"
                              "w.accumulator.1 = accumulate(w.accumulator.1, w.gradient.1) mean=0\n"));
}

TEST(Passes, AccumulationMustNotLetGradientsWait) {
  const auto accumulated = options_with([](CompileOptions& o) { o.gradient_accumulation = 4; });
  EXPECT_THAT(verdict_on("accumulation", kTied, accumulated,
                         [](Job& job) {
                           auto& body = operations(job, job.training->micro_batch);
                           std::rotate(body.begin() + 3, body.begin() + 4, body.end());
                         }),
              HasSubstr("'w.accumulator' does not accumulate its gradient as soon as the gradient is computed"));
}

TEST(Passes, AccumulationMustZeroAndAdd) {
  const auto accumulated = options_with([](CompileOptions& o) { o.gradient_accumulation = 4; });
  EXPECT_THAT(verdict_on("accumulation", kBackward, accumulated,
                         [](Job& job) { operations(job, job.training->begin).pop_back(); }),
              HasSubstr("'w.accumulator' is not zero at the start of the step"));
  EXPECT_THAT(verdict_on("accumulation", kBackward, accumulated,
                         [](Job& job) { remove(job, job.training->micro_batch, "accumulate"); }),
              HasSubstr("'w.accumulator' does not accumulate its gradient exactly once"));
}

TEST(Passes, ExchangeAveragesGradientsStatisticsAndMetrics) {
  EXPECT_THAT(after("exchange", kBackward, options()),
              HasSubstr("repeat 1\n"
                        "w.gradient, running, train.metrics = all_reduce(w.gradient, "
                        "running, train.metrics) reduction=\"mean\"\n"));
}

TEST(Passes, ExchangeAddsTheUsesOfAParameterBeforeThem) {
  EXPECT_THAT(after("exchange", kTied, options()),
              HasSubstr("w.gradient.1 = mul(x.gradient, x)\n"
                        "repeat 1\n"
                        "w.gradient = add(w.gradient.2, w.gradient.1)\n"
                        "w.gradient, train.metrics = all_reduce(w.gradient, train.metrics) "
                        "reduction=\"mean\"\n"));
}

TEST(Passes, ExchangeMustAddTheUsesInOrder) {
  EXPECT_THAT(verdict_on("exchange", kTied, options(),
                         [](Job& job) {
                           Operation& add = operations(job, job.training->update)[0];
                           std::swap(add.inputs[0], add.inputs[1]);
                         }),
              HasSubstr("'w.gradient' is not the sum of the gradients of its parameter's uses"));
}

/// Runs the passes "accumulation" and "exchange" on `kTied`; returns the text and the verdict on it after `damage`.
std::pair<std::string, Status> accumulated(const CompileOptions& options,
                                           const std::function<void(Job&)>& damage = {}) {
  Job job = job_of(kTied);
  EXPECT_TRUE(pass_of("accumulation").run(options, job));
  const Job before = job;
  EXPECT_TRUE(pass_of("exchange").run(options, job));
  std::string text = to_text(job.graph);
  if (damage) {
    damage(job);
  }
  return {std::move(text), pass_of("exchange").verify(options, before, job)};
}

TEST(Passes, ExchangeAddsAccumulatorsInPlace) {
  const auto options = options_with([](CompileOptions& o) { o.gradient_accumulation = 4; });
  const auto [text, verdict] = accumulated(options);
  EXPECT_TRUE(verdict);
  EXPECT_THAT(text, HasSubstr("w.accumulator = accumulate(w.accumulator, w.gradient.1) mean=0\n")) << "the first use's";
  EXPECT_THAT(text, HasSubstr("repeat 1\n"
                              "w.accumulator = accumulate(w.accumulator, w.accumulator.1) mean=0\n"
                              "w.accumulator, train.metrics = all_reduce("));

  const auto mean = [](Job& job) { operations(job, job.training->update)[0].attributes.set("mean", std::int64_t{1}); };
  const auto twice = [](Job& job) {
    std::vector<Operation>& update = operations(job, job.training->update);
    update.insert(update.begin(), Operation{update[0]});
  };
  for (const std::function<void(Job&)>& damage : {std::function{mean}, std::function{twice}}) {
    const Status refused = accumulated(options, damage).second;
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message,
                HasSubstr("'w.accumulator' is not the sum of the gradients of its parameter's uses"));
  }
}

TEST(Passes, ExchangeAddsStochasticallyRoundedAccumulatorsUnderANameOfItsOwn) {
  const auto options = options_with([](CompileOptions& o) {
    o.gradient_accumulation = 4;
    o.precision = {.half = true, .stochastic_rounding = true};
  });
  EXPECT_THAT(accumulated(options).first, HasSubstr("w.accumulator = add(w.accumulator.2, w.accumulator.1)\n"));
}

TEST(Passes, AccumulatorsAndTheirSumCanStayFloat) {
  const auto precise = options_with([](CompileOptions& o) {
    o.gradient_accumulation = 4;
    o.float_accumulators = true;
  });
  Job job = job_of(kTied);
  for (const char* name : {"accumulation", "exchange"}) {
    const Job before = job;
    ASSERT_TRUE(pass_of(name).run(precise, job));
    const Status status = pass_of(name).verify(precise, before, job);
    ASSERT_TRUE(status) << status.error().message;
  }
  for (const char* name : {"w.accumulator", "w.accumulator.1"}) {
    EXPECT_TRUE(job.graph.tensor(job.graph.find(name)).keeps_f32) << name;
  }
}

TEST(Passes, AccumulationKeepsTheRunningMeanWhereAsked) {
  EXPECT_THAT(after("accumulation", kBackward, options_with([](CompileOptions& o) {
                      o.gradient_accumulation = 4;
                      o.accumulation_kind = AccumulationKind::kRunningMean;
                    })),
              HasSubstr("accumulate(w.accumulator, w.gradient) mean=1\n"));
}

TEST(Passes, UpdateDividesOnlyASumThatStandsForAMean) {
  const auto scale_of = [](AccumulationKind kind) {
    return after("update", kExchangedAndReady, options_with([kind](CompileOptions& o) {
                   o.gradient_accumulation = 4;
                   o.accumulation_kind = kind;
                 }));
  };
  EXPECT_THAT(scale_of(AccumulationKind::kMean), HasSubstr("scale=0.25"));
  EXPECT_THAT(scale_of(AccumulationKind::kSum), HasSubstr("scale=1.0"));
  EXPECT_THAT(scale_of(AccumulationKind::kRunningMean), HasSubstr("scale=1.0"));
}

TEST(Passes, ExchangeSumsGradientsAndAveragesTheRestWhereAsked) {
  const auto summed = options_with([](CompileOptions& o) { o.gradients_summed = true; });
  EXPECT_THAT(after("exchange", kBackward, summed),
              HasSubstr("w.gradient = all_reduce(w.gradient) reduction=\"sum\"\n"
                        "running, train.metrics = all_reduce(running, train.metrics) "
                        "reduction=\"mean\"\n"));
  EXPECT_THAT(verdict_on("exchange", kBackward, summed,
                         [](Job& job) {
                           auto& update = operations(job, job.training->update);
                           update[0].attributes = update[1].attributes;
                         }),
              HasSubstr("'w.gradient' is not summed over the replicas exactly once"));
}

TEST(Passes, ExchangeMustLeaveNothingOutAndAverageNothingTwice) {
  EXPECT_THAT(verdict_on("exchange", kBackward, options(),
                         [](Job& job) {
                           Operation& exchange = operations(job, job.training->update)[0];
                           exchange.inputs.erase(exchange.inputs.begin() + 1);
                           exchange.outputs.erase(exchange.outputs.begin() + 1);
                         }),
              HasSubstr("'running' is not averaged over the replicas exactly once"));
  EXPECT_THAT(verdict_on("exchange", kBackward, options(),
                         [](Job& job) {
                           auto& update = operations(job, job.training->update);
                           update.push_back(Operation{update[0]});
                         }),
              HasSubstr("is not averaged over the replicas exactly once"));
}

TEST(Passes, UpdateWritesTheTrainedParametersAndTellsTheHost) {
  EXPECT_EQ(after("update", kExchangedAndReady, options())
                .substr(after("update", kExchangedAndReady, options()).rfind("repeat 1\n")),
            "repeat 1\n"
            "w.gradient, running, train.metrics = all_reduce(w.gradient, running, "
            "train.metrics) reduction=\"mean\"\n"
            "w = sgd(w, w.gradient, learning-rate) scale=1.0 weight_decay=0.0\n"
            "stream_out(train.metrics) stream=\"step\"\n");
}

TEST(Passes, UpdateMustWriteTrainedParametersOnceAndNoOthers) {
  EXPECT_THAT(
      verdict_on("update", kExchangedAndReady, options(), [](Job& job) { remove(job, job.training->update, "sgd"); }),
      HasSubstr("'w' is not updated exactly once per step"));
  EXPECT_THAT(
      verdict_on("update", kExchangedAndReady, options(),
                 [](Job& job) {
                   operations(job, job.training->update)[0].outputs = {job.graph.find("w"), job.graph.find("v")};
                 }),
      HasSubstr("'v' is not trained, but is written"));
}

TEST(Passes, PrecisionStoresWhatIsComputedInHalf) {
  const std::string text =
      after("precision", kForward, options_with([](CompileOptions& o) { o.precision.half = true; }));
  EXPECT_EQ(text.substr(0, text.find("function")), "w : f16[2]\ny : f16[2]\n");
}

TEST(Passes, PrecisionMustLeaveStreamsAlone) {
  EXPECT_THAT(verdict_on("precision", kForward, options_with([](CompileOptions& o) { o.precision.half = true; }),
                         [](Job& job) { job.graph.set_data_type(job.graph.find("x"), DataType::kF16); }),
              HasSubstr("'x' must stay float32"));
}

TEST(Passes, UpdateMustComeBehindTheExchange) {
  EXPECT_THAT(verdict_on("update", kExchangedAndReady, options(),
                         [](Job& job) {
                           auto& update = operations(job, job.training->update);
                           std::rotate(update.begin(), update.begin() + 1, update.begin() + 2);
                         }),
              HasSubstr("'w' is updated before the exchange"));
}

TEST(Passes, PipelineMustCallEveryPart) {
  EXPECT_THAT(verdict_on("pipeline", kForward, options(),
                         [](Job& job) {
                           Function& train = job.graph.functions.at(job.training->begin.function);
                           for (Region& region : train.regions) {
                             std::erase_if(region.operations,
                                           [](const Operation& operation) { return operation.kind == "call"; });
                           }
                         }),
              HasSubstr("pass pipeline: nothing calls forward.0"));
}

/// A step whose exchange can begin early.
constexpr std::string_view kExchanged = R"(
    tensor w : f32[4] parameter
    tensor x : f32[4] stream
    tensor w.gradient : f32[4] gradient
    tensor z : f32[4] activation
    function train
    repeat 1
    repeat 1
    x = stream_in() stream="train"
    w.gradient = relu(x)
    z = relu(x)
    repeat 1
    w.gradient = all_reduce(w.gradient) reduction="mean"
    stream_out(w.gradient) stream="step"
)";

TEST(Passes, NobodyMayUseAGradientWhileItTravels) {
  const auto buckets = options_with([](CompileOptions& o) { o.gradient_bucket = Bytes{1}; });
  EXPECT_THAT(verdict_on("background-exchange", kExchanged, buckets,
                         [](Job& job) {
                           operations(job, job.training->micro_batch).back().inputs = {job.graph.find("w.gradient")};
                         }),
              HasSubstr("'w.gradient' is used by relu during its reduction"));
  EXPECT_THAT(verdict_on("background-exchange", kExchanged, buckets,
                         [](Job& job) { remove(job, job.training->update, "await_all_reduces"); }),
              HasSubstr("'w.gradient' is used by stream_out during its reduction"));
  EXPECT_THAT(verdict_on("background-exchange", kExchanged, buckets,
                         [](Job& job) {
                           Operation& wait = operations(job, job.training->update)[0];
                           wait.inputs = wait.outputs = {job.graph.find("z")};
                         }),
              HasSubstr("'w.gradient' is used by stream_out during its reduction"));
  EXPECT_THAT(verdict_on("background-exchange", kExchanged, buckets,
                         [](Job& job) { remove(job, job.training->micro_batch, "all_reduce"); }),
              HasSubstr("a step no longer reduces the same tensors"));
}

/// Returns the verdict of `verify_operations` on a graph with one operation.
std::string verdict_on(std::string_view tensors, std::string_view operation) {
  const auto graph = parse_graph(std::string{tensors} +
                                 "\nfunction f\nrepeat 1\nx = stream_in() "
                                 "stream=\"s\"\n" +
                                 std::string{operation} + "\n");
  EXPECT_TRUE(graph) << graph.error().message;
  const Status status = verify_operations(*graph);
  return status ? "" : status.error().message;
}

TEST(VerifyOperations, FindsWhatNoPassMayLeaveBehind) {
  constexpr std::string_view kTensors =
      "tensor x : f32[2] stream\ntensor y : f32[2] activation\ntensor z : f32[3] activation";
  EXPECT_EQ(verdict_on(kTensors, "y = relu(x)"), "");
  EXPECT_THAT(verdict_on(kTensors, "z = relu(x)"),
              HasSubstr("function f: relu: 'z' is f32[3], but the operation produces f32[2]"));
  EXPECT_THAT(verdict_on(kTensors, "y = rellu(x)"), HasSubstr("rellu: unknown operation"));
  EXPECT_THAT(verdict_on(kTensors, "y = relu(z)"), HasSubstr("reads the unwritten tensor 'z'"));
  EXPECT_THAT(verdict_on(kTensors, "x = all_reduce(x) reduction=\"least\""),
              HasSubstr("all_reduce accepts reduction="));
  EXPECT_THAT(verdict_on(kTensors, "x = all_reduce(x) background=2 reduction=\"sum\""),
              HasSubstr("all_reduce accepts reduction="));
  EXPECT_THAT(verdict_on(kTensors, "x = all_reduce(x) reduction=1"), HasSubstr("all_reduce accepts reduction="));
  EXPECT_THAT(verdict_on(kTensors, "y = all_reduce(x) reduction=\"sum\""), HasSubstr("every tensor in place"));
  EXPECT_THAT(verdict_on(kTensors, "stream_out(x) flow=\"s\""), HasSubstr("stream=\"NAME\""));
  EXPECT_THAT(verdict_on(kTensors, "y = initialise() uniform=1"), HasSubstr("a real number"));
  EXPECT_EQ(verdict_on("tensor x : f32[2] stream\ntensor i : i32[2] constant", "i = initialise() constant=0.0"), "");
  EXPECT_THAT(verdict_on("tensor x : f32[2] stream\ntensor i : i32[2] constant", "i = initialise() normal=1.0"),
              HasSubstr("for integers, only constant"));
}

}  // namespace
}  // namespace poprun::passes_test
