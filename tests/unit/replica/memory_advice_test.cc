#include "replica/instance/memory_advice.h"

#include <gmock/gmock.h>

#include "replica/base/text.h"
#include "replica/compiler/compile.h"
#include "replica/instance/remedies.h"
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

MemoryAdvice advice(proto::RunConfig job, const proto::Dataset& data) {
  proto::PipelineConfig& pipeline = *job.mutable_pipeline();  // As the launcher sends it.
  pipeline.set_schedule("grouped");
  pipeline.set_recomputation_memory(0.9);
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

/// GPT-2 with samples of 1,024 tokens, and what it is trained on.
proto::RunConfig gpt2(std::uint32_t micro_batch_size, std::int64_t layers) {
  proto::RunConfig job = config(1, micro_batch_size);
  job.mutable_model()->set_name("gpt2");
  (*job.mutable_model()->mutable_sizes())["layers"] = layers;
  return job;
}

proto::Dataset long_texts() {
  proto::Dataset text = dataset();
  text.clear_tensors();
  for (const char* name : {"tokens", "labels"}) {
    proto::StreamTensor& tensor = *text.add_tensors();
    tensor.set_name(name);
    tensor.set_element("i32");
    tensor.add_sample_shape(1024);
  }
  text.set_classes(257);
  return text;
}

constexpr std::uint64_t kCapacity = 940'572'672;  // An mk2's.

TEST(MemoryAdvice, NamesTheLargestMicroBatchThatFitsAndKeepsTheBatch) {
  proto::RunConfig job = config(1, 16'384);
  const std::string text = advice(job, dataset()).sentence;
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
  const MemoryAdvice said = memory_advice(*plan_program(*compile_options(job, dataset())), job,
                                          dataset(), nullptr, std::chrono::steady_clock::now());
  EXPECT_EQ(said.sentence, "nothing tried in the time available makes it fit");
  EXPECT_EQ(said.table, "");
}

TEST(MemoryAdvice, NamesHalfPrecisionWhereOnlyTheWeightsAreTooLarge) {
  proto::RunConfig job = mlp(9'000);
  EXPECT_THAT(advice(job, dataset()).sentence, HasSubstr("with model.precision half ("));

  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_loss_scaling(0);
  EXPECT_LE(peak(job, dataset()), kCapacity);
}

TEST(MemoryAdvice, NamesTheFewestIpusThatFit) {
  proto::RunConfig job = gpt2(1, 12);
  (*job.mutable_model()->mutable_sizes())["hidden"] = 768;
  const MemoryAdvice said = advice(job, long_texts());
  const std::uint32_t ipus = number_after(said.sentence, "--ipus-per-replica ");
  EXPECT_GT(ipus, 2U);

  const auto fits = [&job](std::uint32_t number) {
    job.mutable_topology()->set_ipus_per_replica(number);
    const auto program = plan_program(*compile_options(job, long_texts()));
    return std::ranges::all_of(program->memory(), [](const proto::IpuMemory& memory) {
      return memory.peak() <= kCapacity;
    });
  };
  EXPECT_TRUE(fits(ipus)) << said.sentence;
  EXPECT_FALSE(fits(ipus / 2)) << said.sentence;
}

TEST(MemoryAdvice, GoesNoFurtherThanTheModelsLayers) {
  const MemoryAdvice said = advice(mlp(40'000), dataset());
  EXPECT_THAT(said.table, HasSubstr("--ipus-per-replica 2 "));
  EXPECT_THAT(said.table, Not(HasSubstr("--ipus-per-replica 4")));
}

TEST(MemoryAdvice, CombinesRemediesWhereNoneFitsAlone) {
  const MemoryAdvice said = advice(gpt2(64, 6), long_texts());
  EXPECT_THAT(said.sentence, MatchesRegex("it fits with data.micro-batch-size [0-9]+, "
                                          "training.gradient-accumulation [0-9]+ and "
                                          "[^,]+ together \\([0-9.,]+ MiB\\)"));
  EXPECT_THAT(said.table, MatchesRegex("remedies, each compiled: +on the fullest IPU\n"
                                       "(  .* MiB, over by [0-9.,]+ MiB\n)+"
                                       "  data.micro-batch-size [0-9]+, .* MiB, fits\n"))
      << said.table;
}

TEST(MemoryAdvice, CombinesWhatFitsTogetherWhereOthersAreAtOdds) {
  proto::RunConfig job = gpt2(32, 6);
  job.mutable_topology()->set_ipus_per_replica(2);

  const MemoryAdvice said = advice(job, long_texts());

  EXPECT_THAT(said.sentence, HasSubstr("it fits with ")) << said.table;
}

TEST(MemoryAdvice, SaysSoWhereNoRemedyApplies) {
  proto::RunConfig job = mlp(40'000);
  job.mutable_topology()->set_ipus_per_replica(2);
  job.mutable_data()->set_micro_batch_size(1);
  job.mutable_model()->set_precision("half");
  job.set_inference(true);

  const MemoryAdvice said = advice(job, dataset());

  EXPECT_EQ(said.sentence, "nothing that was tried makes it fit");
  EXPECT_EQ(said.table, "");
}

TEST(MemoryAdvice, SaysWhatComesClosestWhereNothingFits) {
  const MemoryAdvice said = advice(mlp(40'000), dataset());
  EXPECT_THAT(said.sentence,
              MatchesRegex("nothing that was tried makes it fit; with --ipus-per-replica 2 and "
                           "model.precision half together it comes closest: [0-9.,]+ MiB over"));
  EXPECT_THAT(said.table, HasSubstr("  model.precision half "));
  EXPECT_THAT(said.table, HasSubstr(" over by "));
  EXPECT_THAT(said.table, Not(HasSubstr("fits")));
}

/// A job on two IPUs whose stages are named, of which the third shares an IPU.
ChangedJob staged(std::int64_t encoder_layers) {
  ChangedJob job{mlp(9'000), dataset(), encoder_layers};
  job.config.mutable_topology()->set_ipus_per_replica(2);
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  pipeline.set_schedule("grouped");
  for (const char* name : {"fc2", "fc3"}) {
    pipeline.add_split(name);
  }
  for (const std::uint32_t ipu : {0U, 1U, 0U}) {
    pipeline.add_device_mapping(ipu);
  }
  return job;
}

constexpr std::size_t kOtherStages = 3;
constexpr std::size_t kMoreIpus = 4;

TEST(Remedies, ReplaceNamedStagesWithMoreIpus) {
  ChangedJob job = staged(0);
  remedies_for(job).at(kMoreIpus).settings.front()(job);
  EXPECT_EQ(job.options(),
            "--ipus-per-replica 4, pipeline.layers-per-ipu balanced, without pipeline.split and "
            "without pipeline.device-mapping");
  EXPECT_TRUE(job.config.pipeline().split().empty());
  EXPECT_TRUE(job.config.pipeline().device_mapping().empty());
}

TEST(Remedies, PutTheHeadBesideTheEmbeddingsOnAnyNumberOfIpus) {
  ChangedJob job = staged(12);
  remedies_for(job).at(kOtherStages).settings.back()(job);
  EXPECT_EQ(job.options(),
            "pipeline.layers-per-ipu 0 12 0, pipeline.device-mapping 0 1 0 and without "
            "pipeline.split");
  remedies_for(staged(12)).at(kMoreIpus).settings.front()(job);
  EXPECT_EQ(job.options(),
            "--ipus-per-replica 4, pipeline.layers-per-ipu 0 4 4 4 0 and pipeline.device-mapping "
            "0 1 2 3 0");
}

TEST(MemoryAdvice, OfInferenceHasNoAccumulation) {
  proto::RunConfig job = config(1, 65'536);
  job.set_inference(true);
  const std::string text = advice(job, dataset()).sentence;
  EXPECT_THAT(text, HasSubstr("data.micro-batch-size "));
  EXPECT_THAT(text, Not(HasSubstr("gradient-accumulation")));
}

TEST(OutOfMemory, HasALineForEachIpuThatIsOverOrNot) {
  proto::RunConfig job = gpt2(16, 6);
  job.mutable_topology()->set_ipus_per_replica(2);
  const Status fits = check_fits(*plan_program(*compile_options(job, long_texts())), [] {
    return MemoryAdvice{"do it", "a table\n"};
  });
  ASSERT_FALSE(fits);
  EXPECT_THAT(
      fits.error().message,
      MatchesRegex("out of memory: model gpt2 needs [0-9.,]+ MiB \\([0-9,]+ B\\) of In-Processor "
                   "Memory on IPU [01], but mk2 has 897.0 MiB \\(940,572,672 B\\); do it\n"
                   "planned peak of each IPU:\n"
                   "  IPU 0 +[0-9.,]+ MiB of 897.0 MiB, over by [0-9.,]+ MiB\n"
                   "  IPU 1 +[0-9.,]+ MiB of 897.0 MiB, over by [0-9.,]+ MiB\n"
                   "a table\n"
                   "the peak of IPU [01] is at step (.|\n)*"));
}

}  // namespace
}  // namespace poprun
