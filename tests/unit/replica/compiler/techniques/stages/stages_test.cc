/// The pass "stages": which operation belongs to which pipeline stage, for each of the three ways to specify stages.

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/passes.h"
#include "replica/compiler/techniques/stages/stage_cuts.h"
#include "tests/unit/replica/texts.h"

namespace poprun::stages_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Four counted layers between embeddings and head, which share a weight; layer "b" has dropout in training only.
constexpr std::string_view kModel = R"(
    layer embeddings uncounted
    layer a
    layer b
    layer c
    layer d
    layer head uncounted
    tensor w : f32[64] parameter
    tensor v : f32[2] parameter
    tensor train.metrics : f32[] metric
    tensor x : f32[64] stream
    tensor x0 : f32[64] activation
    tensor xa : f32[64] activation
    tensor xb : f32[64] activation
    tensor dropped : f32[64] activation
    tensor xc : f32[64] activation
    tensor xd : f32[64] activation
    tensor loss : f32[] activation
    tensor evaluate/x : f32[64] stream
    tensor evaluate/x0 : f32[64] activation
    tensor evaluate/xa : f32[64] activation
    tensor evaluate/xb : f32[64] activation
    tensor evaluate/xc : f32[64] activation
    tensor evaluate/xd : f32[64] activation
    tensor evaluate/logits : f32[64] activation
    function load
    repeat 1
    w = initialise() constant=1.0
    v = initialise() constant=1.0
    function train
    repeat 1
    train.metrics = fill() shape=[] value=0.0
    repeat 1
    x = stream_in() stream="train"
    @embeddings:0:forward x0 = mul(x, w)
    @a:0:forward xa = relu(x0)
    @b:0:forward xb = relu(xa)
    @b:0:forward dropped = dropout(xb) key="b" rate=0.5
    @c:0:forward xc = relu(dropped)
    @d:0:forward xd = relu(xc)
    @head:0:forward loss = sum_to(xd) layout="row-major" shape=[]
    train.metrics = add(train.metrics, loss)
    repeat 1
    function evaluate
    repeat 1
    evaluate/x = stream_in() stream="test"
    @embeddings:0:forward evaluate/x0 = mul(evaluate/x, w)
    @a:0:forward evaluate/xa = relu(evaluate/x0)
    @b:0:forward evaluate/xb = relu(evaluate/xa)
    @c:0:forward evaluate/xc = relu(evaluate/xb)
    @d:0:forward evaluate/xd = relu(evaluate/xc)
    @head:0:forward evaluate/logits = mul(evaluate/xd, w)
)";

Job job_of(std::string_view text) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph) << graph.error().message;
  Job job;
  job.graph = *graph;
  TrainingStep& step = job.training.emplace();
  step.begin = {1, 0};
  step.micro_batch = {1, 1};
  step.update = {1, 2};
  step.metrics = job.graph.find("train.metrics");
  step.loss = job.graph.find("loss");
  job.evaluation = Place{2, 0};
  return job;
}

const Pass& stages() {
  return *std::ranges::find(all_passes(), "stages", &Pass::name);
}

CompileOptions options(std::int64_t ipus, PipelineOptions pipeline = {}) {
  CompileOptions options;
  options.model = "net";
  options.device = *find_device("mk2");
  options.ipus_per_replica = ipus;
  options.pipeline = std::move(pipeline);
  options.optimizer.name = "sgd";
  return options;
}

CompileOptions with_layers(std::vector<std::int64_t> layers) {
  const auto stages = static_cast<std::int64_t>(layers.size());
  return options(stages, {.layers_per_ipu = std::move(layers)});
}

CompileOptions with_split(std::vector<std::string> names) {
  const auto stages = static_cast<std::int64_t>(names.size()) + 1;
  return options(stages, {.split = std::move(names)});
}

/// Returns the job after the pass, or why it is refused.
Result<Job> after(const CompileOptions& options, std::string_view text = kModel) {
  const Job before = job_of(text);
  Job job = before;
  POPRUN_TRY(stages().run(options, job));
  POPRUN_TRY(stages().verify(options, before, job));
  return job;
}

/// Returns the output and the stage of each operation of a region, as in "x:0 xa:1", or the error.
std::string stages_in(const CompileOptions& options, Place place, std::string_view text = kModel) {
  const auto job = after(options, text);
  if (!job) {
    return job.error().message;
  }
  std::vector<std::string> parts;
  for (const Operation& operation : job->graph.at(place).operations) {
    parts.push_back(fmt::format("{}:{}", job->graph.tensor(operation.outputs.at(0)).name, operation.origin.stage));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

std::string training(const CompileOptions& options) {
  return stages_in(options, {1, 1});
}

std::string evaluation(const CompileOptions& options) {
  return stages_in(options, {2, 0});
}

constexpr const char* kLayers = "; layers: a, b, c, d";

TEST(Stages, HoldAsManyLayersAsEachIsGiven) {
  EXPECT_EQ(training(with_layers({1, 3})), "x:0 x0:0 xa:0 xb:1 dropped:1 xc:1 xd:1 loss:1 train.metrics:1");
  EXPECT_EQ(evaluation(with_layers({1, 3})),
            "evaluate/x:0 evaluate/x0:0 evaluate/xa:0 evaluate/xb:1 evaluate/xc:1 evaluate/xd:1 "
            "evaluate/logits:1");
  EXPECT_EQ(training(with_layers({2, -1, 1})), "x:0 x0:0 xa:0 xb:0 dropped:0 xc:1 xd:2 loss:2 train.metrics:2");
}

TEST(Stages, OfNoCountedLayersHoldEmbeddingsOrHeadAlone) {
  EXPECT_EQ(training(with_layers({0, 4, 0})), "x:0 x0:0 xa:1 xb:1 dropped:1 xc:1 xd:1 loss:2 train.metrics:2");
}

TEST(Stages, MayBeginAtALayerOrATensor) {
  EXPECT_EQ(training(with_split({"c"})), "x:0 x0:0 xa:0 xb:0 dropped:0 xc:1 xd:1 loss:1 train.metrics:1");
  EXPECT_EQ(training(with_split({"xb", "loss"})), "x:0 x0:0 xa:0 xb:1 dropped:1 xc:1 xd:1 loss:2 train.metrics:2");
}

TEST(Stages, OfEvaluationBeginWhereThoseOfTrainingDo) {
  const CompileOptions options = with_split({"dropped"});
  EXPECT_EQ(training(options), "x:0 x0:0 xa:0 xb:0 dropped:1 xc:1 xd:1 loss:1 train.metrics:1");
  EXPECT_EQ(evaluation(options),
            "evaluate/x:0 evaluate/x0:0 evaluate/xa:0 evaluate/xb:0 evaluate/xc:1 evaluate/xd:1 "
            "evaluate/logits:1");
}

TEST(Stages, OfInferenceAreThoseOfEvaluation) {
  CompileOptions inference = with_split({"xc"});
  inference.inference = true;
  Job job = job_of(kModel);
  job.training.reset();
  ASSERT_TRUE(stages().run(inference, job));
  EXPECT_EQ(job.graph.at({2, 0}).operations[4].origin.stage, 1U);
  EXPECT_EQ(job.ipu_of_stage.size(), 2U);
}

TEST(Stages, MayShareAnIpu) {
  CompileOptions shared = options(2, {.layers_per_ipu = {0, 4, 0}, .device_mapping = {0, 1, 0}});
  const auto job = after(shared);
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_THAT(job->ipu_of_stage, ElementsAre(0, 1, 0));
  EXPECT_THAT(testing::texts(job->notes),
              ElementsAre("stage 0 on IPU 0: embeddings, 64 parameters",
                          "stage 1 on IPU 1: a to d (4 layers), 0 parameters", "stage 2 on IPU 0: head, 0 parameters"));
}

TEST(Stages, OfAPhasedJobTakeTurnsOnItsIpus) {
  CompileOptions phased = options(2, {.layers_per_ipu = {1, 2, 1}});
  phased.pipeline.phases = 3;
  phased.pipeline.phase_ipus = 2;
  const auto job = after(phased);
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_THAT(job->ipu_of_stage, ElementsAre(0, 1, 0));
  EXPECT_EQ(job->notes.at(1).text, "phase 1 on IPU 1: b, c, 0 parameters");

  phased.pipeline.layers_per_ipu.clear();
  phased.pipeline.phases = 6;
  phased.pipeline.phase_ipus = 1;
  phased.ipus_per_replica = 1;
  EXPECT_THAT(after(phased)->ipu_of_stage, ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_FALSE(after(phased)->balancing) << "no other split is compiled";
}

TEST(Stages, RefusePhasesThatTheModelOrTheCutsDoNotHave) {
  CompileOptions phased = options(1);
  phased.pipeline.phases = 7;
  EXPECT_THAT(after(phased).error().message, HasSubstr("can be cut into at most 6"));
  phased.pipeline.phases = 2;
  phased.pipeline.split = {"b", "c"};
  EXPECT_EQ(after(phased).error().message,
            "memory.phases = 2, but pipeline.split = b c gives 3 phases; make the numbers equal, or "
            "leave out the pipeline setting");
}

TEST(Stages, LeaveAJobOnOneIpuAsItIs) {
  const auto job = after(options(1));
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(to_text(job->graph), to_text(*parse_graph(kModel)));
  EXPECT_THAT(job->ipu_of_stage, ElementsAre(0));
  EXPECT_TRUE(job->notes.empty());
}

TEST(Stages, AreBalancedUnlessSomebodySaysHow) {
  const auto job = after(options(2));
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_THAT(job->ipu_of_stage, ElementsAre(0, 1));
  EXPECT_TRUE(job->balancing);
  EXPECT_FALSE(after(with_layers({2, 2}))->balancing);
}

TEST(Stages, AreNoMoreThanTheModelHasLayers) {
  const auto job = after(options(8));
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->ipu_of_stage.size(), 6U);
  EXPECT_EQ(job->notes.back().text,
            "the model uses only 6 of the 8 IPUs in each replica: it can be cut into at most 6 "
            "stages");
  EXPECT_EQ(training(options(8, {.device_mapping = {0, 1, 2, 3, 4, 5, 6}})),
            "pipeline.device-mapping = 0 1 2 3 4 5 6 needs 7 stages, but net can be cut into at "
            "most 6; remove entries; layers: embeddings, a, b, c, d, head");
}

TEST(Stages, SayWhichSettingLeavesIpusIdle) {
  const auto last_note = [](const PipelineOptions& pipeline) { return after(options(4, pipeline))->notes.back().text; };
  EXPECT_EQ(last_note({.layers_per_ipu = {2, 2}}),
            "pipeline.layers-per-ipu = 2 2 uses only 2 of the 4 IPUs in each replica");
  EXPECT_EQ(last_note({.split = {"b"}}), "pipeline.split = b uses only 2 of the 4 IPUs in each replica");
  EXPECT_EQ(last_note({.layers_per_ipu = {0, 4, 0}, .device_mapping = {0, 2, 0}}),
            "pipeline.device-mapping = 0 2 0 uses only 2 of the 4 IPUs in each replica");
}

TEST(Stages, SayWhatIsOnlyPartOfALayer) {
  const auto job = after(with_split({"dropped"}));
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_THAT(testing::texts(job->notes),
              ElementsAre("stage 0 on IPU 0: embeddings to part of b (2 layers), 64 parameters",
                          "stage 1 on IPU 1: part of b to head (3 layers), 0 parameters"));
}

TEST(Stages, OfBalancedJobsAreNamedAsTheyCouldBeWritten) {
  const std::vector<Layer> layers = parse_graph(kModel)->layers;
  const auto note = [&](std::vector<std::size_t> begins) { return balanced_note(layers, begins).text; };
  EXPECT_EQ(note({3}), "pipeline.layers-per-ipu = balanced means 2 2 for this job");
  EXPECT_EQ(note({1, 5}), "pipeline.layers-per-ipu = balanced means 0 4 0 for this job");
  std::vector<Layer> two_heads = layers;
  two_heads.push_back({"pooler", false});
  EXPECT_EQ(balanced_note(two_heads, std::vector<std::size_t>{1, 6}).text,
            "pipeline.layers-per-ipu = balanced means pipeline.split = a pooler for this job");
}

TEST(Stages, RefuseCountsThatAreNotTheModelsLayers) {
  EXPECT_EQ(training(with_layers({1, 2})),
            std::string{"pipeline.layers-per-ipu = 1 2: net has 4 layers, but the entries add up "
                        "to 3; set the largest to -1 (all remaining layers)"} +
                kLayers);
  EXPECT_EQ(training(with_layers({2, 2, 2})),
            std::string{"pipeline.layers-per-ipu = 2 2 2: net has 4 layers, but the entries add "
                        "up to 6; lower the entries"} +
                kLayers);
  EXPECT_EQ(training(with_layers({3, -1, 2})),
            std::string{"pipeline.layers-per-ipu = 3 -1 2: net has 4 layers, but the entries "
                        "besides -1 add up to 5; lower these entries"} +
                kLayers);
  EXPECT_THAT(training(with_layers({-1, 2, -1})), HasSubstr("only one entry may be -1"));
}

TEST(Stages, RefuseToBeEmpty) {
  const std::string why =
      " would be empty; an entry may be 0 only for a first stage of embeddings or a last stage of "
      "heads";
  EXPECT_EQ(training(with_layers({2, 0, 2})), "pipeline.layers-per-ipu = 2 0 2: stage 1" + why + kLayers);
  EXPECT_EQ(training(with_layers({0, 0, 4})), "pipeline.layers-per-ipu = 0 0 4: stage 1" + why + kLayers);
  EXPECT_EQ(training(with_layers({4, 0, 0})), "pipeline.layers-per-ipu = 4 0 0: stage 1" + why + kLayers);
  EXPECT_THAT(training(with_split({"embeddings"})),
              HasSubstr("pipeline.split = embeddings: stage 0 would be empty: no layer of net "
                        "begins before the next stage does"));
}

TEST(Stages, KnowTheLayerThatANameInsideItMeans) {
  // Two names are changed: that of a layer to one of a transformer's, and that of a tensor to one nested in a block.
  std::string text{kModel};
  const auto rename = [&text](const std::string& from, const std::string& to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  };
  rename("@c:", "@transformer.h.1:");
  rename("layer c", "layer transformer.h.1");
  rename("dropped", "block.0.conv3");
  const auto meant_by = [&](const std::string& name) {
    const std::string message = stages_in(with_split({name}), {1, 1}, text);
    const std::size_t at = message.find("did you mean ");
    return at == std::string::npos ? message : message.substr(at + 13);
  };
  EXPECT_EQ(meant_by("transformer.h.1.attn"), "transformer.h.1?");
  EXPECT_EQ(meant_by("h.1.attn.c_attn.weight"), "transformer.h.1?");
  EXPECT_EQ(meant_by("Transformer.H.1"), "transformer.h.1?");
  EXPECT_EQ(meant_by("HEAD"), "head?");
  EXPECT_EQ(meant_by("head.weight"), "head?");
  EXPECT_EQ(meant_by("conv3"), "b?");
  EXPECT_THAT(meant_by("zzz.1"), HasSubstr("; layers: embeddings, a, b, "));
}

TEST(Stages, SaySoWhereCommasSeparateNames) {
  EXPECT_EQ(training(with_split({"b,c"})),
            "pipeline.split = b,c: names are separated by blanks, not commas; write b c");
}

TEST(Stages, RefuseNamesThatTheModelLacks) {
  EXPECT_EQ(training(with_split({"droped"})),
            "pipeline.split: net has no layer 'droped', and its forward pass produces no tensor of that name; did you "
            "mean dropped?");
  std::string text{kModel};
  for (std::size_t at = text.find("@c:"); at != std::string::npos; at = text.find("@c:")) {
    text.replace(at, 3, "@net.blocks.c:");
  }
  text.replace(text.find("layer c"), 7, "layer net.blocks.c");
  EXPECT_THAT(stages_in(with_split({"blocks.c"}), {1, 1}, text), HasSubstr("did you mean net.blocks.c?"));
  EXPECT_EQ(training(with_split({"conv17"})),
            "pipeline.split: net has no layer 'conv17', and its forward pass produces no tensor of that name; layers: "
            "embeddings, a, b, c, d, head");
  EXPECT_THAT(training(with_split({"w"})), HasSubstr("net has no layer 'w'"));
}

TEST(Stages, RefuseNamesThatAreNotInTheOrderOfTheModel) {
  EXPECT_EQ(training(with_split({"c", "xb"})),
            "pipeline.split: 'xb' does not come after 'c' in net; list the names in the order "
            "of the forward pass; layers: embeddings, a, b, c, d, head");
  EXPECT_THAT(training(with_split({"c", "c"})), HasSubstr("'c' does not come after 'c'"));
}

TEST(Stages, RefuseValuesThatWouldFlowBack) {
  std::string text{kModel};
  text.replace(text.find("@d:0:forward xd"), 2, "@a");
  EXPECT_EQ(stages_in(with_layers({1, 2}), {1, 1}, text),
            "pipeline.layers-per-ipu = 1 2: net has 4 layers, but the entries add up to 3; set the "
            "largest to -1 (all remaining layers); layers: a, b, c, d");
  EXPECT_EQ(stages_in(with_layers({1, 3}), {1, 1}, text),
            "pipeline: 'xd' in stage 0 reads 'xc' from the later stage 1; cut net only where all values flow "
            "forward");
}

/// Returns the verdict of the verifier after `damage` to the pass's result.
std::string verdict_on(const CompileOptions& options, const std::function<void(Job&)>& damage) {
  const Job before = job_of(kModel);
  Job job = before;
  EXPECT_TRUE(stages().run(options, job));
  EXPECT_TRUE(stages().verify(options, before, job));
  damage(job);
  const Status status = stages().verify(options, before, job);
  return status ? "verified" : status.error().message;
}

Operation& operation(Job& job, std::size_t index) {
  return job.graph.at({1, 1}).operations.at(index);
}

TEST(Stages, MustFollowTheFlowOfValues) {
  EXPECT_EQ(verdict_on(with_layers({2, 2}), [](Job& job) { operation(job, 1).origin.stage = 1; }),
            "pass stages: 'x0' is computed in stage 1, but read in the earlier stage 0");
}

TEST(Stages, MustExist) {
  EXPECT_EQ(verdict_on(with_layers({2, 2}), [](Job& job) { operation(job, 8).origin.stage = 2; }),
            "pass stages: add is in stage 2, but the number of stages is 2");
  EXPECT_EQ(verdict_on(with_layers({2, 2}), [](Job& job) { job.ipu_of_stage[1] = 2; }),
            "pass stages: a stage is on IPU 2, which does not exist");
}

TEST(Stages, MustHoldWhatTheyAreGiven) {
  const auto move_a_layer = [](Job& job) { operation(job, 5).origin.stage = 0; };
  EXPECT_EQ(verdict_on(with_layers({2, 2}), move_a_layer), "pass stages: stage 0 has 3 layers, not 2");
}

TEST(Stages, MustBeAllThatChanges) {
  const auto swap_inputs = [](Job& job) { std::swap(operation(job, 1).inputs[0], operation(job, 1).inputs[1]); };
  EXPECT_EQ(verdict_on(with_layers({2, 2}), swap_inputs), "pass stages: changes more than stages in train");
}

}  // namespace
}  // namespace poprun::stages_test
