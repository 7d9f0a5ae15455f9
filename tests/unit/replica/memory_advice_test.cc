#include "replica/instance/memory_advice.h"

#include <gmock/gmock.h>

#include "replica/base/text.h"
#include "replica/compiler/compile.h"
#include "training_job.h"

namespace poprun {
namespace {

using namespace poprun::testing;  // NOLINT: the jobs of tests.
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::uint64_t peak(const proto::RunConfig& job, const proto::Dataset& data) {
  return plan_program(*compile_options(job, data))->memory(0).peak();
}

std::string advice(const proto::RunConfig& job, const proto::Dataset& data) {
  return memory_advice(*plan_program(*compile_options(job, data)), job, data, nullptr);
}

std::uint32_t number_after(const std::string& text, const std::string& option) {
  return static_cast<std::uint32_t>(std::stoul(text.substr(text.find(option) + option.size())));
}

proto::RunConfig mlp(std::int64_t hidden) {
  proto::RunConfig job = config(1, 4);
  job.mutable_model()->set_name("mlp");
  (*job.mutable_model()->mutable_sizes())["hidden"] = hidden;
  return job;
}

constexpr std::uint64_t kCapacity = 940'572'672;  // An mk2's.

TEST(MemoryAdvice, NamesTheLargestMicroBatchThatFitsAndKeepsTheBatch) {
  proto::RunConfig job = config(1, 16'384);
  const std::string text = advice(job, dataset());
  const std::uint32_t size = number_after(text, "data.micro-batch-size ");
  const std::uint32_t pieces = number_after(text, "training.gradient-accumulation ");
  EXPECT_EQ(size * pieces, 16'384U) << text;

  job.mutable_data()->set_micro_batch_size(size);
  job.mutable_training()->set_gradient_accumulation(pieces);
  EXPECT_LE(peak(job, dataset()), kCapacity) << text;
  EXPECT_THAT(text, HasSubstr("(" + mebibytes_text(peak(job, dataset())) + ")"));

  job.mutable_data()->set_micro_batch_size(size * 2);
  job.mutable_training()->set_gradient_accumulation(pieces / 2);
  EXPECT_GT(peak(job, dataset()), kCapacity) << text;
}

TEST(MemoryAdvice, SaysNothingOfWhatItHadNoTimeToTry) {
  const proto::RunConfig job = config(1, 16'384);
  EXPECT_EQ(memory_advice(*plan_program(*compile_options(job, dataset())), job, dataset(), nullptr,
                          std::chrono::steady_clock::now()),
            "a smaller model may be needed");
}

TEST(MemoryAdvice, NamesHalfPrecisionWhereOnlyTheWeightsAreTooLarge) {
  proto::RunConfig job = mlp(9'000);
  const std::string text = advice(job, dataset());
  EXPECT_THAT(text, MatchesRegex("it fits with model.precision half \\(.* MiB\\)"));

  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_loss_scaling(0);
  EXPECT_LE(peak(job, dataset()), kCapacity);
}

TEST(MemoryAdvice, NamesAShorterSequenceWhereNothingElseHelps) {
  proto::RunConfig job = config(1, 2);
  job.mutable_model()->set_name("gpt2");
  (*job.mutable_model()->mutable_sizes())["layers"] = 6;
  proto::Dataset text = dataset();
  text.clear_tensors();
  for (const char* name : {"tokens", "labels"}) {
    proto::StreamTensor& tensor = *text.add_tensors();
    tensor.set_name(name);
    tensor.set_element("i32");
    tensor.add_sample_shape(1024);
  }
  text.set_classes(257);
  const std::string said = advice(job, text);
  EXPECT_THAT(said, HasSubstr("it fits with model.precision half and data.micro-batch-size 1 and "
                              "training.gradient-accumulation 2 and data.sequence-length "));
  EXPECT_LT(number_after(said, "data.sequence-length "), 1024U);
}

TEST(MemoryAdvice, SaysWhatComesNearestWhereNothingFits) {
  const std::string text = advice(mlp(40'000), dataset());
  EXPECT_THAT(text, HasSubstr("a smaller model is needed; model.precision half and "
                              "data.micro-batch-size 1 and training.gradient-accumulation 4 ("));
  EXPECT_THAT(text, HasSubstr(" MiB) comes closest"));
}

TEST(MemoryAdvice, OfInferenceHasNoAccumulation) {
  proto::RunConfig job = config(1, 65'536);
  job.set_inference(true);
  const std::string text = advice(job, dataset());
  EXPECT_THAT(text, HasSubstr("data.micro-batch-size "));
  EXPECT_THAT(text, Not(HasSubstr("gradient-accumulation")));
}

}  // namespace
}  // namespace poprun
