/// Each pass runs alone, from text to text, as in a compilation.

#include "replica/compilation/pass_states.h"

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/job/job_text.h"
#include "replica/compiler/passes.h"
#include "tests/unit/replica/onnx_models.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::pass_states_test {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

struct TestedJob {
  proto::RunConfig config = testing::config(/*replicas=*/2, /*micro_batch_size=*/2);
  proto::Dataset dataset = testing::dataset();
  std::string model_file;  ///< Bytes of an ONNX model.
};

using Change = std::function<void(TestedJob&)>;

void make_gpt2(TestedJob& job) {
  job.config.mutable_model()->set_name("gpt2");
  for (const auto& [name, size] : {std::pair{"layers", 4}, {"hidden", 16}, {"heads", 2}, {"vocabulary", 32}}) {
    (*job.config.mutable_model()->mutable_sizes())[name] = size;
  }
  job.dataset.clear_tensors();
  for (const char* name : {"tokens", "labels"}) {
    proto::StreamTensor& tensor = *job.dataset.add_tensors();
    tensor.set_name(name);
    tensor.set_element("i32");
    tensor.add_sample_shape(8);
  }
  job.dataset.set_classes(32);
}

/// Sets up a job with two stages whose state is off-chip or sharded.
void use_every_technique(TestedJob& job) {
  make_gpt2(job);
  job.config.mutable_training()->set_gradient_accumulation(4);
  job.config.mutable_topology()->set_ipus_per_replica(2);
  job.config.mutable_pipeline()->set_schedule("grouped");
  job.config.mutable_pipeline()->set_recomputation("layer");
  job.config.mutable_memory()->set_weights("off-chip");
  job.config.mutable_memory()->set_optimizer_state("off-chip");
  job.config.mutable_memory()->set_activations("off-chip");
  job.config.mutable_memory()->set_outlining("on");
  job.config.mutable_memory()->add_replicated_tensor_sharding("optimizer-state");
  job.config.mutable_memory()->set_sharding_min_elements(8);
}

void use_phases(TestedJob& job) {
  use_every_technique(job);
  job.config.mutable_memory()->set_phases(2);
  job.config.mutable_memory()->set_phase_ipus(2);
}

void serialise(TestedJob& job) {
  make_gpt2(job);
  job.config.mutable_model()->set_embedding_serialisation_factor(2);
  proto::ProductSetting& head = *job.config.mutable_model()->add_serialised_sequence();
  head.set_text("lm_head=2");
  head.set_operators("lm_head");
  head.set_slices(2);
  job.config.mutable_training()->set_loss_mean("tokens");
  job.config.mutable_training()->set_clip_norm(1);
  proto::ProductSetting& all = *job.config.mutable_memory()->add_available_memory_proportion();
  all.set_text("0.3");
  all.set_permille(300);
}

void use_half(TestedJob& job) {
  job.config.mutable_model()->set_precision("half");
  job.config.mutable_training()->set_loss_scaling(0);
  job.config.mutable_training()->set_master_weights(true);
  job.config.mutable_training()->set_gradient_bucket_bytes(1024);
}

void infer(TestedJob& job) {
  job.config.mutable_model()->set_name("resnet18");
  job.config.mutable_model()->set_fold_batch_norm(true);
  job.config.set_inference(true);
  job.config.mutable_topology()->set_ipus_per_replica(2);
}

void span_norms(TestedJob& job) {
  job.config.mutable_model()->set_name("resnet18");
  job.config.mutable_model()->set_norm_span(2);
}

void import(TestedJob& job) {
  testing::OnnxBuilder file;
  file.input("images", {-1, 1, 28, 28}).output("logits", {-1, 10});
  file.node("Flatten", {"images"}, {"features"}).set_name("/Flatten");
  file.node("Identity", {"features"}, {"fc.weight.gradient"});
  file.node("MatMul", {"fc.weight.gradient", "fc.weight"}, {"logits"}).set_name("/fc/MatMul");
  file.weight("fc.weight", {784, 10}, std::vector<float>(7840, 0.5F));
  job.model_file = file.bytes();
  job.config.mutable_model()->set_name("net.onnx");
  job.config.mutable_model()->set_onnx("net.onnx");
  job.config.mutable_model()->set_loss("cross-entropy");
}

const std::vector<std::pair<const char*, Change>> kJobs = {{"Plain", [](TestedJob& /*job*/) {}},
                                                           {"EveryTechnique", use_every_technique},
                                                           {"Phases", use_phases},
                                                           {"Serialised", serialise},
                                                           {"Half", use_half},
                                                           {"Inference", infer},
                                                           {"NormSpan", span_norms},
                                                           {"Onnx", import}};

ReadModel reader(const TestedJob& job) {
  return [&job](const std::string& path) -> Result<std::string> {
    EXPECT_EQ(path, "net.onnx");
    return job.model_file;
  };
}

/// Returns the job after each pass, by the name of the pass.
std::vector<std::pair<std::string, Job>> jobs_after_passes(const TestedJob& job) {
  const auto onnx = onnx_model_of(job.config.model(), job.model_file);
  EXPECT_TRUE(onnx) << onnx.error().message;
  const auto options = compile_options(job.config, job.dataset, *onnx);
  EXPECT_TRUE(options) << options.error().message;
  std::vector<std::pair<std::string, Job>> jobs;
  const auto keep = [&jobs](std::string_view pass, const Job& after) {
    jobs.emplace_back(pass, after);
    return Status{};
  };
  const Result<Job> last = run_passes(*options, {}, {.after_pass = keep});
  EXPECT_TRUE(last) << last.error().message;
  return jobs;
}

class PassStates : public ::testing::TestWithParam<std::size_t> {};

TEST_P(PassStates, AreTheSameIfEachPassRunsAloneFromText) {
  TestedJob job;
  kJobs[GetParam()].second(job);
  const auto jobs = jobs_after_passes(job);
  std::string all = "# train.cfg, resolved\n[model]\n" + options_text(job.config, job.dataset);
  const std::string head = all;
  for (const auto& [pass, after] : jobs) {
    all += state_text(pass, after);
  }
  all += "# compiled\nparameters 5\n";

  std::string before;
  for (const auto& [pass, after] : jobs) {
    const Result<Job> parsed = parse_job(to_text(after));
    ASSERT_TRUE(parsed) << pass << ": " << parsed.error().message;
    EXPECT_TRUE(to_text(*parsed) == to_text(after)) << pass;
    for (const std::string& states : {all, head + before}) {
      std::string text;
      const Status status = run_alone(pass, states, reader(job), text);
      EXPECT_TRUE(status) << pass << ": " << status.error().message;
      text = text.substr(0, text.find("# not proven to keep every value"));
      EXPECT_TRUE(text == state_text(pass, after)) << pass << " gives\n" << text << "instead of\n" << to_text(after);
    }
    before = state_text(pass, after);
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, PassStates, ::testing::Range(std::size_t{0}, kJobs.size()),
                         [](const auto& job) { return std::string{kJobs[job.param].first}; });

TEST(PassStatesOfTheseTests, ComeFromAllPasses) {
  std::set<std::string> run;
  for (const auto& [name, change] : kJobs) {
    TestedJob job;
    change(job);
    for (const auto& [pass, after] : jobs_after_passes(job)) {
      run.insert(pass);
    }
  }
  for (const Pass& pass : all_passes()) {
    EXPECT_TRUE(run.contains(std::string{pass.name})) << pass.name;
  }
}

/// Runs a pass on a handwritten job; returns the functions of the resulting job, or why the pass cannot run.
std::string after(std::string_view pass, const std::string& states, const Change& change = {}) {
  TestedJob job;
  if (change) {
    change(job);
  }
  std::string text;
  const Status status = run_alone(pass, options_text(job.config, job.dataset) + states, reader(job), text);
  return status ? text.substr(text.find("function ")) : status.error().message;
}

/// A job that trains w; the loss is the sum of w * x.
const std::string kForward = R"(# job
training begin="train:0" micro_batch="train:1" update="train:2" rate="r" step="s" loss="loss" metrics="m"
graph
tensor w : f32[2] parameter
tensor x : f32[2] stream
tensor r : f32[] stream
tensor s : f32[] stream
tensor m : f32[3,3] metric
tensor y : f32[2] activation
tensor loss : f32[] activation
function load
repeat 1
w = initialise() constant=1.0
function train
repeat 1
r, s = stream_in() stream="control"
m = fill() shape=[3,3] value=0.0
repeat 1
x = stream_in() stream="train"
y = mul(x, w)
loss = sum_to(y) layout="row-major" shape=[]
repeat 1
)";

TEST(PassAlone, AddsTheBackwardPassToAForwardPass) {
  EXPECT_EQ(after("differentiation", kForward), R"(function load
repeat 1
w = initialise() constant=1.0
function train
repeat 1
r, s = stream_in() stream="control"
m = fill() shape=[3,3] value=0.0
repeat 1
x = stream_in() stream="train"
y = mul(x, w)
loss = sum_to(y) layout="row-major" shape=[]
@:0:backward loss.gradient = fill() shape=[] value=1.0
@:0:backward y.gradient = expand(loss.gradient) layout="row-major" shape=[2]
@:0:backward w.gradient = mul(y.gradient, x)
repeat 1

)");
}

TEST(PassAlone, AddsUpTheGradientsOfTwoUsesBeforeTheirExchange) {
  EXPECT_EQ(after("exchange", R"(# job after pass accumulation
training begin="train:0" micro_batch="train:1" update="train:2" rate="r" step="s" loss="r" metrics="m"
gradient parameter="w" tensor="second"
gradient parameter="w" tensor="first"
graph
tensor w : f32[2] parameter
tensor r : f32[] stream
tensor s : f32[] stream
tensor m : f32[3,3] metric
tensor first : f32[2] gradient
tensor second : f32[2] gradient
function load
repeat 1
w = initialise() constant=1.0
function train
repeat 1
r, s = stream_in() stream="control"
m = fill() shape=[3,3] value=0.0
repeat 1
second, first = stream_in() stream="train"
repeat 1
)"),
            R"(function load
repeat 1
w = initialise() constant=1.0
function train
repeat 1
r, s = stream_in() stream="control"
m = fill() shape=[3,3] value=0.0
repeat 1
second.2, first = stream_in() stream="train"
repeat 1
second = add(second.2, first)
second, m = all_reduce(second, m) reduction="mean"

)");
}

/// Returns an inference job with a weight; `y` is the operation that computes y.
std::string inference(const std::string& y) {
  return fmt::format(R"(evaluation place="evaluate:0"
graph
tensor w : f32[2] parameter
tensor x : f32[2] stream
tensor y : f32[2] activation
function load
repeat 1
w = initialise() constant=1.0
function evaluate
repeat 1
x = stream_in() stream="test"
y = {}
stream_out(y) stream="outputs"
)",
                     y);
}

void move_weights_off_chip(TestedJob& job) {
  job.config.set_inference(true);
  job.config.mutable_memory()->set_weights("off-chip");
}

TEST(PassAlone, MovesAWeightOffTheChip) {
  EXPECT_EQ(after("locations", "# job\n" + inference("mul(x, w)"), move_weights_off_chip),
            R"(function load
repeat 1
w = initialise() constant=1.0
w.remote = copy(w) to_entries=[0]
function evaluate
repeat 1
x = stream_in() stream="test"
w = copy(w.remote) from_entries=[0]
y = mul(x, w)
stream_out(y) stream="outputs"

)");
}

TEST(PassAlone, GivesTheJobAndTheErrorIfAProofFails) {
  TestedJob job;
  move_weights_off_chip(job);
  const std::string changed =
      "# job\n" + inference("mul(x, w)") + "# job after pass pipeline\n" + inference("add(x, w)");
  std::string text;

  const Status status = run_alone("locations", options_text(job.config, job.dataset) + changed, reader(job), text);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug);
  EXPECT_THAT(status.error().message, HasSubstr("pass locations: equivalence: "));
  EXPECT_THAT(text, HasSubstr("w = copy(w.remote) from_entries=[0]\ny = add(x, w)\n"));
}

TEST(PassAlone, SaysThatAProofIsLeftOutIfNoJobHasThePlainValues) {
  const auto recompute = [](TestedJob& job) { job.config.mutable_pipeline()->set_recomputation("all"); };
  EXPECT_THAT(
      after("recomputation", "# job after pass background-exchange\n" + kForward.substr(6), recompute),
      HasSubstr("\n# not proven to keep every value: the proof needs a job from pass precision or an earlier pass\n"));
  EXPECT_THAT(after("recomputation", kForward, recompute), Not(HasSubstr("not proven")));
}

TEST(PassAlone, UsesTheLastJobBeforeThePassOfTheFirstCompilation) {
  const std::string done = "# job after pass update\nheroes\n";
  EXPECT_EQ(after("differentiation", kForward + done), after("differentiation", kForward));
  EXPECT_EQ(after("differentiation", kForward + done + kForward), after("differentiation", kForward));
  EXPECT_EQ(after("differentiation", "# job\nheroes\n# job after pass stages\n" + kForward.substr(6)),
            after("differentiation", kForward));
}

/// Returns the error message after a part of kForward is replaced.
std::string error_with(const std::string& part, const std::string& replacement) {
  std::string text = kForward;
  text.replace(text.find(part), part.size(), replacement);
  return after("differentiation", text);
}

TEST(PassAlone, SaysWhatItLacks) {
  EXPECT_THAT(after("diferentiation", kForward), "--pass diferentiation: unknown pass; did you mean differentiation?");
  EXPECT_EQ(after("locations", kForward), "--pass locations: the options do not enable this pass");
  EXPECT_EQ(after("differentiation", ""),
            "--pass differentiation: there is no job before this pass; a job begins with a line '# job' or, "
            "for example, "
            "'# job after pass forward'");
  EXPECT_THAT(error_with("mul(x, w)", "mul(x, v)"), MatchesRegex("line [0-9]+: there is no tensor 'v'"));
  EXPECT_THAT(error_with("mul(x, w)", "mul(y, w)"),
              MatchesRegex("line [0-9]+: this job is not valid: function train: mul reads the unwritten tensor 'y'"));
  EXPECT_THAT(error_with("training", "# training"),
              MatchesRegex("line [0-9]+: the job before pass differentiation has no line 'training'"));
}

TEST(PassAlone, NamesTheLineOfABadOption) {
  std::string text;
  const auto error_of = [&text](const std::string& states) { return run_alone("stages", states, {}, text).error(); };

  EXPECT_EQ(error_of("").message, "the options, which begin with a line '# options', are missing");
  EXPECT_EQ(error_of("\n# options\nconfig {\n  hero: 1\n}\n").message,
            "line 4: Message type \"poprun.proto.RunConfig\" has no field named \"hero\".");
  EXPECT_EQ(error_of("# options\nconfig {}\n").message,
            "line 2: these options must set config.data.micro_batch_size to at least 1");
  EXPECT_EQ(error_of("").code, ErrorCode::kUsage);
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace poprun::pass_states_test
