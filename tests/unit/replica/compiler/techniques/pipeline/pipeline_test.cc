/// Pipelines: how a micro-batch is cut into parts, where tensors are stored, what waits and what moves.

#include "replica/compiler/techniques/pipeline/pipeline.h"

#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compilation/job_inputs.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/texts.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::pipeline_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

/// Three stages with one forward operation each. Stage 1 owns w1 and has three backward operations; stages 0 and 2 read
/// x.
constexpr std::string_view kThreeStages = R"(
    tensor w1 : f32[4] parameter
    tensor rate : f32[] stream
    tensor sum : f32[4] gradient
    tensor x : f32[4] stream
    tensor y : f32[4] stream
    tensor a : f32[4] activation
    tensor b : f32[4] activation
    tensor c : f32[4] activation
    tensor dc : f32[4] activation
    tensor db : f32[4] activation
    tensor dw : f32[4] gradient
    function load
    repeat 1
    w1 = initialise() constant=1.0
    function train
    repeat 1
    rate = stream_in() stream="control"
    sum = fill() shape=[4] value=0.0
    repeat 8
    x, y = stream_in() stream="train"
    a = relu(x)
    @:1:forward b = mul(a, w1)
    @:2:forward c = add(b, x)
    @:2:backward dc = mul(c, y)
    @:1:backward db = mul(dc, w1)
    @:1:backward dw = mul(dc, a)
    @:1:backward sum = accumulate(sum, dw) mean=0
    repeat 1
    w1 = sgd(w1, sum, rate) nesterov=0
)";

Job job_of(std::string_view text, std::vector<std::uint32_t> ipu_of_stage) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph) << graph.error().message;
  Job job;
  job.graph = std::move(*graph);
  job.ipu_of_stage = std::move(ipu_of_stage);
  job.training = TrainingStep{.begin = {1, 0},
                              .micro_batch = {1, 1},
                              .update = {1, 2},
                              .scalars = {.rate = job.graph.find("rate"), .step = job.graph.find("rate")},
                              .metrics = job.graph.find("rate"),
                              .loss = job.graph.find("c"),
                              .gradients = {{job.graph.find("w1"), job.graph.find("sum")}}};
  return job;
}

/// Returns the lines of a function, as graphs print them.
std::string function_of(const Graph& graph, const std::string& name) {
  const std::string text = to_text(graph);
  const std::size_t begin = text.find("function " + name + "\n");
  const std::size_t end = text.find("function ", begin + 1);
  return begin == std::string::npos ? "" : text.substr(begin, end - begin);
}

Graph pipeline_of(Schedule schedule, std::vector<std::uint32_t> ipu_of_stage = {0, 1, 2}) {
  Job job = job_of(kThreeStages, std::move(ipu_of_stage));
  const Status status = make_pipeline(job, schedule);
  EXPECT_TRUE(status) << status.error().message;
  return job.graph;
}

TEST(Pipeline, GivesEachStageItsTensorsOfTheBatchAndItsOwnCopies) {
  const Graph graph = pipeline_of(Schedule::kGrouped);

  EXPECT_EQ(function_of(graph, "forward.0"),
            "function forward.0\nrepeat 1\n"
            "x = stream_in() fields=[0] stream=\"train\"\n"
            "a = relu(x)\n");
  EXPECT_EQ(function_of(graph, "forward.1"),
            "function forward.1\nrepeat 1\n"
            "@:1:forward a@stage1.stash = stash(a@stage1)\n"
            "@:1:forward b = mul(a@stage1, w1)\n");
  EXPECT_EQ(function_of(graph, "forward.2"),
            "function forward.2\nrepeat 1\n"
            "@:2:forward x@stage2, y = stream_in() stream=\"train\"\n"
            "@:2:forward c = add(b@stage2, x@stage2)\n");
  EXPECT_EQ(function_of(graph, "backward.2"), "function backward.2\nrepeat 1\n@:2:backward dc = mul(c, y)\n");
  EXPECT_THAT(function_of(graph, "backward.1"), HasSubstr("a@stage1.restored = restore(a@stage1.stash)\n"
                                                          "@:1:backward dw = mul(dc@stage1, a@stage1.restored)\n"));
}

TEST(Pipeline, MovesWhatCrossesBehindEachCycle) {
  const std::string train = function_of(pipeline_of(Schedule::kGrouped), "train");

  EXPECT_THAT(train, HasSubstr("call() function=\"forward.0\" micro_batch=0\n"
                               "a@stage1 = copy(a)\n"
                               "call() function=\"forward.0\" micro_batch=1\n"
                               "call() function=\"forward.1\" micro_batch=0\n"
                               "b@stage2, a@stage1 = copy(b, a)\n"));
  EXPECT_THAT(train, HasSubstr("repeat 4\n")) << "a steady state of 8 - 2 * 2 cycles";
}

TEST(Pipeline, MovesWithinAnIpuApartFromWhatOthersWaitFor) {
  const std::string train = function_of(pipeline_of(Schedule::kGrouped, {0, 0, 1}), "train");

  EXPECT_THAT(train, HasSubstr("call() function=\"forward.1\" micro_batch=0\n"
                               "b@stage2 = copy(b)\n"
                               "a@stage1 = copy(a)\n"));
}

TEST(Pipeline, KeepsWhatCrossesPhasesForEveryMicroBatch) {
  const Graph graph = pipeline_of(Schedule::kPhased, {0, 0, 0});

  EXPECT_EQ(function_of(graph, "forward.0"),
            "function forward.0\nrepeat 1\n"
            "x = stream_in() fields=[0] stream=\"train\"\n"
            "a = relu(x)\n"
            "a.stash = stash(a)\n");
  EXPECT_EQ(function_of(graph, "forward.1"),
            "function forward.1\nrepeat 1\n"
            "@:1:forward a@stage1 = restore(a.stash)\n"
            "@:1:forward b = mul(a@stage1, w1)\n"
            "@:1:forward b.stash = stash(b)\n");
  EXPECT_EQ(function_of(graph, "forward.2"),
            "function forward.2\nrepeat 1\n"
            "@:2:forward x@stage2, y = stream_in() stream=\"train\"\n"
            "@:2:forward b@stage2 = restore(b.stash)\n"
            "@:2:forward c = add(b@stage2, x@stage2)\n");
  EXPECT_EQ(function_of(graph, "backward.2"),
            "function backward.2\nrepeat 1\n"
            "@:2:backward dc = mul(c, y)\n"
            "@:2:backward dc.stash = stash(dc)\n");
  EXPECT_EQ(function_of(graph, "backward.1"),
            "function backward.1\nrepeat 1\n"
            "@:1:backward dc@stage1 = restore(dc.stash)\n"
            "@:1:backward db = mul(dc@stage1, w1)\n"
            "@:1:backward a.restored = restore(a.stash)\n"
            "@:1:backward dw = mul(dc@stage1, a.restored)\n"
            "@:1:backward sum = accumulate(sum, dw) mean=0\n");
  EXPECT_EQ(to_text(graph.tensor(graph.find("a.stash")).type), "f32[8,4]");
  EXPECT_THAT(function_of(graph, "train"), HasSubstr("repeat 8\n"
                                                     "call() function=\"forward.0\" micro_batch=0\n"
                                                     "repeat 1\n"
                                                     "repeat 8\n"
                                                     "call() function=\"forward.1\" micro_batch=0\n"
                                                     "repeat 1\n"
                                                     "repeat 8\n"
                                                     "call() function=\"forward.2\" micro_batch=0\n"
                                                     "call() function=\"backward.2\" micro_batch=0\n"
                                                     "repeat 1\n"
                                                     "sum = fill() shape=[4] value=0.0\n"
                                                     "repeat 8\n"
                                                     "call() function=\"backward.1\" micro_batch=0\n"
                                                     "repeat 1\n"
                                                     "w1 = sgd(w1, sum, rate) nesterov=0\n"));
}

/// Two stages with one weight each, and a third weight whose update needs the gradients of both stages.
constexpr std::string_view kTwoWeights = R"(
    tensor v : f32[4] parameter
    tensor w : f32[4] parameter
    tensor u : f32[4] parameter
    tensor rate : f32[] stream
    tensor v.sum : f32[4] gradient
    tensor w.sum : f32[4] gradient
    tensor both : f32[4] gradient
    tensor loss : f32[4] metric
    tensor x : f32[4] stream
    tensor a : f32[4] activation
    tensor b : f32[4] activation
    tensor db : f32[4] activation
    tensor da : f32[4] activation
    tensor dv : f32[4] gradient
    tensor dw : f32[4] gradient
    function load
    repeat 1
    v = initialise() constant=1.0
    w = initialise() constant=1.0
    u = initialise() constant=1.0
    function train
    repeat 1
    rate = stream_in() stream="control"
    v.sum = fill() shape=[4] value=0.0
    w.sum = fill() shape=[4] value=0.0
    repeat 8
    x = stream_in() stream="train"
    a = mul(x, v)
    @:1:forward b = mul(a, w)
    @:1:forward loss = relu(b)
    @:1:backward db = relu(b)
    @:1:backward dw = mul(db, a)
    @:1:backward w.sum = accumulate(w.sum, dw) mean=0
    @:1:backward da = mul(db, w)
    @:0:backward dv = mul(da, x)
    @:0:backward v.sum = accumulate(v.sum, dv) mean=0
    repeat 1
    v.sum, w.sum, loss = all_reduce(v.sum, w.sum, loss) reduction="mean"
    both = add(v.sum, w.sum)
    u = sgd(u, both, rate) nesterov=0
    v = sgd(v, v.sum, rate) nesterov=0
    w = sgd(w, w.sum, rate) nesterov=0
    stream_out(loss) stream="step"
)";

TEST(Pipeline, UpdatesAPhasesOwnWeightsAsItEnds) {
  Job job = job_of(kThreeStages, {0, 0});
  job.graph = *parse_graph(kTwoWeights);
  job.training->gradients = {{job.graph.find("v"), job.graph.find("v.sum")}};
  job.training->scalars = {.rate = job.graph.find("rate"), .step = job.graph.find("rate")};
  job.training->metrics = job.graph.find("loss");
  job.training->loss = job.graph.find("loss");
  ASSERT_TRUE(make_pipeline(job, Schedule::kPhased));

  const Graph& graph = job.graph;
  EXPECT_EQ(function_of(graph, "train"),
            "function train\nrepeat 1\n"
            "rate = stream_in() stream=\"control\"\n"
            "repeat 8\n"
            "call() function=\"forward.0\" micro_batch=0\n"
            "repeat 1\n"
            "w.sum = fill() shape=[4] value=0.0\n"
            "repeat 8\n"
            "call() function=\"forward.1\" micro_batch=0\n"
            "call() function=\"backward.1\" micro_batch=0\n"
            "repeat 1\n"
            "w.sum = all_reduce(w.sum) reduction=\"mean\"\n"
            "w = sgd(w, w.sum, rate) nesterov=0\n"
            "v.sum = fill() shape=[4] value=0.0\n"
            "repeat 8\n"
            "call() function=\"backward.0\" micro_batch=0\n"
            "repeat 1\n"
            "v.sum, loss = all_reduce(v.sum, loss) reduction=\"mean\"\n"
            "both = add(v.sum, w.sum)\n"
            "u = sgd(u, both, rate) nesterov=0\n"
            "v = sgd(v, v.sum, rate) nesterov=0\n"
            "stream_out(loss) stream=\"step\"\n");
}

TEST(Pipeline, BringsWhatOtherIpusHoldBeforeAPhaseBegins) {
  const Graph graph = pipeline_of(Schedule::kPhased, {0, 1, 0});

  EXPECT_THAT(function_of(graph, "train"), HasSubstr("repeat 8\n"
                                                     "call() function=\"forward.0\" micro_batch=0\n"
                                                     "repeat 8\n"
                                                     "call() function=\"bring.forward.1\" micro_batch=0\n"
                                                     "repeat 1\n"
                                                     "repeat 8\n"
                                                     "call() function=\"forward.1\" micro_batch=0\n"));
  EXPECT_EQ(function_of(graph, "bring.forward.1"),
            "function bring.forward.1\nrepeat 1\n"
            "a.sent = restore(a.stash)\n"
            "a.arrived = copy(a.sent)\n"
            "a.stash@ipu1 = stash(a.arrived)\n");
  EXPECT_THAT(function_of(graph, "forward.1"), HasSubstr("a@stage1 = restore(a.stash@ipu1)\n"));
  EXPECT_EQ(graph.tensor(graph.find("a.stash@ipu1")).ipu, 1U);
}

TEST(Pipeline, PutsVariablesWhereTheyAreUsed) {
  const Graph graph = pipeline_of(Schedule::kGrouped);

  const auto ipu = [&](const char* name) { return graph.tensor(graph.find(name)).ipu; };
  EXPECT_EQ(ipu("w1"), 1U);
  EXPECT_EQ(ipu("sum"), 1U);
  EXPECT_EQ(ipu("rate"), 0U);
  EXPECT_EQ(ipu("rate@ipu1"), 1U);
  EXPECT_EQ(ipu("a"), 0U);
  EXPECT_EQ(ipu("a@stage1.stash"), 1U);
  EXPECT_EQ(ipu("c"), 2U);
  EXPECT_THAT(function_of(graph, "train"), HasSubstr("sum = fill() shape=[4] value=0.0\nrate@ipu1 = copy(rate)\n"));
  EXPECT_THAT(function_of(graph, "train"), HasSubstr("w1 = sgd(w1, sum, rate@ipu1) nesterov=0\n"));
}

TEST(Pipeline, UpdatesWhatNeedsNoOtherIpuFirst) {
  std::string tied{kThreeStages};
  const auto insert = [&tied](const std::string& before, const std::string& lines) {
    tied.insert(tied.find(before), lines);
  };
  insert("tensor x :",
         "tensor v : f32[4] parameter\n    tensor sumv : f32[4] gradient\n    "
         "tensor more : f32[4] gradient\n    tensor e : f32[4] activation\n    ");
  insert("@:2:backward dc", "@:2:forward e = mul(c, v)\n    ");
  insert("@:1:backward db",
         "@:2:backward sumv = accumulate(sumv, e) mean=0\n    "
         "@:2:backward more = accumulate(more, e) mean=0\n    ");
  insert("w1 = sgd(", "sum = add(sum, more)\n    v = sgd(v, sumv, rate) nesterov=0\n    ");
  Job job = job_of(tied, {0, 1, 2});
  ASSERT_TRUE(make_pipeline(job, Schedule::kGrouped));

  EXPECT_THAT(function_of(job.graph, "train"), HasSubstr("repeat 1\n"
                                                         "v = sgd(v, sumv, rate@ipu2) nesterov=0\n"
                                                         "more@ipu1 = copy(more)\n"
                                                         "sum = add(sum, more@ipu1)\n"
                                                         "w1 = sgd(w1, sum, rate@ipu1) nesterov=0\n"));
}

TEST(Pipeline, OfStagesThatShareAnIpuStillHasAPlaceForEach) {
  const Graph graph = pipeline_of(Schedule::kInterleaved, {0, 1, 0});

  EXPECT_EQ(graph.tensor(graph.find("b@stage2")).ipu, 0U);
  EXPECT_EQ(graph.tensor(graph.find("c")).ipu, 0U);
  EXPECT_FALSE(graph.has("rate@ipu2"));
}

TEST(Pipeline, KeepsToTheIpusOfItsStages) {
  const Graph graph = pipeline_of(Schedule::kGrouped, {2, 1, 2});

  EXPECT_EQ(graph.tensor(graph.find("rate")).ipu, 2U) << "the first stage's";
  for (const Tensor& tensor : graph.tensors()) {
    EXPECT_NE(tensor.ipu, 0U) << tensor.name;
  }
}

/// Returns the notes on a variant of `kThreeStages` in which stages 1 and 2 both use w1, which has `elements` elements.
std::vector<std::string> notes_of_shared_weight(std::int64_t elements, std::vector<std::uint32_t> ipu_of_stage) {
  std::string text{kThreeStages};
  const std::string multiply = "c = add(b, x)";
  text.replace(text.find(multiply), multiply.size(), "c = mul(b, w1)");
  for (std::size_t at = text.find("[4]"); at != std::string::npos; at = text.find("[4]")) {
    text.replace(at, 3, fmt::format("[{}]", elements));
  }
  Job job = job_of(text, std::move(ipu_of_stage));
  EXPECT_TRUE(make_pipeline(job, Schedule::kGrouped));
  return testing::texts(job.notes);
}

TEST(Pipeline, SaysWhatWeightsOfTwoIpusCost) {
  EXPECT_THAT(notes_of_shared_weight(1 << 20, {0, 1, 2}),
              ElementsAre("IPUs 1 and 2 use w1: each step copies these 4.0 MiB from IPU 1 and "
                          "gradients of that size back; to avoid this, put the stages that use it "
                          "on one IPU with pipeline.device-mapping"));
  EXPECT_THAT(notes_of_shared_weight(1 << 20, {0, 1, 1}), ElementsAre());
  EXPECT_THAT(notes_of_shared_weight(1 << 10, {0, 1, 2}), ElementsAre()) << "too small to matter";
}

TEST(Pipeline, OfOneStageHasNoStashAndNoCopy) {
  std::string plain{kThreeStages};
  for (const char* stage : {"@:1:", "@:2:"}) {
    for (std::size_t at = plain.find(stage); at != std::string::npos; at = plain.find(stage)) {
      plain.replace(at, 4, "@:0:");
    }
  }
  Job job = job_of(plain, {0});
  ASSERT_TRUE(make_pipeline(job, Schedule::kGrouped));

  const std::string text = to_text(job.graph);
  EXPECT_THAT(text, Not(HasSubstr("stash")));
  EXPECT_THAT(text, Not(HasSubstr("copy(")));
  EXPECT_THAT(function_of(job.graph, "train"), HasSubstr("repeat 8\ncall() function=\"forward.0\" micro_batch=0\n"
                                                         "call() function=\"backward.0\" micro_batch=0\n"));
}

TEST(Pipeline, CallsNoPartThatHasNothingToDo) {
  auto options = compile_options(testing::config(1, 2), testing::dataset());
  ASSERT_TRUE(options) << options.error().message;
  options->ipus_per_replica = 3;
  options->gradient_accumulation = 4;
  options->pipeline.layers_per_ipu = {1, 1, -1};
  options->pipeline.recomputation = Recomputation::kNone;
  options->frozen = "conv";

  const auto program = compile(*options);

  ASSERT_TRUE(program) << program.error().message;
  EXPECT_NE(find_function(*program, "backward.2"), nullptr);
  EXPECT_EQ(find_function(*program, "backward.1"), nullptr) << "conv2 is frozen";
  EXPECT_EQ(find_function(*program, "backward.0"), nullptr);
}

TEST(Pipeline, NumbersItsTensorsWhereTheModelHasTheirNames) {
  std::string taken{kThreeStages};
  taken.replace(taken.find("tensor db"), 9, "tensor a@stage1");
  for (std::size_t at = taken.find("db = "); at != std::string::npos; at = taken.find("db = ")) {
    taken.replace(at, 2, "a@stage1");
  }
  Job job = job_of(taken, {0, 1, 2});

  ASSERT_TRUE(make_pipeline(job, Schedule::kGrouped));

  EXPECT_TRUE(job.graph.has("a@stage1.1"));
}

TEST(Pipeline, RefusesAVariableThatTwoIpusChange) {
  std::string both{kThreeStages};
  const std::string update = "@:2:backward dc = mul(c, y)\n";
  both.insert(both.find(update),
              "@:0:forward rate = accumulate(rate, rate) mean=0\n    "
              "@:2:forward rate = accumulate(rate, rate) mean=0\n    ");
  Job job = job_of(both, {0, 1, 2});

  const Status status = make_pipeline(job, Schedule::kGrouped);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(status.error().message, HasSubstr("'rate' is updated by stage 2 on IPU 2, but is stored on IPU 0"));
}

/// Returns the stash length on each IPU in small-cnn's Program.
std::map<std::uint32_t, std::int64_t> stash_lengths(Schedule schedule, std::int64_t micro_batches, std::int64_t ipus) {
  auto options = compile_options(testing::config(1, 2), testing::dataset());
  EXPECT_TRUE(options) << options.error().message;
  options->ipus_per_replica = ipus;
  options->gradient_accumulation = micro_batches;
  options->pipeline.schedule = schedule;
  options->pipeline.recomputation = Recomputation::kNone;
  const auto program = compile(*options);
  EXPECT_TRUE(program) << program.error().message;
  std::map<std::uint32_t, std::int64_t> lengths;
  for (const proto::Tensor& tensor : program->tensors()) {
    if (tensor.name().ends_with(".stash")) {
      const std::int64_t length = parse_type(tensor.type())->shape.at(0);
      const auto [entry, first] = lengths.emplace(tensor.placement().ipu(), length);
      EXPECT_EQ(entry->second, length) << tensor.name();
    }
  }
  return lengths;
}

TEST(Pipeline, HasTheDocumentedStashLengths) {
  EXPECT_THAT(stash_lengths(Schedule::kGrouped, 12, 3), ElementsAre(Pair(0, 5), Pair(1, 3)));
  EXPECT_THAT(stash_lengths(Schedule::kInterleaved, 12, 3), ElementsAre(Pair(0, 3), Pair(1, 2)));
  EXPECT_THAT(stash_lengths(Schedule::kSequential, 12, 3), ElementsAre());
  EXPECT_THAT(stash_lengths(Schedule::kGrouped, 12, 4), ElementsAre(Pair(0, 7), Pair(1, 5), Pair(2, 3)));
  EXPECT_THAT(stash_lengths(Schedule::kGrouped, 4, 4), ElementsAre(Pair(0, 4), Pair(1, 4), Pair(2, 3)));
  EXPECT_THAT(stash_lengths(Schedule::kGrouped, 1, 4), ElementsAre());
}

TEST(Pipeline, SaysWhatTooFewMicroBatchesCost) {
  auto options = compile_options(testing::config(1, 2), testing::dataset());
  ASSERT_TRUE(options) << options.error().message;
  options->ipus_per_replica = 4;
  const auto few = compile(*options);
  ASSERT_TRUE(few) << few.error().message;
  EXPECT_THAT(testing::texts(few->notes()),
              ::testing::Contains("with training.gradient-accumulation = 1, 4 equal stages would "
                                  "be busy for 25.0 % of a step; with 32, they would be busy for 91.4 %"));

  options->gradient_accumulation = 4;
  const auto enough = compile(*options);
  ASSERT_TRUE(enough);
  EXPECT_THAT(testing::texts(enough->notes()), Not(::testing::Contains(HasSubstr("equal stages would"))));
}

TEST(Pipeline, SaysThatInterleavedIsGroupedInInference) {
  auto config = testing::config(1, 2);
  config.mutable_pipeline()->set_schedule("interleaved");
  config.mutable_topology()->set_ipus_per_replica(2);
  const auto notes = [&config] {
    const auto program = compile(*compile_options(config, testing::dataset()));
    EXPECT_TRUE(program) << program.error().message;
    return testing::texts(program->notes());
  };
  const auto note = HasSubstr("pipeline.schedule = interleaved is the same as grouped");
  EXPECT_THAT(notes(), Not(::testing::Contains(note)));
  config.set_inference(true);
  EXPECT_THAT(notes(), ::testing::Contains(note));
}

TEST(Pipeline, SaysThatBucketsHaveNoEffect) {
  auto options = compile_options(testing::config(2, 2), testing::dataset());
  ASSERT_TRUE(options) << options.error().message;
  options->ipus_per_replica = 2;
  options->gradient_bucket = Bytes{1024};

  const auto program = compile(*options);

  ASSERT_TRUE(program) << program.error().message;
  EXPECT_THAT(testing::texts(program->notes()),
              ::testing::Contains(HasSubstr("training.gradient-bucket has no effect with several")));
}

}  // namespace
}  // namespace poprun::pipeline_test
