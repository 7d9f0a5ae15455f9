#include "replica/estimate/estimate.h"

#include <map>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "launcher/screen/estimate_tables.h"
#include "proto/answers.pb.h"
#include "proto/inquiry.pb.h"
#include "replica/answers/inquiry.h"
#include "replica/compiler/automatic.h"
#include "replica/models/layers/model.h"
#include "tests/unit/replica/onnx_models.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::estimate_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;

/// Returns the description of data like those that a model was published with.
proto::Dataset dataset_for(const Model& model) {
  proto::Dataset data = testing::dataset();
  data.clear_tensors();
  for (const SampleTensor& tensor : model.sample.tensors) {
    proto::StreamTensor& added = *data.add_tensors();
    added.set_name(tensor.name);
    added.set_element(std::string(element_name(tensor.data)));
    for (const std::int64_t dimension : tensor.shape) {
      added.add_sample_shape(static_cast<std::uint32_t>(dimension));
    }
  }
  data.set_classes(static_cast<std::uint32_t>(model.sample.classes));
  return data;
}

proto::RunConfig job_of(const std::string& model, std::uint32_t micro_batch = 1) {
  proto::RunConfig job = testing::config(1, micro_batch);
  job.mutable_model()->set_name(model);
  return job;
}

Estimate estimate_of(const proto::RunConfig& job, const proto::Dataset& data) {
  const auto options = compile_options(job, data);
  EXPECT_TRUE(options) << options.error().message;
  auto found = estimate(*options);
  EXPECT_TRUE(found) << found.error().message;
  return found ? *found : Estimate{};
}

Estimate estimate_of(const std::string& model) {
  return estimate_of(job_of(model), dataset_for(*find_model(model)));
}

KindSum kind(const Estimate& estimate, BlockKind wanted) {
  const auto found = std::ranges::find(estimate.kinds, wanted, &KindSum::kind);
  return found == estimate.kinds.end() ? KindSum{} : *found;
}

const Block& block(const Estimate& estimate, const std::string& name) {
  const auto found = std::ranges::find(estimate.blocks, name, &Block::name);
  EXPECT_NE(found, estimate.blocks.end()) << name;
  return found == estimate.blocks.end() ? estimate.blocks.front() : *found;
}

// The formulas of table 3.1, applied by hand to the first and last layers of ResNet-50 and to layers of BERT-Large.
TEST(Guide, CountsParametersByItsTable) {
  EXPECT_EQ(guide::convolution(3, 3, 3, 64), 1'792) << "(3 * 3 * 3 + 1) * 64";
  EXPECT_EQ(guide::convolution(7, 7, 3, 64), 9'472);
  EXPECT_EQ(guide::convolution(7, 7, 3, 64, /*biases=*/false), 9'408);
  EXPECT_EQ(guide::convolution(5, 1, 2, 10), 110) << "w = 5, h = 1";
  EXPECT_EQ(guide::dense_layer(2'048, 1'000), 2'049'000);
  EXPECT_EQ(guide::dense_layer(1'024, 4'096), 4'198'400);
  EXPECT_EQ(guide::batch_norm(64, /*training=*/false), 128) << "moving averages alone";
  EXPECT_EQ(guide::batch_norm(64, /*training=*/true), 256);
  EXPECT_EQ(guide::layer_norm(1'024), 2'048);
  EXPECT_EQ(guide::embeddings(30'522, 1'024), 31'254'528);
}

// Sections 3.4.4 and 3.4.5 on small numbers give 5 * 3 gradients, 10 + 2 + 4 + 24 backpropagation variables, and
// (10 + 2 + 15 + 24 + 40) * 2 bytes in training, in which the 24 optimiser states count twice.
TEST(Guide, TotalsAreThoseThatArePrinted) {
  const guide::Counts counts{.weights = 10,
                             .biases = 2,
                             .non_trainable = 4,
                             .optimiser_states = 24,
                             .activations = 5,
                             .compute_batch = 3,
                             .bytes_per_number = 2};

  EXPECT_EQ(counts.gradients(), 15);
  EXPECT_EQ(counts.backprop_vars(), 40);
  EXPECT_EQ(counts.inference_total(), Bytes{32});
  EXPECT_EQ(counts.training_total(), Bytes{182});
  EXPECT_EQ(counts.training_total_states_once(), Bytes{134});
}

// The counts were published by torchvision, Google and OpenAI.
TEST(Estimate, HasPublishedCounts) {
  EXPECT_EQ(estimate_of("resnet50").parameters, 25'557'032);
  EXPECT_EQ(estimate_of("resnet101").parameters, 44'549'160);
  EXPECT_EQ(estimate_of("bert-base").parameters, 110'106'428);
  EXPECT_EQ(estimate_of("bert-large").parameters, 336'226'108);
  EXPECT_EQ(estimate_of("gpt2").parameters, 124'439'808);
  EXPECT_EQ(estimate_of("gpt2-medium").parameters, 354'823'168);
  EXPECT_EQ(estimate_of("gpt2-large").parameters, 774'030'080);
  EXPECT_EQ(estimate_of("gpt2-xl").parameters, 1'557'611'200);
}

TEST(Estimate, OfResNetHasItsConvolutionsFirst) {
  const Estimate e = estimate_of("resnet50");

  EXPECT_EQ(e.kinds[0].kind, BlockKind::kConvolution);
  EXPECT_EQ(e.kinds[0].blocks, 53);
  EXPECT_EQ(e.kinds[0].weights, 23'454'912);
  EXPECT_EQ(e.kinds[0].biases, 0);
  // Radosavovic et al., "On network design spaces", 2019, count "11.1 M activations", the outputs of convolutions. By
  // hand: 802,816 + (2,007,040 + 2,408,448) + (1,304,576 + 1,806,336) + (652,288 + 1,505,280) + (326,144 + 301,056).
  EXPECT_EQ(e.kinds[0].activations, 11'113'984);
  EXPECT_EQ(kind(e, BlockKind::kDense).parameters(), 2'049'000);
  EXPECT_EQ(kind(e, BlockKind::kBatchNorm).parameters(), 53'120);
  EXPECT_EQ(kind(e, BlockKind::kBatchNorm).moving, 53'120);
  EXPECT_EQ(kind(e, BlockKind::kBatchNorm).activations, 11'113'984);
  EXPECT_EQ(block(e, "conv1").formula, "7 x 7 x 3 x 64");
  EXPECT_EQ(block(e, "bn1").formula, "2 x 64 + 2 x 64");
  EXPECT_EQ(block(e, "fc").formula, "2,048 x 1,000 + 1,000");
}

// By table 3.1, the scale and location of a batch normalisation count only in training.
TEST(Estimate, CountsBatchNormTwiceAsMuchInTraining) {
  const Estimate e = estimate_of("resnet50");

  const guide::Counts& inference = e.guide_inference;
  EXPECT_EQ(inference.weights, 23'454'912 + 2'048'000);
  EXPECT_EQ(inference.biases, 1'000);
  EXPECT_EQ(inference.non_trainable, 53'120);
  const guide::Counts& training = *e.guide_training;
  EXPECT_EQ(training.weights, inference.weights + 26'560);
  EXPECT_EQ(training.biases, inference.biases + 26'560);
  EXPECT_EQ(training.non_trainable, 53'120);
  EXPECT_EQ(training.optimiser_states, 25'557'032) << "momentum";
}

TEST(Estimate, OfBertKnowsTiedWeightsOnce) {
  const Estimate e = estimate_of("bert-large");

  EXPECT_EQ(kind(e, BlockKind::kEmbedding).blocks, 3);
  EXPECT_EQ(kind(e, BlockKind::kEmbedding).weights, 31'782'912 - 2 * 1'024) << "without LayerNorm";
  EXPECT_EQ(kind(e, BlockKind::kLayerNorm).blocks, 2 * 24 + 2);
  EXPECT_EQ(kind(e, BlockKind::kLayerNorm).parameters(), (2 * 24 + 2) * 2 * 1'024);
  EXPECT_EQ(block(e, "cls.predictions").weights, 0) << "the decoder's are the word embeddings";
  EXPECT_EQ(block(e, "cls.predictions").biases, 30'522);
  const auto layer = std::ranges::find(e.layers, "bert.encoder.layer.23", &LayerSum::name);
  ASSERT_NE(layer, e.layers.end());
  EXPECT_EQ(layer->parameters, 12'596'224);
  EXPECT_EQ(e.layers.front().parameters, 31'782'912);
}

// In every model, each block has as many parameters as table 3.1 states, and each parameter belongs to one block.
TEST(Estimate, AgreesWithTheTableForEveryBlockOfEveryModel) {
  for (const Model& model : all_models()) {
    const Estimate e = estimate_of(model.name);
    std::int64_t parameters = 0;
    for (const Block& b : e.blocks) {
      EXPECT_EQ(b.by_formula, b.parameters() + b.moving) << model.name << " " << b.name;
      // The table has no row for the class token of a vision transformer, or for norms with a scale but no bias.
      const bool scale = b.name.ends_with("norm") && b.biases == 0;
      EXPECT_TRUE(b.kind != BlockKind::kOther || b.name == "vit.embeddings" || scale) << model.name << " " << b.name;
      parameters += b.parameters();
    }
    EXPECT_EQ(parameters, e.parameters) << model.name;
    std::int64_t in_layers = 0;
    for (const LayerSum& layer : e.layers) {
      in_layers += layer.parameters;
    }
    EXPECT_EQ(in_layers, e.parameters) << model.name;
  }
}

TEST(Estimate, KnowsGroupNormalisation) {
  for (const char* normalisation : {"group", "layer", "instance"}) {
    proto::RunConfig job = job_of("resnet18");
    job.mutable_model()->set_normalisation(normalisation);
    const Estimate e = estimate_of(job, dataset_for(*find_model("resnet18")));

    EXPECT_EQ(kind(e, BlockKind::kGroupNorm).blocks, 20) << normalisation;
    EXPECT_EQ(kind(e, BlockKind::kGroupNorm).weights, 4'800) << "torchvision: 9,600 of BatchNorm";
    EXPECT_EQ(kind(e, BlockKind::kGroupNorm).biases, 4'800);
    EXPECT_EQ(kind(e, BlockKind::kBatchNorm).blocks, 0);
    EXPECT_EQ(kind(e, BlockKind::kOther).blocks, 0);
  }
}

// By hand: images 784; conv1 and relu1 25,088 each; pool1 6,272; conv2 and relu2 12,544 each; pool2 3,136; fc1 and
// relu3 128 each; fc2 10. The flattening moves elements only.
TEST(Estimate, CountsTheActivationsOfASample) {
  for (const std::uint32_t batch : {1U, 5U, 16U}) {
    const Estimate e = estimate_of(job_of("small-cnn", batch), testing::dataset());

    EXPECT_EQ(e.guide_training->activations, 85'722) << batch;
    EXPECT_EQ(e.guide_training->gradients(), 85'722 * batch);
    EXPECT_EQ(kind(e, BlockKind::kConvolution).activations, 25'088 + 12'544);
    EXPECT_EQ(kind(e, BlockKind::kDense).activations, 128 + 10);
  }
}

// With Adam in half precision, a parameter needs 2 B of weights, 2 of gradients, 8 of state and 4 of master weights.
TEST(Estimate, HasTheTypesOfTheJob) {
  constexpr std::int64_t kParameters = 421'642;
  proto::RunConfig job = job_of("small-cnn", 4);
  testing::set_optimizer(job, "adam");
  const Estimate plain = estimate_of(job, testing::dataset());
  EXPECT_EQ(plain.kept->weights, Bytes{4 * kParameters});
  EXPECT_EQ(plain.kept->optimizer_state, Bytes{8 * kParameters});
  EXPECT_EQ(plain.kept->gradients, Bytes{4 * kParameters});
  EXPECT_EQ(plain.guide_training->bytes_per_number, 4);

  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_master_weights(true);
  job.mutable_training()->set_gradient_accumulation(2);
  const Estimate half = estimate_of(job, testing::dataset());
  EXPECT_EQ(half.kept->weights, Bytes{2 * kParameters});
  EXPECT_EQ(half.kept->optimizer_state, Bytes{12 * kParameters});
  EXPECT_EQ(half.kept->gradients, Bytes{2 * kParameters});
  EXPECT_EQ(half.inference.optimizer_state, Bytes{0});
  EXPECT_EQ(half.guide_training->bytes_per_number, 2);
  EXPECT_EQ(half.guide_training->optimiser_states, 2 * kParameters) << "m and v";
  EXPECT_EQ(half.training->gradients, half.kept->gradients) << "accumulators live all the time";

  job.mutable_training()->set_accumulator_precision("float");
  EXPECT_EQ(estimate_of(job, testing::dataset()).kept->gradients, Bytes{4 * kParameters});
}

// For each sample, the backward pass reads the images as floats (for conv1's weight), conv1 (for relu1's gradient) or
// relu1's output (also for pool1), and so on. The table's formula gives more bytes.
TEST(Estimate, KeepsWhatTheBackwardPassReads) {
  const Estimate e = estimate_of(job_of("small-cnn", 4), testing::dataset());

  EXPECT_GT(e.kept->activations, Bytes{4 * 4 * (784 + 25'088 + 6'272 + 12'544 + 3'136)});
  EXPECT_LE(e.kept->activations, Bytes{4 * 4 * (85'722 + 3'136) + 4 * 4});
  EXPECT_EQ(e.kept->passing, Bytes{0});
}

/// Returns the most bytes of tensors that are live at one step.
double most_live(const Program& program) {
  std::map<std::uint32_t, std::int64_t> changes;  // Change of the live bytes at each step.
  for (const proto::Tensor& tensor : program.tensors()) {
    for (const proto::Span& span : tensor.lives()) {
      changes[span.first()] += static_cast<std::int64_t>(tensor.bytes());
      changes[span.last() + 1] -= static_cast<std::int64_t>(tensor.bytes());
    }
  }
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (const auto& [step, change] : changes) {
    live += change;
    most = std::max(most, live);
  }
  return static_cast<double>(most);
}

// The compiler computes live ranges independently of the estimate.
TEST(Estimate, IsWhatTensorsNeedAtTheFullestMoment) {
  for (const char* model : {"small-cnn", "mlp", "resnet18"}) {
    for (const std::uint32_t accumulation : {1U, 4U}) {
      proto::RunConfig job = job_of(model, 8);
      job.mutable_training()->set_gradient_accumulation(accumulation);
      const Estimate e = estimate_of(job, testing::dataset());
      const auto program = plan_program(*compile_options(job, testing::dataset()));
      ASSERT_TRUE(program);
      EXPECT_NEAR(static_cast<double>(e.training->total().count()) / most_live(*program), 1, 0.01)
          << model << " " << accumulation;
      EXPECT_LE(e.inference.total(), e.training->total());
    }
  }
}

TEST(Estimate, HasFrozenParametersApart) {
  proto::RunConfig job = job_of("small-cnn", 4);
  job.mutable_training()->set_frozen("^conv");
  const Estimate e = estimate_of(job, testing::dataset());

  // conv1 has (3 * 3 * 1 + 1) * 32 of these parameters, and conv2 has (3 * 3 * 32 + 1) * 64.
  EXPECT_EQ(e.parameters, 421'642);
  EXPECT_EQ(e.trained, 421'642 - 320 - 18'496);
  EXPECT_EQ(kind(e, BlockKind::kConvolution).frozen_weights, 288 + 18'432);
  EXPECT_EQ(kind(e, BlockKind::kConvolution).frozen_biases, 32 + 64);
  EXPECT_EQ(e.guide_training->non_trainable, 320 + 18'496);
  EXPECT_EQ(e.guide_training->optimiser_states, e.trained);
  EXPECT_EQ(e.guide_inference.non_trainable, 0);
  EXPECT_EQ(e.kept->gradients, Bytes{4 * e.trained});
}

TEST(Estimate, OfInferenceHasNoTraining) {
  proto::RunConfig job = job_of("small-cnn", 4);
  job.set_inference(true);
  const Estimate e = estimate_of(job, testing::dataset());

  EXPECT_FALSE(e.training || e.kept || e.guide_training);
  EXPECT_EQ(e.parameters, 421'642);
  EXPECT_EQ(e.inference.weights, Bytes{4 * 421'642});
  EXPECT_EQ(&e.needs(), &e.inference);
}

TEST(Estimate, SuggestsIpusByThreeQuartersOfTheirMemory) {
  EXPECT_EQ(ipus_for(Bytes{0}, Bytes{100}), 1);
  EXPECT_EQ(ipus_for(Bytes{75}, Bytes{100}), 1);
  EXPECT_EQ(ipus_for(Bytes{76}, Bytes{100}), 2);
  EXPECT_EQ(ipus_for(Bytes{751}, Bytes{100}), 11);
}

/// An answer as the launcher prints it.
struct Printed {
  std::string text;
  Status status;
};

Printed ask(const proto::EstimateQuestion& question, const launcher::EstimateFrame& frame = {}) {
  std::istringstream stream(question.SerializeAsString());
  const Answer answer = answer_inquiry({"--estimate"}, stream);
  proto::EstimateAnswer estimates;
  EXPECT_TRUE(estimates.ParseFromString(answer.message));
  if (!answer.status) {
    EXPECT_EQ(estimates.jobs_size(), 0);
    return {"", answer.status};
  }
  std::vector<std::string> values;
  for (const proto::EstimatedJob& job : question.jobs()) {
    values.push_back(job.value());
  }
  return {question.varied_key().empty() ? estimate_tables(estimates.jobs(0), frame)
                                        : launcher::varied_table(question.varied_key(), values, estimates),
          answer.status};
}

proto::EstimateQuestion question_of(const std::vector<std::pair<std::string, proto::RunConfig>>& jobs,
                                    const proto::Dataset& data) {
  proto::EstimateQuestion question;
  for (const auto& [value, config] : jobs) {
    proto::EstimatedJob& job = *question.add_jobs();
    *job.mutable_config() = config;
    *job.mutable_dataset() = data;
    job.set_value(value);
  }
  return question;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST(EstimateQuestion, IsAnsweredIn80Columns) {
  for (const char* model : {"small-cnn", "resnet50", "bert-large", "gpt2-xl"}) {
    const Printed answer = ask(question_of({{"", job_of(model)}}, dataset_for(*find_model(model))), {.by_layer = true});
    ASSERT_TRUE(answer.status) << answer.status.error().message;
    for (const std::string& line : lines_of(answer.text)) {
      EXPECT_THAT(line.size(), Le(80U)) << line;
    }
  }
}

TEST(EstimateQuestion, OfACompiledJobHasItsPeakBeside) {
  proto::EstimateQuestion question = question_of({{"", job_of("small-cnn", 16)}}, testing::dataset());
  EXPECT_THAT(ask(question).text, ::testing::Not(HasSubstr("# compiled")));
  question.set_compile(true);

  const std::string text = ask(question).text;

  EXPECT_THAT(text, HasSubstr("\n# compiled\nIPU 0 memory   "));
  EXPECT_THAT(text, HasSubstr(" peak of 897.0 MiB, "));
  EXPECT_THAT(text, ::testing::ContainsRegex("\nestimated      .*; the compiler needs .* % more\n"));
}

TEST(EstimateQuestion, NamesTheSettingsThatItDoesNotCount) {
  proto::RunConfig job = job_of("small-cnn", 16);
  EXPECT_THAT(ask(question_of({{"", job}}, testing::dataset())).text, ::testing::Not(HasSubstr("Not counted")));
  job.mutable_topology()->set_num_replicas(4);
  job.mutable_memory()->set_optimizer_state("off-chip");
  job.mutable_memory()->add_replicated_tensor_sharding("optimizer-state");
  job.mutable_pipeline()->set_recomputation("layer");
  EXPECT_THAT(ask(question_of({{"", job}}, testing::dataset())).text,
              HasSubstr("Not counted, although they reduce the need for memory, so fewer IPUs may suffice\n"
                        "(--compile counts them):\n"
                        "  memory.optimizer-state\n"
                        "  memory.replicated-tensor-sharding\n"
                        "  pipeline.recomputation\n"));
  job.set_inference(true);
  EXPECT_THAT(ask(question_of({{"", job}}, testing::dataset())).text, ::testing::Not(HasSubstr("Not counted")))
      << "there is nothing of them in inference";
}

TEST(EstimateQuestion, OfLayersListsBlocksWithTheirFormulasWhereAskedFor) {
  const proto::EstimateQuestion question = question_of({{"", job_of("small-cnn")}}, testing::dataset());
  const std::string layers = ask(question, {.by_layer = true}).text;
  EXPECT_THAT(layers, HasSubstr("\nconv2                            18,496"));
  EXPECT_THAT(layers, ::testing::Not(HasSubstr("(3 x 3 x 32 + 1) x 64")));
  EXPECT_THAT(ask(question, {.by_layer = true, .everything = true}).text,
              HasSubstr("18,496  convolution: (3 x 3 x 32 + 1) x 64\n"));
}

TEST(EstimateQuestion, OfAVariedKeyHasARowForEachValueAndWhatEachMoreAdds) {
  std::vector<std::pair<std::string, proto::RunConfig>> jobs;
  for (const char* layers : {"1", "2", "4"}) {
    proto::RunConfig job = job_of("mlp", 4);
    (*job.mutable_model()->mutable_sizes())["layers"] = std::stoi(layers);
    (*job.mutable_model()->mutable_sizes())["hidden"] = 64;
    jobs.emplace_back(layers, job);
  }
  proto::EstimateQuestion question = question_of(jobs, testing::dataset());
  question.set_varied_key("model.layers");

  // 784 * 64 + 64 + 64 * 10 + 10, and 64 * 64 + 64 for each further layer.
  const std::vector<std::string> lines = lines_of(ask(question).text);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_THAT(lines[0], ::testing::MatchesRegex("model.layers +parameters +estimated +IPUs"));
  EXPECT_THAT(lines[1], ::testing::MatchesRegex("1 +50,890 .*"));
  EXPECT_THAT(lines[2], ::testing::MatchesRegex("2 +55,050 .*"));
  EXPECT_THAT(lines[3], ::testing::MatchesRegex("4 +63,370 .*"));
  EXPECT_THAT(lines[4], ::testing::MatchesRegex("per unit +4,160 +.* .iB"));

  question.set_compile(true);
  EXPECT_THAT(lines_of(ask(question).text)[0], HasSubstr("  compiled fullest tile"));
}

TEST(EstimateQuestion, NamesTheValueThatDoesNotWork) {
  proto::RunConfig bad = job_of("gpt2");
  (*bad.mutable_model()->mutable_sizes())["heads"] = 5;
  proto::EstimateQuestion question =
      question_of({{"12", job_of("gpt2")}, {"5", bad}}, dataset_for(*find_model("gpt2")));
  question.set_varied_key("model.heads");

  const Printed answer = ask(question);

  ASSERT_FALSE(answer.status);
  EXPECT_EQ(answer.status.error().code, ErrorCode::kUsage);
  EXPECT_EQ(answer.status.error().message,
            "--vary model.heads = 5: model.heads = 5 does not divide model.hidden = 768");
  EXPECT_FALSE(ask(proto::EstimateQuestion()).status) << "no job";
}

/// The model is relu(x w + b) v with x [N,3], w [3,4], b [4] and v [4,2]; its bias is added by a separate operation.
TEST(EstimateQuestion, OfAnOnnxModelFindsBiasesThatAreAddedApart) {
  testing::OnnxBuilder model;
  model.input("x", {-1, 3})
      .output("y", {-1, 2})
      .weight("first.weight", {3, 4}, std::vector<float>(12, 1))
      .weight("first.bias", {4}, std::vector<float>(4, 1))
      .weight("second.weight", {4, 2}, std::vector<float>(8, 1));
  model.node("MatMul", {"x", "first.weight"}, {"product"});
  model.node("Add", {"product", "first.bias"}, {"sum"});
  model.node("Relu", {"sum"}, {"h"});
  model.node("MatMul", {"h", "second.weight"}, {"y"});
  proto::RunConfig job = job_of("test.onnx", 4);
  job.mutable_model()->set_onnx("test.onnx");
  job.mutable_model()->set_loss("cross-entropy");
  proto::Dataset data = testing::dataset();
  data.mutable_tensors(0)->set_name("x");
  data.mutable_tensors(0)->set_element("f32");
  data.mutable_tensors(0)->clear_sample_shape();
  data.mutable_tensors(0)->add_sample_shape(3);
  data.set_classes(2);
  proto::EstimateQuestion question = question_of({{"", job}}, data);
  (*question.mutable_onnx_models())["test.onnx"] = model.bytes();

  const Printed answer = ask(question, {.by_layer = true, .everything = true});

  ASSERT_TRUE(answer.status) << answer.status.error().message;
  EXPECT_THAT(answer.text, HasSubstr("\ndense layer        2            20           4 "));
  EXPECT_THAT(answer.text, HasSubstr("dense layer: 3 x 4 + 4\n"));
  EXPECT_THAT(answer.text, HasSubstr("dense layer: 4 x 2\n"));
}

}  // namespace
}  // namespace poprun::estimate_test
