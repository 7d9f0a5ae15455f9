#include "replica/answers/inquiry.h"

#include <map>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "launcher/screen/dry_run.h"
#include "proto/answers.pb.h"
#include "proto/inquiry.pb.h"
#include "replica/models/layers/model.h"
#include "tests/unit/replica/onnx_models.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::inquiry_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using launcher::DryRunFrame;

/// An answer as the launcher prints it.
struct Printed {
  std::string text;
  Status status;
};

Printed ask(const std::string& question, const std::string& input = "", const DryRunFrame& frame = {}) {
  std::istringstream stream(input);
  const Answer answer = answer_inquiry({question}, stream);
  if (question == "--compile") {
    proto::CompileQuestion job;
    job.ParseFromString(input);
    proto::CompileAnswer compiled;
    EXPECT_TRUE(compiled.ParseFromString(answer.message));
    return {dry_run_text(compiled, job.config(), frame), answer.status};
  }
  proto::ModelList models;
  return {question == "--list-models" && models.ParseFromString(answer.message) ? launcher::model_table(models)
                                                                                : answer.message,
          answer.status};
}

/// Columns two and three of --list-models, by model.
std::map<std::string, std::pair<std::string, std::string>> listed() {
  std::istringstream lines(ask("--list-models").text);
  std::map<std::string, std::pair<std::string, std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    words >> rows[name].first >> rows[name].second;
  }
  return rows;
}

// Parameters: the models' papers and reference implementations (torchvision, Hugging Face). Multiply-accumulates:
// published counts of the convolutional networks (torchvision's weights page rounds them to 4.09, 7.80, 4.23, 16.41 and
// 0.39; it counts the other EfficientNets for larger images); small networks and transformers by hand, with S tokens,
// V words, M masks: layers * (12 S H^2 + 2 S^2 H) + S H V, or M (H^2 + H V) + H^2 + 2 H for BERT's heads, and 2 S H for
// SQuAD's. Llama with K features of keys and values and I of the feed-forward network:
// layers * (2 S H^2 + 2 S H K + 3 S H I + 2 S^2 H) + S H V; Mixtral with E experts, each with room for all tokens:
// S H E + 3 E S H I instead of 3 S H I. T5 with T tokens of the output: layers * (4 S H^2 + 2 S^2 H + 2 S H I) for the
// encoder, layers * (6 T H^2 + 2 S H^2 + 2 T^2 H + 2 S T H + 2 T H I) + T H V for the decoder.
TEST(ListModels, GivesPublishedCounts) {
  const auto rows = listed();
  const auto expect = [&](const char* name, const char* parameters, const char* gmac) {
    ASSERT_TRUE(rows.contains(name)) << name;
    EXPECT_EQ(rows.at(name).first, parameters) << name;
    EXPECT_EQ(rows.at(name).second, gmac) << name;
  };
  expect("small-cnn", "421,642", "0.004241152");
  expect("mlp", "1,863,690", "0.001861632");
  expect("resnet50", "25,557,032", "4.089184256");
  expect("resnet101", "44,549,160", "7.801405440");
  expect("resnext50-32x4d", "25,028,904", "4.230479872");
  expect("resnext101-32x8d", "88,791,336", "16.414015488");
  expect("resnext101-32x4d", "44,177,704", "7.969996800");
  expect("efficientnet-b0", "5,288,548", "0.385814752");
  expect("vit-base-16", "86,567,656", "17.563828224");
  expect("vit-large-16", "304,326,632", "61.554712576");
  expect("bert-base", "110,106,428", "50.145308160");
  expect("bert-large", "336,226,108", "169.959811072");
  expect("bert-base-squad", "108,893,186", "35.333406720");
  expect("bert-large-squad", "334,094,338", "123.212660736");
  expect("gpt2", "124,439,808", "145.824153600");
  expect("gpt2-medium", "354,823,168", "413.475536896");
  expect("gpt2-large", "774,030,080", "887.285350400");
  expect("gpt2-xl", "1,557,611,200", "1753.351782400");
  expect("mixtral-8x7b", "46,702,792,704", "96477.850370048");
  expect("t5-small", "60,506,624", "17.708900352");
  expect("t5-base", "222,903,552", "70.990700544");
  expect("t5-large", "737,668,096", "240.696360960");
  expect("llama-3.2-1b", "1,235,814,400", "2805.687386112");
  expect("llama-3.1-8b", "8,030,261,248", "16469.052096512");
  expect("unet", "31,037,698", "192.686325760");
  expect("lstm", "19,780,400", "0.464100000");
  expect("lstm-large", "66,034,000", "1.785000000");
  expect("dlrm", "540,677,217", "0.000486032");
  expect("vae", "652,824", "0.000651200");
}

TEST(ListModels, ShowsEveryModelWithTheSizesItTakes) {
  const Printed answer = ask("--list-models");
  ASSERT_TRUE(answer.status);
  for (const Model& model : all_models()) {
    EXPECT_THAT(answer.text, HasSubstr("\n" + model.name + " "));
    for (const auto& [size, value] : model.sizes) {
      EXPECT_THAT(answer.text, HasSubstr(size + "=" + (value == kOfData ? "from the data" : std::to_string(value))));
    }
  }
}

TEST(Inquiry, OfAnotherKindIsRefused) {
  const Printed answer = ask("--list");
  ASSERT_FALSE(answer.status);
  EXPECT_EQ(answer.status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(answer.status.error().message, HasSubstr("'--list'"));
}

TEST(Inquiry, SaysWhichMessageItNeeds) {
  EXPECT_THAT(ask("--compile", "x").status.error().message, HasSubstr("serialised CompileQuestion"));
  EXPECT_THAT(ask("--check-model", "x").status.error().message, HasSubstr("serialised ModelQuestion"));
}

/// Returns a job as the launcher sends it.
std::string serialised(const std::string& model, std::uint32_t micro_batch) {
  proto::CompileQuestion job;
  *job.mutable_config() = testing::config(4, micro_batch);
  job.mutable_config()->mutable_model()->set_name(model);
  job.mutable_config()->mutable_training()->set_steps(0);
  job.mutable_config()->mutable_training()->set_epochs(2);
  job.mutable_config()->mutable_topology()->set_ipus_per_replica(2);
  *job.mutable_dataset() = testing::dataset();
  job.mutable_dataset()->set_train_items(1000);
  return job.SerializeAsString();
}

TEST(Compile, TellsWhatTheProgramIs) {
  const Printed answer = ask("--compile", serialised("small-cnn", 16));
  ASSERT_TRUE(answer.status) << answer.status.error().message;
  for (const char* part :
       {"parameters     421,642\n", "operators      ", "steps          30 of 64 samples (15 per epoch)\n",
        " of 897.0 MiB, ", "at step ", "device step ", "(device clock, mk2, never compared)\n  host         ",
        " included\n", "note           pipeline.layers-per-ipu = balanced means ",
        "note           stage 1 on IPU 1: "}) {
    EXPECT_THAT(answer.text, HasSubstr(part));
  }
}

TEST(Compile, ShowsTheJobAfterEachPassWhereItIsAskedFor) {
  proto::CompileQuestion job;
  EXPECT_TRUE(job.ParseFromString(serialised("small-cnn", 16)));
  EXPECT_THAT(ask("--compile", job.SerializeAsString()).text, Not(HasSubstr("# job")));
  job.set_show_graphs(true);

  const std::string text = ask("--compile", job.SerializeAsString()).text;

  std::size_t last = text.find("# options\nconfig {\n  model {\n    name: \"small-cnn\"\n");
  ASSERT_NE(last, std::string::npos);
  for (const char* pass : {"forward", "stages", "differentiation", "exchange", "update"}) {
    const std::size_t found = text.find(fmt::format("# job after pass {}\nstages ipus=[0", pass));
    ASSERT_NE(found, std::string::npos) << pass;
    EXPECT_GE(found, last) << pass;
    last = found;
  }
  EXPECT_LT(last, text.find("# compiled"));
  EXPECT_THAT(text, HasSubstr("= momentum(conv1.weight, conv1.weight.gradient, "));
}

TEST(Compile, TellsWhatEachIpuDoes) {
  const std::string text = ask("--compile", serialised("small-cnn", 16)).text;

  EXPECT_THAT(text, HasSubstr("\nutilisation    "));
  EXPECT_THAT(text, HasSubstr(" % of 2 IPUs\nIPU 0 time     "));
  EXPECT_THAT(text, HasSubstr(" busy, "));
  EXPECT_THAT(text, HasSubstr("\nIPU 1 time     "));
}

TEST(Compile, DrawsTheScheduleOfThePublishedExample) {
  proto::CompileQuestion job;
  job.ParseFromString(serialised("small-cnn", 4));
  job.mutable_config()->mutable_training()->set_gradient_accumulation(12);
  job.mutable_config()->mutable_topology()->set_num_replicas(1);
  job.mutable_config()->mutable_topology()->set_ipus_per_replica(3);
  job.mutable_config()->mutable_pipeline()->set_schedule("grouped");
  job.mutable_config()->mutable_pipeline()->set_recomputation("none");
  const auto schedule = [&job](const DryRunFrame& frame) {
    const std::string text = ask("--compile", job.SerializeAsString(), frame).text;
    return text.substr(std::min(text.find("\nIPU 0 |"), text.size()));
  };
  EXPECT_EQ(schedule({}), "");
  EXPECT_EQ(schedule({.width = 120, .schedule = true}),
            "\nIPU 0 | A1 A2 A3   A4   A5G1 A6G2 A7G3 A8G4 A9G5 A10G6 A11G7 A12G8  G9     G10    G11 G12 "
            "U\n"
            "IPU 1 |    A1 A2   A3G1 A4G2 A5G3 A6G4 A7G5 A8G6 A9G7  A10G8 A11G9  A12G10 G11    G12 U\n"
            "IPU 2 |       A1G1 A2G2 A3G3 A4G4 A5G5 A6G6 A7G7 A8G8  A9G9  A10G10 A11G11 A12G12 U\n");
}

TEST(Compile, DrawsTheScheduleOfSeveralStagesOnOneIpu) {
  proto::CompileQuestion job;
  job.ParseFromString(serialised("small-cnn", 4));
  job.mutable_config()->mutable_training()->set_gradient_accumulation(3);
  job.mutable_config()->mutable_topology()->set_ipus_per_replica(1);
  job.mutable_config()->mutable_pipeline()->set_schedule("grouped");
  job.mutable_config()->mutable_pipeline()->set_recomputation("none");
  for (const std::uint32_t layers : {2U, 2U}) {
    job.mutable_config()->mutable_pipeline()->add_layers_per_ipu(layers);
    job.mutable_config()->mutable_pipeline()->add_device_mapping(0);
  }

  const Printed answer = ask("--compile", job.SerializeAsString(), {.schedule = true});

  EXPECT_THAT(answer.text, HasSubstr("\nIPU 0 | A1 A2A1G1 A3A2G2G1 A3G3G2 G3 U\n")) << answer.status.error().message;
}

TEST(Compile, ListsAFewOfManyIpusUnlessAllAreAskedFor) {
  proto::CompileQuestion job;
  job.ParseFromString(serialised("resnet18", 2));
  job.mutable_config()->mutable_topology()->set_ipus_per_replica(9);
  const auto rows = [&job](std::string_view end, bool all) {
    std::istringstream lines(ask("--compile", job.SerializeAsString(), {.everything = all}).text);
    int count = 0;
    for (std::string line; std::getline(lines, line);) {
      count += line.starts_with("IPU ") && line.substr(0, 14).find(end) != std::string::npos ? 1 : 0;
    }
    return count;
  };

  EXPECT_THAT(rows("memory", false), ::testing::AllOf(::testing::Ge(3), ::testing::Le(4)));
  EXPECT_THAT(rows("time", false), ::testing::AllOf(::testing::Ge(3), ::testing::Le(4)));
  EXPECT_THAT(ask("--compile", job.SerializeAsString()).text,
              ::testing::AllOf(HasSubstr(": the fullest\n"), HasSubstr(": the busiest\n"),
                               HasSubstr(" IPUs, listed with -vv\n"), HasSubstr("\nnote           stages 2 to ")));
  EXPECT_EQ(rows("memory", true), 9);
  EXPECT_EQ(rows("time", true), 9);
}

TEST(Compile, CountsWhatDoesNotFit) {
  proto::CompileQuestion job;
  job.ParseFromString(serialised("resnet50", 1000));
  job.mutable_dataset()->set_train_items(10'000);
  const Printed answer = ask("--compile", job.SerializeAsString());
  EXPECT_THAT(answer.text, HasSubstr("\nIPU 0 memory   "));
  EXPECT_THAT(answer.text, HasSubstr("\ndevice step    "));
  EXPECT_THAT(answer.text, HasSubstr("\nutilisation    "));
  EXPECT_THAT(answer.text, HasSubstr("parameters     23,522,250\n"));
  ASSERT_FALSE(answer.status);
  EXPECT_EQ(answer.status.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(answer.status.error().message, HasSubstr("out of memory: model resnet50 needs "));
  EXPECT_THAT(answer.status.error().message, HasSubstr("\n  always live  "));
}

TEST(Compile, TellsOfInferenceWithoutTraining) {
  proto::CompileQuestion job;
  job.ParseFromString(serialised("small-cnn", 16));
  job.mutable_config()->set_inference(true);
  const Printed answer = ask("--compile", job.SerializeAsString());
  ASSERT_TRUE(answer.status) << answer.status.error().message;
  EXPECT_THAT(answer.text, HasSubstr("batches        1 of 64 samples\n"));
  EXPECT_THAT(answer.text, HasSubstr("device batch "));

  job.mutable_dataset()->set_test_items(0);
  const Printed whole = ask("--compile", job.SerializeAsString());
  EXPECT_THAT(whole.text, HasSubstr("batches        16 of 64 samples\n")) << "all 1,000 items";
}

/// Returns the answer for inference on data without "labels" and with one tensor of `dimensions` per sample.
Printed without_labels(const std::string& model, const std::string& tensor, const std::string& element,
                       const std::vector<std::uint32_t>& dimensions, bool inference = true) {
  proto::CompileQuestion job;
  job.ParseFromString(serialised(model, 2));
  job.mutable_config()->set_inference(inference);
  job.mutable_dataset()->clear_tensors();
  job.mutable_dataset()->set_classes(0);
  proto::StreamTensor& stream = *job.mutable_dataset()->add_tensors();
  stream.set_name(tensor);
  stream.set_element(element);
  stream.mutable_sample_shape()->Add(dimensions.begin(), dimensions.end());
  (*job.mutable_config()->mutable_model()->mutable_sizes())["layers"] = 1;
  if (tensor == "images") {
    job.mutable_config()->mutable_model()->clear_sizes();
    (*job.mutable_config()->mutable_model()->mutable_sizes())["classes"] = 10;
  }
  return ask("--compile", job.SerializeAsString());
}

TEST(Compile, NeedsLabelsForTrainingOnly) {
  for (const char* model : {"small-cnn", "mlp", "resnet18"}) {
    const Printed inferred = without_labels(model, "images", "u8", {3, 32, 32});
    EXPECT_TRUE(inferred.status) << inferred.status.error().message;
    const Printed trained = without_labels(model, "images", "u8", {3, 32, 32}, false);
    ASSERT_FALSE(trained.status) << model;
    EXPECT_THAT(trained.status.error().message, HasSubstr("needs labels"));
  }
  for (const char* model : {"gpt2", "bert-base"}) {
    const Printed inferred = without_labels(model, "tokens", "i32", {16});
    EXPECT_TRUE(inferred.status) << inferred.status.error().message;
    EXPECT_FALSE(without_labels(model, "tokens", "i32", {16}, false).status) << model;
  }
}

/// Returns the answer for small-cnn with initial weights from a file that `change` has altered.
Printed with_weights(const std::function<void(google::protobuf::RepeatedPtrField<proto::TensorDescription>&)>& change) {
  proto::CompileQuestion job;
  job.ParseFromString(serialised("small-cnn", 16));
  job.mutable_config()->mutable_model()->set_initial_weights("file.safetensors");
  const std::map<std::string, std::vector<std::int64_t>> shapes = {{"conv1.weight", {32, 1, 3, 3}},
                                                                   {"conv1.bias", {32}},
                                                                   {"conv2.weight", {64, 32, 3, 3}},
                                                                   {"conv2.bias", {64}},
                                                                   {"fc1.bias", {128}},
                                                                   {"fc1.weight", {128, 3136}},
                                                                   {"fc2.weight", {10, 128}},
                                                                   {"fc2.bias", {10}},
                                                                   {"a name that the model lacks", {1}}};
  for (const auto& [name, shape] : shapes) {
    proto::TensorDescription& tensor = *job.add_initial_weights();
    tensor.set_name(name);
    tensor.set_type("f32");
    tensor.mutable_shape()->Add(shape.begin(), shape.end());
  }
  change(*job.mutable_initial_weights());
  return ask("--compile", job.SerializeAsString());
}

TEST(Compile, RefusesInitialWeightsThatDoNotFit) {
  // The weights are in the order of their names, from conv1.bias to fc2.weight.
  const auto refusal = [](const auto& change) {
    const Printed answer = with_weights(change);
    return answer.status ? "none" : answer.status.error().message;
  };
  EXPECT_EQ(refusal([](auto& /*tensors*/) {}), "none");
  EXPECT_EQ(refusal([](auto& tensors) { tensors.RemoveLast(); }),
            "model.initial-weights: the model needs 'fc2.weight' [10,128], but the file has no tensor of that "
            "name (1 of 8 weights missing); available: a name that the model lacks; "
            "model.initial-weights-partial = true keeps the initialisation of missing weights");
  EXPECT_EQ(refusal([](auto& tensors) { tensors.rbegin()->mutable_shape()->SwapElements(0, 1); }),
            "model.initial-weights: the model needs 'fc2.weight' [10,128], but the file has [128,10]; if "
            "the weight belongs to a new head, model.initial-weights-partial = true keeps its initialisation");
  EXPECT_THAT(refusal([](auto& tensors) { tensors.rbegin()->set_type("i64"); }),
              HasSubstr("'fc2.weight' has elements of type i64"));
}

/// Returns the answer about small-cnn on two IPUs per replica, with that many replicas and micro-batches.
proto::ScaledJob scaled(std::uint32_t replicas, std::uint32_t micro_batches) {
  proto::CompileQuestion job;
  job.ParseFromString(serialised("small-cnn", 4));
  job.mutable_config()->mutable_topology()->set_num_replicas(replicas);
  job.mutable_config()->mutable_training()->set_gradient_accumulation(micro_batches);
  std::istringstream input(job.SerializeAsString());
  const Answer answer = answer_inquiry({"--scale"}, input);
  EXPECT_TRUE(answer.status) << answer.status.error().message;
  proto::ScaledJob scaled;
  EXPECT_TRUE(scaled.ParseFromString(answer.message));
  return scaled;
}

TEST(Scale, DividesAStepIntoPartsThatAddUpToIt) {
  for (const std::uint32_t replicas : {1U, 3U, 65'536U}) {
    const proto::ScaledJob job = scaled(replicas, 6);
    EXPECT_EQ(job.batch_sizes().global_batch_size(), 24 * std::uint64_t{replicas});
    EXPECT_NEAR(
        job.tile_seconds() + job.all_reduce_seconds() + job.copy_seconds() + job.host_seconds() + job.idle_seconds(),
        job.step_seconds(), 1e-9 * job.step_seconds());
    EXPECT_DOUBLE_EQ(job.samples_per_second() * job.step_seconds(),
                     static_cast<double>(job.batch_sizes().global_batch_size()));
    EXPECT_GT(job.copy_seconds(), 0);
    EXPECT_GT(job.idle_seconds(), 0);
    EXPECT_TRUE(job.fits());
    EXPECT_LT(job.peak_bytes(), job.capacity_bytes());
  }
}

TEST(Scale, OnlyTheExchangeBetweenReplicasDependsOnTheirNumber) {
  const proto::ScaledJob alone = scaled(1, 6);
  EXPECT_EQ(alone.all_reduce_seconds(), 0);
  const proto::ScaledJob few = scaled(2, 6);
  const proto::ScaledJob many = scaled(4096, 6);
  EXPECT_GT(few.all_reduce_seconds(), 0);
  EXPECT_GT(many.all_reduce_seconds(), few.all_reduce_seconds());
  EXPECT_DOUBLE_EQ(many.copy_seconds(), few.copy_seconds());
  EXPECT_DOUBLE_EQ(many.tile_seconds(), few.tile_seconds());
}

TEST(CheckModel, RefusesWhatCannotBeImportedWithItsFile) {
  proto::ModelQuestion question;
  question.mutable_model()->set_onnx("test.onnx");
  question.mutable_model()->set_loss("cross-entropy");
  question.set_onnx_model(testing::perceptron().bytes());
  const Printed good = ask("--check-model", question.SerializeAsString());
  EXPECT_TRUE(good.status) << good.status.error().message;
  EXPECT_EQ(good.text, "");

  question.set_onnx_model("no model");
  const Printed bad = ask("--check-model", question.SerializeAsString());
  ASSERT_FALSE(bad.status);
  EXPECT_EQ(bad.status.error().code, ErrorCode::kData);
  EXPECT_THAT(bad.status.error().message, HasSubstr("model.onnx test.onnx: not an ONNX model, or a damaged one (8 B)"));
}

TEST(Compile, RefusesDataThatTheModelDoesNotTake) {
  const Printed answer = ask("--compile", serialised("gpt2", 1));
  ASSERT_FALSE(answer.status);
  EXPECT_EQ(answer.status.error().code, ErrorCode::kUsage);
  EXPECT_EQ(answer.text, "");
}

}  // namespace
}  // namespace poprun::inquiry_test
