#include "replica/search/memory_advice.h"

#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "replica/base/text.h"
#include "replica/compilation/profile.h"
#include "replica/compiler/automatic.h"
#include "replica/search/remedies.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::memory_advice_test {
namespace {

using namespace poprun::testing;  // NOLINT: the jobs of tests.
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

Program planned(const proto::RunConfig& job, const proto::Dataset& data) {
  return *plan_program(*compile_options(job, data));
}

/// Returns the bytes that a job needs on its fullest tile.
std::uint64_t tile(const proto::RunConfig& job, const proto::Dataset& data) {
  return fullest(planned(job, data)).fullest_tile_peak();
}

MemoryAdvice advice(proto::RunConfig job, const proto::Dataset& data) {
  proto::PipelineConfig& pipeline = *job.mutable_pipeline();  // As the launcher sends it.
  pipeline.set_schedule("grouped");
  pipeline.set_recomputation_memory(0.9);
  return memory_advice(planned(job, data), job, data, nullptr);
}

/// A row of the table.
struct Row {
  std::uint64_t bytes = 0;
  std::string lack;  ///< "fits" or "12,345 B".
  std::string step_time;
  std::string change;  ///< "" for the unchanged job.
  std::string options;

  [[nodiscard]] bool fits() const { return lack == "fits"; }
  [[nodiscard]] int percent() const { return std::stoi(change); }
};

std::uint64_t ungrouped(std::string number) {
  std::erase(number, ',');
  return std::stoull(number);
}

std::vector<Row> rows_of(const std::string& table) {
  static const std::regex kRow(" +([0-9,]+) B +(fits|[0-9,]+ B) +([0-9.]+ [mu]?s) +(?:([+-][0-9]+ %)  (.*)|as it is)");
  std::istringstream lines(table);
  std::vector<Row> rows;
  for (std::string line; std::getline(lines, line);) {
    std::smatch cells;
    if (std::regex_match(line, cells, kRow)) {
      rows.push_back({ungrouped(cells[1]), cells[2], cells[3], cells[4], cells[5]});
    }
  }
  return rows;
}

/// Returns the row of the remedy that begins with `options`. If there is none, fails and returns an empty row.
Row row_of(const MemoryAdvice& advice, const std::string& options) {
  for (const Row& row : rows_of(advice.table)) {
    if (row.options.starts_with(options)) {
      return row;
    }
  }
  ADD_FAILURE() << "no row of " << options << " in\n" << advice.table;
  return {};
}

/// Returns the step time of a job, as tables print it.
std::string step_time(const proto::RunConfig& job, const proto::Dataset& data) {
  return duration_text(
      device_time(planned(job, data), job, job_length(job, data).value_or(JobLength{})).step_seconds());
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

/// Returns a job of a small GPT-2; `texts` returns its dataset.
proto::RunConfig gpt2(std::uint32_t micro_batch_size, std::int64_t layers) {
  proto::RunConfig job = config(1, micro_batch_size);
  job.mutable_model()->set_name("gpt2");
  std::map<std::string, std::int64_t> sizes = {{"layers", layers}, {"hidden", 64}, {"heads", 4}, {"vocabulary", 257}};
  job.mutable_model()->mutable_sizes()->insert(sizes.begin(), sizes.end());
  set_optimizer(job, "adamw");
  job.mutable_memory()->set_in_place(true);
  job.mutable_training()->set_evaluate(false);
  return job;
}

proto::Dataset texts(std::uint32_t length) {
  proto::Dataset text = dataset();
  text.clear_tensors();
  for (const char* name : {"tokens", "labels"}) {
    proto::StreamTensor& tensor = *text.add_tensors();
    tensor.set_name(name);
    tensor.set_element("i32");
    tensor.add_sample_shape(length);
  }
  text.set_classes(257);
  return text;
}

constexpr std::uint64_t kTile = 638'976;  // An mk2's.

/// Returns the job on IPUs of 24 tiles.
proto::RunConfig on_few_tiles(proto::RunConfig job, std::uint64_t bytes_per_tile) {
  job.mutable_device()->set_tiles(24);
  job.mutable_device()->set_bytes_per_tile(bytes_per_tile);
  return job;
}

TEST(MemoryAdvice, NamesTheLargestMicroBatchThatFitsAndKeepsTheBatch) {
  proto::RunConfig job = config(1, 16'384);
  const MemoryAdvice said = advice(job, dataset());
  const Row row = row_of(said, "data.micro-batch-size ");
  const std::uint32_t size = number_after(row.options, "data.micro-batch-size ");
  const std::uint32_t pieces = number_after(row.options, "training.gradient-accumulation ");
  EXPECT_EQ(size * pieces, 16'384U) << said.table;
  EXPECT_TRUE(row.fits()) << said.table;

  job.mutable_data()->set_micro_batch_size(size);
  job.mutable_training()->set_gradient_accumulation(pieces);
  EXPECT_LE(tile(job, dataset()), kTile) << said.table;
  EXPECT_EQ(tile(job, dataset()), row.bytes);
  EXPECT_EQ(step_time(job, dataset()), row.step_time);

  job.mutable_data()->set_micro_batch_size(size * 2);
  job.mutable_training()->set_gradient_accumulation(pieces / 2);
  EXPECT_GT(tile(job, dataset()), kTile) << said.table;
}

TEST(MemoryAdvice, TellsOfEachCompilationAndKeepsWithinTheirBudget) {
  constexpr std::size_t kBudget = 160;
  constexpr std::size_t kOfOneRemedy = 2 * kSplitsMax;  // Each split may be compiled again with outlining.
  const proto::RunConfig job = mlp(40'000);
  std::size_t compilations = 0;
  const MemoryAdvice said =
      memory_advice(planned(job, dataset()), job, dataset(), nullptr, {.before_compilation = [&] { ++compilations; }});
  EXPECT_GE(compilations, rows_of(said.table).size() - 1) << said.table;
  EXPECT_LE(compilations, kBudget + kOfOneRemedy);
}

TEST(MemoryAdvice, TriesLittleOfALargeJobThatLacksMuch) {
  constexpr std::size_t kBudget = 10;
  proto::RunConfig job = gpt2(1, 32);
  job.mutable_device()->set_bytes_per_tile(16'384);
  const proto::Dataset text = texts(32);
  std::size_t compilations = 0;
  const MemoryAdvice said =
      memory_advice(planned(job, text), job, text, nullptr, {.before_compilation = [&] { ++compilations; }});
  EXPECT_THAT(said.table, HasSubstr("--ipus-per-replica "));
  EXPECT_LE(compilations, kBudget + 2 * kSplitsMax);
}

TEST(MemoryAdvice, TriesVeryLittleOfAHugeJobAndSaysSo) {
  constexpr std::int64_t kIpus = 16;
  proto::RunConfig job = gpt2(1, kIpus);
  (*job.mutable_model()->mutable_sizes())["hidden"] = 512;
  job.mutable_topology()->set_ipus_per_replica(kIpus);
  job.mutable_device()->set_bytes_per_tile(32'768);
  for (std::int64_t ipu = 0; ipu < kIpus; ++ipu) {
    job.mutable_pipeline()->add_layers_per_ipu(1);
  }
  const proto::Dataset text = texts(256);
  const Program program = planned(job, text);
  std::size_t kinds = 0;
  for (const proto::IpuMemory& memory : program.memory()) {
    kinds += memory.tile_classes();
  }
  ASSERT_GT(kinds, 1'500) << "of tiles, beyond which a job is huge";

  std::size_t compilations = 0;
  const MemoryAdvice said = memory_advice(program, job, text, nullptr, {.before_compilation = [&] { ++compilations; }});

  EXPECT_GE(compilations, 2);
  EXPECT_LE(compilations, 4);
  EXPECT_THAT(said.sentence, EndsWith("; not every remedy was tried"));
}

TEST(MemoryAdvice, EndsWithTheFirstRemedyAsACommand) {
  const proto::RunConfig job = config(1, 16'384);
  const MemoryAdvice said =
      memory_advice(planned(job, dataset()), job, dataset(), nullptr, {.command = {"-n", "1", "'my train.cfg'"}});
  const std::string first = rows_of(said.table).at(1).options;
  const std::string size = first.substr(0, first.find(" and "));
  ASSERT_THAT(first, StartsWith("data.micro-batch-size ")) << said.table;
  EXPECT_THAT(said.table, HasSubstr("\nthe first as a command:\n  poprun-emu -n 1 'my train.cfg' --" + size +
                                    " --training.gradient-accumulation "));
}

TEST(MemoryAdvice, SharesAmongReplicasAStateThatIsMostOfTheTile) {
  proto::RunConfig job = mlp(9'000);
  set_optimizer(job, "adamw");
  job.mutable_topology()->set_num_replicas(4);
  CompileOptions options = *compile_options(job, dataset());
  options.layout_if_too_large = true;
  const Program program = *plan_program(options);
  const MemoryAdvice said = memory_advice(program, job, dataset(), nullptr);
  EXPECT_THAT(said.table, HasSubstr("memory.replicated-tensor-sharding optimizer-state")) << said.table;
}

TEST(MemoryAdvice, PredictsWhatTheJobNeedsWithARemedy) {
  proto::RunConfig job = mlp(9'000);
  const MemoryAdvice said = advice(job, dataset());
  const Row as_it_is = rows_of(said.table).at(0);
  EXPECT_EQ(as_it_is.bytes, tile(job, dataset()));
  EXPECT_EQ(as_it_is.lack, fmt::format("{} B", grouped(as_it_is.bytes - kTile)));
  EXPECT_EQ(as_it_is.step_time, step_time(job, dataset()));

  const Row row = row_of(said, "model.precision half and model.partials half");
  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_loss_scaling(0);
  proto::ProductSetting& partials = *job.mutable_model()->add_partials();
  partials.set_partials("half");
  EXPECT_EQ(row.bytes, tile(job, dataset()));
  EXPECT_EQ(row.step_time, step_time(job, dataset()));
  EXPECT_EQ(row.lack, row.bytes <= kTile ? "fits" : fmt::format("{} B", grouped(row.bytes - kTile)));
}

TEST(MemoryAdvice, RanksWhatFitsByTimeAndTheOthersByWhatTheyLack) {
  for (const MemoryAdvice& said : {advice(mlp(8'000), dataset()), advice(config(1, 16'384), dataset())}) {
    std::vector<Row> rows = rows_of(said.table);
    ASSERT_GT(rows.size(), 2U) << said.table;
    rows.erase(rows.begin());
    for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
      EXPECT_GE(rows[i].fits(), rows[i + 1].fits()) << said.table;
      if (rows[i].fits() && rows[i + 1].fits()) {
        EXPECT_LE(rows[i].percent(), rows[i + 1].percent()) << said.table;
      } else if (!rows[i].fits()) {
        EXPECT_LE(rows[i].bytes, rows[i + 1].bytes) << said.table;
      }
    }
    EXPECT_THAT(said.sentence, StartsWith("it fits with " + rows[0].options)) << said.table;
  }
}

TEST(MemoryAdvice, NamesTheFewestIpusThatFit) {
  constexpr std::uint64_t kBytes = 280'000;
  proto::RunConfig job = on_few_tiles(gpt2(8, 4), kBytes);
  const MemoryAdvice said = advice(job, texts(32));
  const std::uint32_t ipus = number_after(row_of(said, "--ipus-per-replica ").options, "--ipus-per-replica ");
  EXPECT_GT(ipus, 2U);

  const auto fits_on = [&job](std::uint32_t number) {
    job.mutable_topology()->set_ipus_per_replica(number);
    return tile(job, texts(32)) <= kBytes;
  };
  EXPECT_TRUE(fits_on(ipus)) << said.table;
  EXPECT_FALSE(fits_on(ipus / 2)) << said.table;
}

TEST(MemoryAdvice, GoesNoFurtherThanTheModelsLayers) {
  const MemoryAdvice said = advice(mlp(40'000), dataset());
  EXPECT_THAT(said.table, HasSubstr("--ipus-per-replica 2\n"));
  EXPECT_THAT(said.table, Not(HasSubstr("--ipus-per-replica 4")));
}

TEST(MemoryAdvice, CombinesRemediesWhereNoneFitsAlone) {
  const MemoryAdvice said = advice(on_few_tiles(gpt2(8, 4), 170'000), texts(32));
  std::vector<Row> rows = rows_of(said.table);
  ASSERT_GT(rows.size(), 3U) << said.table;
  EXPECT_TRUE(rows[1].fits()) << said.table;
  EXPECT_THAT(rows[1].options, HasSubstr(" and ")) << said.table;
  EXPECT_THAT(said.sentence, StartsWith("it fits with " + rows[1].options + " together ("));
  for (std::size_t i = 2; i < rows.size(); ++i) {
    EXPECT_FALSE(rows[i].fits()) << said.table;
  }
}

TEST(MemoryAdvice, CombinesWhatFitsTogetherWhereOthersAreAtOdds) {
  proto::RunConfig job = on_few_tiles(gpt2(8, 4), 170'000);
  job.mutable_topology()->set_ipus_per_replica(2);

  const MemoryAdvice said = advice(job, texts(32));

  EXPECT_THAT(said.sentence, HasSubstr("it fits with ")) << said.table;
}

TEST(MemoryAdvice, SaysSoWhereNoRemedyApplies) {
  proto::RunConfig job = mlp(40'000);
  job.mutable_topology()->set_ipus_per_replica(2);
  job.mutable_data()->set_micro_batch_size(1);
  job.mutable_model()->set_precision("half");
  job.mutable_model()->add_partials()->set_text("half");
  job.mutable_memory()->add_available_memory_proportion()->set_permille(100);
  job.set_inference(true);

  const MemoryAdvice said = advice(job, dataset());

  EXPECT_EQ(said.sentence, "nothing that was tried makes it fit");
  EXPECT_EQ(said.table, "");
}

TEST(MemoryAdvice, SaysWhatComesClosestWhereNothingFits) {
  const MemoryAdvice said = advice(mlp(40'000), dataset());
  EXPECT_THAT(said.sentence,
              MatchesRegex("nothing that was tried makes it fit; the closest attempt is .*memory.optimizer-state "
                           "off-chip, --ipus-per-replica 2, model.precision half and model.partials "
                           "half together, still [0-9,]+ B over"))
      << said.table;
  EXPECT_THAT(said.table, HasSubstr("  model.precision half"));
  EXPECT_THAT(said.table, Not(HasSubstr("fits")));
}

/// Returns a job on two IPUs with three named stages, of which the first and the third share an IPU.
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

constexpr std::size_t kOtherStages = 5;
constexpr std::size_t kMoreIpus = 6;

TEST(Remedies, ReplaceNamedStagesWithMoreIpus) {
  ChangedJob job = staged(0);
  remedies_for(job).at(kMoreIpus).settings.front()(job);
  EXPECT_EQ(job.options(),
            "--ipus-per-replica 4, pipeline.layers-per-ipu balanced, without pipeline.split and "
            "pipeline.device-mapping 0 1 2 3");
  EXPECT_TRUE(job.config.pipeline().split().empty());
  EXPECT_EQ(job.config.pipeline().device_mapping_size(), 4);
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

/// Applies a setting of the remedy at index `place` to a job.
ChangedJob changed(ChangedJob job, std::size_t place, std::size_t setting) {
  remedies_for(job).at(place).settings.at(setting)(job);
  return job;
}

constexpr std::size_t kProportion = 1;

/// Returns a job on two IPUs, of which those marked in `over` are too full.
ChangedJob crowded(const std::vector<bool>& over) {
  ChangedJob job = staged(0);
  job.tile_bytes = kTile;
  for (const bool is_over : over) {
    job.tiles.push_back(is_over ? kTile + 1 : kTile);
  }
  return job;
}

proto::ProductSetting proportion(const std::string& text, std::uint32_t permille) {
  proto::ProductSetting setting;
  setting.set_text(text);
  setting.set_permille(permille);
  return setting;
}

TEST(Remedies, TryTheNearestProportionsOnFullIpusFirst) {
  const ChangedJob everywhere = crowded({true, true});
  EXPECT_EQ(changed(everywhere, kProportion, 0).options(), "memory.available-memory-proportion 0.4");
  EXPECT_EQ(changed(everywhere, kProportion, 2).options(), "memory.available-memory-proportion 0.2");
  EXPECT_EQ(remedies_for(everywhere).at(kProportion).settings.size(), 4U);
  EXPECT_EQ(changed(everywhere, kProportion, 3).options(), "memory.available-memory-proportion 0.9");

  ChangedJob second = crowded({false, true});
  EXPECT_EQ(changed(second, kProportion, 0).options(), "memory.available-memory-proportion ipu1=0.4");
  auto& settings = *second.config.mutable_memory()->mutable_available_memory_proportion();
  *settings.Add() = proportion("0.5", 500);
  *settings.Add() = proportion("ipu1.matmuls=0.45", 450);
  settings[1].set_ipu(1);
  settings[1].set_products("matmuls");
  *settings.Add() = proportion("^layer4=0.2", 200);
  settings[2].set_operators("^layer4");
  const ChangedJob less = changed(second, kProportion, 0);
  EXPECT_EQ(less.options(), "memory.available-memory-proportion 0.5 ipu1.matmuls=0.4 ipu1=0.4");
  const auto& asked = less.config.memory().available_memory_proportion();
  EXPECT_EQ(asked.at(0).permille(), 500U) << "IPU 0 is not too full";
  EXPECT_EQ(asked.at(1).permille(), 400U);
  EXPECT_EQ(asked.at(2).permille(), 200U) << "what is asked for by name stays";
  EXPECT_EQ(asked.at(3).ipu(), 1U);

  settings.Clear();
  *settings.Add() = proportion("0.1", 100);
  const ChangedJob least = second;
  EXPECT_EQ(changed(least, kProportion, 0).options(), "memory.available-memory-proportion 0.1 ipu1=0.15")
      << "there is only more";
}

TEST(Remedies, MoveALayerFromTheFullestIpuAndTheHeadToTheEmptiest) {
  ChangedJob job{mlp(9'000), dataset(), 17, kTile, {kTile + 9, kTile, kTile - 9}};
  job.config.mutable_topology()->set_ipus_per_replica(3);
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  for (const std::int64_t layers : {3, 7, 7, 0}) {
    pipeline.add_layers_per_ipu(layers);
  }
  for (const std::uint32_t ipu : {0U, 1U, 2U, 0U}) {
    pipeline.add_device_mapping(ipu);
  }
  std::vector<std::string> all;
  for (const Remedy& remedy : remedies_for(job)) {
    for (const auto& setting : remedy.settings) {
      ChangedJob one = job;
      setting(one);
      all.push_back(one.options());
    }
  }
  EXPECT_THAT(all, ::testing::IsSupersetOf({std::string("pipeline.layers-per-ipu 2 7 8 0"),
                                            std::string("pipeline.device-mapping 0 1 2 2")}));
}

TEST(Remedies, CutAnEmbeddingIntoMoreSlices) {
  ChangedJob job{gpt2(1, 4), texts(32)};
  job.config.mutable_model()->set_embedding_serialisation_factor(4);
  std::vector<std::string> all;
  for (const Remedy& remedy : remedies_for(job)) {
    ChangedJob one = job;
    remedy.settings.front()(one);
    all.push_back(one.options());
  }
  EXPECT_THAT(all, ::testing::Contains("model.embedding-serialisation-factor 8"));
}

TEST(Remedies, PrintACommandWithoutReplacedOptions) {
  ChangedJob job = staged(0);
  const std::vector<std::string> words = {"-n",       "2", "--pipeline.split", "'fc2 fc3'", "--pipeline.split=fc2",
                                          "train.cfg"};
  remedies_for(job).at(kMoreIpus).settings.front()(job);
  const auto command = job.command(words);
  ASSERT_TRUE(command.has_value());
  EXPECT_THAT(*command,
              ::testing::ElementsAre("-n", "2", "train.cfg", "--ipus-per-replica", "4", "--pipeline.layers-per-ipu",
                                     "balanced", "--pipeline.device-mapping", "'0 1 2 3'"));
}

constexpr std::size_t kPrecision = 7;

TEST(Remedies, HalvePartialSumsOfHalfPrecision) {
  ChangedJob job = staged(0);
  const std::size_t number = remedies_for(job).size();
  EXPECT_EQ(changed(job, kPrecision, 0).options(), "model.precision half");
  EXPECT_EQ(changed(job, kPrecision, 1).options(), "model.precision half and model.partials half");

  job.config.mutable_model()->set_precision("half");
  EXPECT_EQ(changed(job, kPrecision, 0).options(), "model.partials half");
  EXPECT_EQ(changed(job, kPrecision, 0).config.model().partials(0).partials(), "half");
  EXPECT_EQ(remedies_for(changed(job, kPrecision, 0)).size(), number - 1) << "there is nothing left to halve";
}

constexpr std::size_t kState = 4;

TEST(Remedies, MoveStateOffTheChipWhereTheOptimiserHasAny) {
  ChangedJob job = staged(0);
  EXPECT_EQ(changed(job, kState, 0).options(), "memory.optimizer-state off-chip");
  EXPECT_EQ(changed(job, kState, 0).config.memory().optimizer_state(), "off-chip");
  const std::size_t number = remedies_for(job).size();

  for (const char* decided : {"off-chip", "auto"}) {
    job.config.mutable_memory()->set_optimizer_state(decided);
    EXPECT_EQ(remedies_for(job).size(), number - 1) << decided;
  }
  job.config.mutable_memory()->clear_optimizer_state();
  set_optimizer(job.config, "sgd");
  EXPECT_EQ(remedies_for(job).size(), number - 1);
}

TEST(Remedies, MoveTheRestOffTheChipAsFarAsThereIsAny) {
  ChangedJob job = staged(0);
  EXPECT_EQ(changed(job, kPrecision + 1, 0).options(), "memory.weights off-chip and memory.activations off-chip");
  job.config.mutable_training()->set_gradient_accumulation(2);
  EXPECT_EQ(changed(job, kPrecision + 1, 0).options(),
            "memory.weights off-chip, memory.accumulators off-chip and memory.activations "
            "off-chip");
  job.config.mutable_topology()->set_ipus_per_replica(1);
  const std::size_t precision = kPrecision - 1;  // There are no other stages, and no stashes.
  EXPECT_EQ(changed(job, precision + 1, 0).options(), "memory.weights off-chip and memory.accumulators off-chip");
}

constexpr std::size_t kShared = 2;

TEST(Remedies, ShareAmongReplicasWhatEachOfThemHas) {
  ChangedJob job = staged(0);
  const std::size_t alone = remedies_for(job).size();
  job.config.mutable_topology()->set_num_replicas(4);
  EXPECT_EQ(remedies_for(job).size(), alone + 1);
  EXPECT_EQ(remedies_for(job).at(kShared).settings.size(), 2U);
  EXPECT_EQ(changed(job, kShared, 0).options(), "memory.replicated-tensor-sharding optimizer-state");
  EXPECT_EQ(changed(job, kShared, 1).options(), "memory.replicated-tensor-sharding optimizer-state,weights");
  EXPECT_EQ(changed(job, kShared, 1).config.memory().replicated_tensor_sharding_size(), 2);

  job.config.mutable_training()->set_gradient_accumulation(2);
  EXPECT_EQ(remedies_for(job).at(kShared).settings.size(), 2U) << "sharded accumulators would change the result";
  job.config.mutable_training()->set_gradient_reduction("every-micro-batch");
  EXPECT_EQ(changed(job, kShared, 2).options(),
            "memory.replicated-tensor-sharding optimizer-state,weights,accumulators");
}

TEST(Remedies, CutAJobOfOneOrTwoIpusIntoPhases) {
  ChangedJob job = staged(0);
  const std::size_t last = remedies_for(job).size() - 1;
  const ChangedJob phased = changed(job, last, 1);
  EXPECT_EQ(phased.options(),
            "memory.phases 4, memory.phase-ipus 2, memory.optimizer-state off-chip, "
            "memory.weights off-chip, memory.activations off-chip, pipeline.layers-per-ipu "
            "balanced, without pipeline.split and without pipeline.device-mapping");
  EXPECT_TRUE(phased.is_consistent());
  EXPECT_EQ(remedies_for(phased).back().settings.size(), 1U) << "8 phases";

  ChangedJob spread = phased;
  spread.config.mutable_topology()->set_ipus_per_replica(4);
  EXPECT_FALSE(spread.is_consistent());
  ChangedJob mapped = phased;
  mapped.config.mutable_pipeline()->add_device_mapping(0);
  EXPECT_FALSE(mapped.is_consistent());

  const ChangedJob wider = changed(phased, kMoreIpus - 2, 0);
  EXPECT_EQ(wider.config.topology().ipus_per_replica(), 4U);
  EXPECT_THAT(wider.options(), HasSubstr("--ipus-per-replica 4 and memory.phases 1"));
  EXPECT_TRUE(wider.is_consistent());
}

/// Expects that the row of `options` has the figures of the job after `change`, and that this job needs less memory.
void expect_row_of_its_own_compile(const proto::RunConfig& job, const std::string& options,
                                   const std::function<void(proto::MemoryConfig&)>& change) {
  const MemoryAdvice said = advice(job, texts(32));
  const std::vector<Row> rows = rows_of(said.table);
  const auto row = std::ranges::find(rows, options, &Row::options);
  ASSERT_NE(row, rows.end()) << said.table;
  proto::RunConfig changed = job;
  change(*changed.mutable_memory());
  EXPECT_EQ(tile(changed, texts(32)), row->bytes) << said.table;
  EXPECT_EQ(step_time(changed, texts(32)), row->step_time) << said.table;
  EXPECT_LT(row->bytes, tile(job, texts(32))) << said.table;
}

TEST(MemoryAdvice, KnowsWhatLeavesTheChip) {
  const proto::RunConfig job = on_few_tiles(gpt2(1, 4), 100'000);
  expect_row_of_its_own_compile(job, "memory.optimizer-state off-chip",
                                [](auto& memory) { memory.set_optimizer_state("off-chip"); });
}

TEST(MemoryAdvice, KnowsWhatReplicasShare) {
  proto::RunConfig job = on_few_tiles(gpt2(1, 4), 100'000);
  job.mutable_topology()->set_num_replicas(4);
  expect_row_of_its_own_compile(job, "memory.replicated-tensor-sharding optimizer-state,weights", [](auto& memory) {
    memory.add_replicated_tensor_sharding("optimizer-state");
    memory.add_replicated_tensor_sharding("weights");
  });
}

TEST(MemoryAdvice, KnowsPhases) {
  const proto::RunConfig job = on_few_tiles(gpt2(1, 4), 60'000);
  expect_row_of_its_own_compile(job,
                                "memory.phases 4, memory.optimizer-state off-chip, memory.weights off-chip and "
                                "memory.activations off-chip",
                                [](auto& memory) {
                                  memory.set_phases(4);
                                  memory.set_phase_ipus(1);
                                  memory.set_optimizer_state("off-chip");
                                  memory.set_weights("off-chip");
                                  memory.set_activations("off-chip");
                                });
}

TEST(MemoryAdvice, OfInferenceHasNoAccumulation) {
  proto::RunConfig job = config(1, 65'536);
  job.set_inference(true);
  const std::string text = advice(job, dataset()).table;
  EXPECT_THAT(text, HasSubstr("data.micro-batch-size "));
  EXPECT_THAT(text, Not(HasSubstr("gradient-accumulation")));
}

}  // namespace
}  // namespace poprun::memory_advice_test
