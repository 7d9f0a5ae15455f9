/// The claims of compiled jobs on tiles, other than those of tensors.

#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "replica/compiler/addresses/tile_plan.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/compiler/tiles/product_layout.h"
#include "replica/models/layers/model.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::tile_demand_test {
namespace {

Program compiled(const proto::RunConfig& config, const proto::Dataset& data) {
  auto options = compile_options(config, data);
  EXPECT_TRUE(options) << options.error().message;
  options->tile_layout = true;
  auto program = compile(*options);
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

/// A claim on an IPU's tiles.
struct Claimed {
  std::int64_t bytes = 0;  ///< Total over all tiles.
  proto::TileClaim claim;
};

/// Returns the claims of a category on an IPU, in order.
std::vector<Claimed> claims_of(const Program& program, int ipu, Category category) {
  const proto::TileLayout& layout = program.memory(ipu).layout();
  std::vector<Claimed> found;
  for (int i = 0; i < layout.claims_size(); ++i) {
    if (layout.claims(i).category() != to_text(category)) {
      continue;
    }
    Claimed& claimed = found.emplace_back(Claimed{0, layout.claims(i)});
    for (const proto::TileClass& one : layout.classes()) {
      claimed.bytes += static_cast<std::int64_t>(one.bytes(i)) * one.tiles_size();
    }
  }
  return found;
}

/// Returns the link buffers of all-reduces in the order of their steps, without the code for the links.
std::vector<Claimed> ring_buffers(const Program& program) {
  std::vector<Claimed> found = claims_of(program, 0, Category::kLinkBuffer);
  std::erase_if(found, [](const Claimed& one) { return one.claim.lives(0).first() == 0; });
  return found;
}

/// Returns the bytes of the job's largest weight on one replica.
std::int64_t largest_weight(const Program& program) {
  std::uint64_t largest = 0;
  for (const proto::Tensor& tensor : program.tensors()) {
    largest = std::max(largest, tensor.role() == proto::ROLE_PARAMETER ? tensor.bytes() : 0);
  }
  return static_cast<std::int64_t>(largest);
}

TEST(TileDemand, OfAnAllReduceIsARingsPartOfItsLargestTensor) {
  proto::RunConfig job = testing::config(1, 4);
  job.mutable_training()->set_evaluate(false);
  const Program alone = compiled(job, testing::dataset());
  EXPECT_TRUE(claims_of(alone, 0, Category::kLinkBuffer).empty());
  for (const std::uint32_t replicas : {2U, 4U}) {
    job.mutable_topology()->set_num_replicas(replicas);
    const Program program = compiled(job, testing::dataset());
    const std::vector<Claimed> buffers = ring_buffers(program);
    ASSERT_EQ(buffers.size(), 1);
    EXPECT_EQ(buffers[0].bytes, largest_weight(alone) / replicas);
    for (const proto::Step& step : find_function(program, "train")->steps()) {
      if (step.has_all_reduce()) {
        EXPECT_EQ(buffers[0].claim.lives(0).first(), step.number());
        EXPECT_EQ(buffers[0].claim.lives(0).last(), step.number());
      }
    }
  }
}

/// Returns whether a claim is live at a step.
bool lives_at(const proto::TileClaim& claim, std::uint32_t step) {
  return std::ranges::any_of(claim.lives(),
                             [step](const proto::Span& span) { return span.first() <= step && step <= span.last(); });
}

TEST(TileDemand, OfAnAllReduceInTheBackgroundLastsUntilItIsAwaited) {
  proto::RunConfig job = testing::config(2, 4);
  job.mutable_training()->set_evaluate(false);
  job.mutable_training()->set_gradient_bucket_bytes(1);
  const Program program = compiled(job, testing::dataset());
  std::vector<std::uint32_t> begun;
  std::uint32_t awaited = 0;
  for (const proto::Function& function : program.functions()) {
    for (const proto::Step& step : function.steps()) {
      if (step.all_reduce().in_background()) {
        begun.push_back(step.number());
      }
      awaited = step.has_await_all_reduces() ? step.number() : awaited;
    }
  }
  EXPECT_GT(begun.size(), 1);
  std::vector<Claimed> buffers = ring_buffers(program);
  std::erase_if(buffers, [&](const Claimed& one) { return !lives_at(one.claim, awaited); });
  ASSERT_EQ(buffers.size(), begun.size()) << "the metrics' is not there yet";
  for (std::size_t i = 0; i < begun.size(); ++i) {
    EXPECT_TRUE(lives_at(buffers[i].claim, begun[i]));
  }
}

/// Returns a half-precision job of two layers of BERT-Large, one on each IPU, with sequences of 128 tokens and without
/// recomputation.
proto::RunConfig two_layers_of_bert(std::uint32_t micro_batch) {
  proto::RunConfig job = testing::config(1, micro_batch);
  job.mutable_model()->set_name("bert-large");
  job.mutable_model()->set_precision("half");
  auto& sizes = *job.mutable_model()->mutable_sizes();
  sizes["layers"] = 2;
  sizes["sequence-length"] = 128;
  sizes["vocabulary"] = 1024;
  job.mutable_training()->set_gradient_accumulation(4);
  job.mutable_training()->set_evaluate(false);
  job.mutable_topology()->set_ipus_per_replica(2);
  job.mutable_pipeline()->set_schedule("interleaved");
  job.mutable_pipeline()->set_recomputation("none");
  return job;
}

/// Returns the dataset for that job.
proto::Dataset sequences() {
  proto::Dataset data = testing::dataset();
  data.clear_tensors();
  const Model bert = *find_model("bert-large");
  for (const SampleTensor& tensor : bert.sample.tensors) {
    proto::StreamTensor& added = *data.add_tensors();
    added.set_name(tensor.name);
    added.set_element(std::string(element_name(tensor.data)));
    const bool whole_sequence = tensor.name == "tokens" || tensor.name == "segments";
    if (!tensor.shape.empty()) {
      added.add_sample_shape(whole_sequence ? 128 : 20);
    }
  }
  return data;
}

// In table 5.1 of seed 001, the FIFO variables of BERT-Large have 2.0, 2.0, 1.5 and 1.5 MB with batches of 1, and eight
// times that with batches of 8. The table names neither tensors nor the sequence length. The sizes match what a layer
// keeps for the products of its feed-forward network and attention, with 128 tokens and stashes of two places.
TEST(TileDemand, OfStashesOfBertLargeIsThatOfItsFifosInTheGuide) {
  constexpr std::int64_t kMebi = 1 << 20;
  const std::string layer = "bert.encoder.layer.0.";
  const std::string attention = layer + "attention.self.";
  for (const std::uint32_t micro_batch : {1U, 8U}) {
    const Program program = compiled(two_layers_of_bert(micro_batch), sequences());
    std::map<std::string, std::int64_t> stashes;
    for (const Claimed& claimed : claims_of(program, 0, Category::kStash)) {
      const auto tensor = static_cast<int>(claimed.claim.tensors(0));
      EXPECT_EQ(claimed.claim.tensors_size(), 1) << "a stash shares its bytes with nothing";
      stashes[program.tensors(tensor).name()] = claimed.bytes;
    }
    EXPECT_EQ(stashes[layer + "intermediate.dense.stash"], 2 * kMebi * micro_batch);
    EXPECT_EQ(stashes[layer + "intermediate.stash"], 2 * kMebi * micro_batch);
    EXPECT_EQ(stashes[attention + "query.heads.stash"] + stashes[attention + "key.heads.stash"] +
                  stashes[attention + "value.heads.stash"],
              3 * kMebi / 2 * micro_batch);
  }
}

/// The gradient of a vocabulary's embedding, for so little memory that the smallest plan computes one block of the
/// vocabulary at a time.
TEST(TileDemand, OfManySmallStepsCrowdsNoTile) {
  const Device device = *find_device("mk2");
  Product gradient;
  gradient.kind = ProductKind::kMatmul;
  gradient.arithmetic = Arithmetic::kF16PartialsF16;
  gradient.batch = 1024;
  gradient.input_channels = 256;
  gradient.output_channels = 32'768;
  const OperandAxes axes{{ProductAxis::kBatch, ProductAxis::kInputs},
                         {ProductAxis::kInputs, ProductAxis::kOutputs},
                         {ProductAxis::kBatch, ProductAxis::kOutputs}};
  const auto on_fullest_tile = [&](const planner::Plan& plan) {
    std::int64_t most = 0;
    const ProductLayout layout = layout_of(plan, axes);
    for (const Mapping& operand : {layout.input, layout.weights, layout.output}) {
      most = std::max(most, std::ranges::max(elements_by_tile(operand, device.tiles)) * 2);
    }
    return most;
  };
  planner::Planner planner(device);
  const planner::Choice crowded = planner.choose(gradient, 10);
  const planner::Choice chosen = plan_product(gradient, 10, device);

  EXPECT_GT(on_fullest_tile(*crowded.plan), 300'000) << to_line(*crowded.plan);
  EXPECT_LT(on_fullest_tile(*chosen.plan), 100'000) << to_line(*chosen.plan);
  EXPECT_FALSE(chosen.target_met);
  EXPECT_LE(chosen.plan->cycles(), crowded.plan->cycles());
  for (const std::int64_t permille : {200, 600}) {
    EXPECT_EQ(to_line(*plan_product(gradient, permille, device).plan),
              to_line(*planner.choose(gradient, permille).plan))
        << "where nothing crowds, nothing changes";
  }
}

/// The loop around a convolution that is computed in steps needs code like any other step.
TEST(TileDemand, OfAProductInStepsHasTheCodeOfItsLoop) {
  const auto code_at = [](std::uint32_t permille) {
    proto::RunConfig job = testing::config(1, 64);
    job.mutable_memory()->add_available_memory_proportion()->set_permille(permille);
    const Program program = compiled(job, testing::dataset());
    std::int64_t bytes = 0;
    for (const Category category : {Category::kControlCode, Category::kVertexState}) {
      for (const Claimed& one : claims_of(program, 0, category)) {
        bytes += one.bytes;
      }
    }
    return bytes;
  };
  EXPECT_GT(code_at(5), code_at(600));
}

}  // namespace
}  // namespace poprun::tile_demand_test
