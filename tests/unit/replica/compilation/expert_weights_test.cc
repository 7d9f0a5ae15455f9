/// Experts' tensors in Hugging Face's files become the stacks that the model reads.

#include "replica/compilation/expert_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::expert_weights_test {
namespace {

using ::testing::HasSubstr;

const std::vector<WantedWeight> kWanted = {{"model.layers.0.block_sparse_moe.gate.weight", {3, 1}},
                                           {"model.layers.0.block_sparse_moe.experts.w1.weight", {3, 2, 1}},
                                           {"model.layers.0.block_sparse_moe.experts.w2.weight", {3, 1, 2}}};

/// Returns a file with the gate and three experts, whose bytes are "0w1", "1w1", ...
FileTensors mixtral(const std::string& prefix = "model.") {
  const std::string layer = prefix + "layers.0.block_sparse_moe.";
  FileTensors file;
  file[layer + "gate.weight"] = {.type = "bf16", .shape = {3, 1}, .digest = 1, .data = "gate"};
  for (const std::string expert : {"0", "1", "2"}) {
    const std::string name = layer + "experts." + expert;
    file[name + ".w1.weight"] = {.type = "bf16", .shape = {2, 1}, .digest = 2, .data = expert + "w1"};
    file[name + ".w2.weight"] = {.type = "bf16", .shape = {1, 2}, .digest = 3, .data = expert + "w2"};
  }
  return file;
}

TEST(ExpertWeights, AreStackedInTheOrderOfTheExperts) {
  FileTensors file = mixtral();
  const auto note = stack_experts(kWanted, file);
  ASSERT_TRUE(note) << note.error().message;
  ASSERT_TRUE(note->has_value());
  EXPECT_EQ((*note)->text,
            "model.initial-weights: 6 tensors of single experts stacked, for example to "
            "'model.layers.0.block_sparse_moe.experts.w1.weight'");
  ASSERT_EQ(file.size(), 3U);
  const FileTensor& w1 = file.at("model.layers.0.block_sparse_moe.experts.w1.weight");
  EXPECT_EQ(w1.shape, (Shape{3, 2, 1}));
  EXPECT_EQ(w1.type, "bf16");
  EXPECT_EQ(w1.data, "0w11w12w1");
  EXPECT_EQ(file.at("model.layers.0.block_sparse_moe.experts.w2.weight").data, "0w21w22w2");
}

TEST(ExpertWeights, AreInTheOrderOfNumbersNotOfNames) {
  const std::string layer = "model.layers.0.block_sparse_moe.experts.";
  FileTensors file;
  for (int expert = 0; expert < 12; ++expert) {
    file[layer + std::to_string(expert) + ".w1.weight"] = {
        .type = "f32", .shape = {1}, .data = std::to_string(expert) + " "};
  }
  ASSERT_TRUE(stack_experts(kWanted, file));
  EXPECT_EQ(file.at(layer + "w1.weight").data, "0 1 2 3 4 5 6 7 8 9 10 11 ");
}

TEST(ExpertWeights, MayLackAPrefix) {
  FileTensors file = mixtral("");
  ASSERT_TRUE(stack_experts(kWanted, file));
  EXPECT_TRUE(file.contains("layers.0.block_sparse_moe.experts.w1.weight"));
}

TEST(ExpertWeights, StayIfTheModelReadsSingleExperts) {
  FileTensors file = mixtral();
  std::vector<WantedWeight> wanted;
  for (const auto& [name, tensor] : file) {
    wanted.push_back({name, tensor.shape});
  }
  const auto note = stack_experts(wanted, file);
  ASSERT_TRUE(note);
  EXPECT_FALSE(note->has_value());
  EXPECT_EQ(file.size(), 7U);
}

TEST(ExpertWeights, MustAllBeThereAndAlike) {
  FileTensors file = mixtral();
  file.erase("model.layers.0.block_sparse_moe.experts.1.w1.weight");
  auto note = stack_experts(kWanted, file);
  ASSERT_FALSE(note);
  EXPECT_EQ(note.error().code, ErrorCode::kData);
  EXPECT_EQ(note.error().message,
            "model.initial-weights: the file has 'model.layers.0.block_sparse_moe.experts.2.w1.weight', but not that "
            "tensor of expert 1; 'model.layers.0.block_sparse_moe.experts.w1.weight' needs all experts from 0 on");

  file = mixtral();
  file["model.layers.0.block_sparse_moe.experts.2.w2.weight"].shape = {2, 2};
  note = stack_experts(kWanted, file);
  ASSERT_FALSE(note);
  EXPECT_THAT(note.error().message, HasSubstr("experts.2.w2.weight' is bf16[2,2], but 'model.layers.0."));
  EXPECT_THAT(note.error().message,
              HasSubstr("is bf16[1,2]; all experts of a layer must have the same type and shape"));
}

}  // namespace
}  // namespace poprun::expert_weights_test
