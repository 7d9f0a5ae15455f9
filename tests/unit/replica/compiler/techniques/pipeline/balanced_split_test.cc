/// Which split is found for balanced stages of jobs that do not fit into memory by the first estimate.

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compilation/job_inputs.h"
#include "replica/compiler/automatic.h"
#include "replica/program/timeline.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/training_job.h"

namespace poprun {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kIpus = 3;

/// Returns a dataset of sequences of tokens, each of which is labelled with a token.
proto::Dataset text(std::uint32_t length, std::uint32_t vocabulary) {
  proto::Dataset text = testing::dataset();
  text.clear_tensors();
  for (const char* name : {"tokens", "labels"}) {
    proto::StreamTensor& tensor = *text.add_tensors();
    tensor.set_name(name);
    tensor.set_element("i32");
    tensor.add_sample_shape(length);
  }
  text.set_classes(vocabulary);
  return text;
}

/// Returns a GPT-2 of five blocks whose activations need more memory than its weights.
CompileOptions gpt2(Recomputation recomputation) {
  proto::RunConfig job = testing::config(1, 12);
  job.mutable_model()->set_name("gpt2");
  for (const auto& [name, size] :
       std::map<std::string, std::int64_t>{{"layers", 5}, {"vocabulary", 600}, {"hidden", 32}, {"heads", 2}}) {
    (*job.mutable_model()->mutable_sizes())[name] = size;
  }
  job.mutable_training()->set_evaluate(false);
  auto options = compile_options(job, text(48, 600));
  EXPECT_TRUE(options) << options.error().message;
  options->ipus_per_replica = kIpus;
  options->device.tiles = 16;  // Each tile stores a large part of the tensors.
  options->device.bytes_per_tile = Bytes{1 << 22};
  options->gradient_accumulation = 8;
  options->pipeline.recomputation = recomputation;
  return *options;
}

std::int64_t fullest(const Program& program) {
  std::uint64_t most = 0;
  for (const proto::IpuMemory& memory : program.memory()) {
    most = std::max(most, memory.fullest_tile_peak());
  }
  return static_cast<std::int64_t>(most);
}

bool all_fit(const Program& program) {
  return std::ranges::all_of(program.memory(), fits);
}

/// Sets the bytes of each tile, on which the plans of products depend.
CompileOptions with_capacity(CompileOptions options, std::int64_t bytes) {
  options.device.bytes_per_tile = Bytes{bytes};
  return options;
}

/// Returns the memory of the fullest IPU for every split of the model between layers, in rising order.
std::vector<std::int64_t> needs_of_all_splits(const CompileOptions& options) {
  const std::vector<std::string> layers = {"transformer.h.0", "transformer.h.1", "transformer.h.2",
                                           "transformer.h.3", "transformer.h.4", "lm_head"};
  std::vector<std::int64_t> needs;
  for (std::size_t a = 0; a < layers.size(); ++a) {
    for (std::size_t b = a + 1; b < layers.size(); ++b) {
      CompileOptions split = options;
      split.pipeline.split = {layers[a], layers[b]};
      const auto program = plan_program(split);
      EXPECT_TRUE(program) << program.error().message;
      needs.push_back(fullest(*program));
    }
  }
  std::ranges::sort(needs);
  return needs;
}

void expect_found_wherever_one_fits(Recomputation recomputation) {
  const CompileOptions plenty = gpt2(recomputation);
  const std::vector<std::int64_t> needs = needs_of_all_splits(plenty);
  for (std::size_t i = 0; i < needs.size(); i += 7) {  // The smallest, the median and the largest need.
    const CompileOptions options = with_capacity(plenty, needs[i]);
    const auto program = plan_program(options);
    ASSERT_TRUE(program) << program.error().message;
    const bool one_fits = needs_of_all_splits(options)[0] <= needs[i];
    EXPECT_EQ(all_fit(*program), one_fits)
        << "recomputation " << word_of(recomputation) << ", " << needs[i] << ": " << program->notes(0).text();
  }
}

TEST(BalancedSplit, IsFoundWhereverASplitFits) {
  expect_found_wherever_one_fits(Recomputation::kPipeline);
  expect_found_wherever_one_fits(Recomputation::kNone);
  expect_found_wherever_one_fits(Recomputation::kLayer);
}

TEST(BalancedSplit, OfGpt2SmallWithLongSequencesFitsEightIpus) {
  proto::RunConfig job = testing::config(1, 1);
  job.mutable_model()->set_name("gpt2");
  job.mutable_model()->set_precision("half");
  testing::set_optimizer(job, "adamw");
  job.mutable_training()->set_gradient_accumulation(32);
  job.mutable_topology()->set_ipus_per_replica(8);
  job.mutable_memory()->add_available_memory_proportion()->set_permille(300);

  const auto program = compile(*compile_options(job, text(1024, 50257)));

  EXPECT_TRUE(program) << program.error().message;
}

TEST(BalancedSplit, IsCompiledOnceWhereTheFirstFits) {
  CompileOptions options = gpt2(Recomputation::kPipeline);
  int forward_passes = 0;
  const auto count = [&](std::string_view pass, const Job&) {
    forward_passes += pass == "forward" ? 1 : 0;
    return Status{};
  };

  const auto program = plan_program(options, {.after_pass = count});

  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(forward_passes, 1);
  EXPECT_THAT(program->notes(0).text(), HasSubstr("balanced means "));
  EXPECT_THAT(program->notes(0).text(), Not(HasSubstr("compil")));
}

/// Returns the graph after the last run of the pass "stages".
std::string shown_graph(const CompileOptions& options) {
  std::string last;
  const auto keep = [&](std::string_view pass, const Job& job) {
    if (pass == "stages") {
      last = to_text(job.graph);
    }
    return Status{};
  };
  EXPECT_TRUE(plan_program(options, {.after_pass = keep}));
  return last;
}

TEST(BalancedSplit, IsNamedWithHowItWasFoundAndIsTheOneShownLast) {
  const CompileOptions plenty = gpt2(Recomputation::kNone);
  bool searched = false;
  for (const std::int64_t capacity : needs_of_all_splits(plenty)) {
    CompileOptions options = with_capacity(plenty, capacity);
    const std::string note = plan_program(options)->notes(0).text();
    if (note.find("found by") == std::string::npos) {
      continue;
    }
    searched = true;
    EXPECT_THAT(note, ContainsRegex("balanced means [0-9 ]+ for this job, found by compiling "
                                    "[2-6] splits$"));
    const std::string balanced = shown_graph(options);
    const std::size_t begin = note.find("means ") + 6;
    std::istringstream counts(note.substr(begin, note.find(" for this") - begin));
    for (std::int64_t count = 0; counts >> count;) {
      options.pipeline.layers_per_ipu.push_back(count);
    }
    EXPECT_EQ(balanced, shown_graph(options)) << "whoever writes the note's numbers gets the same";
  }
  EXPECT_TRUE(searched);
}

TEST(BalancedSplit, IsTheNearestWhereNoneFits) {
  const CompileOptions plenty = gpt2(Recomputation::kPipeline);
  const CompileOptions options = with_capacity(plenty, needs_of_all_splits(plenty)[0] / 2 / 8 * 8);

  const auto program = plan_program(options);

  ASSERT_TRUE(program) << program.error().message;
  EXPECT_THAT(program->notes(0).text(),
              ContainsRegex("; (it does not fit, and no other split is expected to|none of the [2-6] "
                            "compiled splits fits, and this split comes closest)$"));
  // The search compiles few splits, and so it may miss the best one by a little.
  EXPECT_LE(fullest(*program), needs_of_all_splits(options)[0] * 105 / 100);
}

/// Returns the cycles of the busiest IPU in a training step.
std::int64_t busiest(const Program& program) {
  const CallTime time = walk(program, *find_function(program, "train"));
  std::int64_t most = 0;
  for (std::size_t ipu = 0; ipu < time.busy.size(); ++ipu) {
    most = std::max(most, time.busy_cycles(ipu).count());
  }
  return most;
}

/// Returns the options of ResNet-50 on images of 224 x 224.
CompileOptions resnet_50(std::uint32_t ipus) {
  proto::RunConfig job = testing::config(1, 4);
  job.mutable_model()->set_name("resnet50");
  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_gradient_accumulation(16);
  job.mutable_training()->set_evaluate(false);
  job.mutable_topology()->set_ipus_per_replica(ipus);
  proto::Dataset images = testing::dataset();
  for (const auto& [dimension, size] : {std::pair{0, 3U}, {1, 224U}, {2, 224U}}) {
    images.mutable_tensors(0)->set_sample_shape(dimension, size);
  }
  return *compile_options(job, images);
}

// The split depends on the plans of the products, not only on their work, by which it would be 4 3 4 7.
TEST(BalancedSplit, OfResNet50IsThatOfItsPlans) {
  CompileOptions options = resnet_50(4);
  const Program balanced = *plan_program(options);
  EXPECT_THAT(balanced.notes(0).text(), HasSubstr("balanced means 4 4 4 6 "));
  options.pipeline.layers_per_ipu = {4, 3, 4, 7};
  const auto length = [](const Program& program) { return walk(program, *find_function(program, "train")).length; };
  EXPECT_LT(length(balanced), length(*plan_program(options)));
}

TEST(BalancedSplit, OfResNet50LeavesNoIpuBusierThanTheSplitsBesideIt) {
  CompileOptions options = resnet_50(2);
  const Program balanced = *plan_program(options);
  std::vector<std::string> layers;
  for (const proto::Stage& stage : balanced.stages()) {
    layers.insert(layers.end(), stage.layers().begin(), stage.layers().end());
  }
  const auto second = static_cast<std::size_t>(balanced.stages(0).layers_size());
  for (const std::size_t begin : {second - 1, second + 1}) {
    options.pipeline.split = {layers.at(begin)};
    EXPECT_LE(busiest(balanced), busiest(*plan_program(options))) << layers[begin];
  }
}

TEST(BalancedSplit, IsTheSameEachTime) {
  const CompileOptions plenty = gpt2(Recomputation::kNone);
  const CompileOptions options = with_capacity(plenty, needs_of_all_splits(plenty)[0]);
  EXPECT_EQ(plan_program(options)->SerializeAsString(), plan_program(options)->SerializeAsString());
}

}  // namespace
}  // namespace poprun
