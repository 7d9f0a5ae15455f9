/// The mapping from the tensors in files of weights from Hugging Face to the weights of a model.

#include "replica/compilation/weight_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/texts.h"

namespace poprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

/// Returns a file in which no two tensors have the same values.
FileTensors file_of(const std::vector<WantedWeight>& tensors) {
  FileTensors file;
  std::uint64_t digest = 0;
  for (const WantedWeight& tensor : tensors) {
    file[tensor.name] = {.type = "f32", .shape = tensor.shape, .digest = ++digest};
  }
  return file;
}

WeightMatch matched(const std::vector<WantedWeight>& wanted, const FileTensors& file,
                    const MatchOptions& options = {}) {
  auto match = match_weights(wanted, file, options);
  EXPECT_TRUE(match) << (match ? "" : match.error().message);
  return match ? *match : WeightMatch{};
}

std::string refusal(const std::vector<WantedWeight>& wanted, const FileTensors& file,
                    const MatchOptions& options = {}) {
  const auto match = match_weights(wanted, file, options);
  EXPECT_TRUE(match || match.error().code == ErrorCode::kData);
  return match ? "accepted" : match.error().message;
}

const MatchOptions kPartial = {.may_lack = true, .otherwise = "initialisation"};

/// Some weights of a small gpt2, with the names in the built-in model.
const std::vector<WantedWeight> kGpt2 = {{"transformer.wte.weight", {50, 8}},
                                         {"transformer.wpe.weight", {16, 8}},
                                         {"transformer.h.0.ln_1.weight", {8}},
                                         {"transformer.h.0.ln_1.bias", {8}},
                                         {"transformer.h.0.attn.c_attn.weight", {8, 24}},
                                         {"transformer.h.0.attn.c_attn.bias", {24}},
                                         {"transformer.ln_f.weight", {8}}};

TEST(WeightNames, OwnNamesNeedNoNote) {
  const WeightMatch match = matched(kGpt2, file_of(kGpt2));
  EXPECT_EQ(match.sources.size(), kGpt2.size());
  EXPECT_THAT(match.notes, IsEmpty());
}

TEST(WeightNames, Gpt2sOwnFileHasNoPrefixAndHasBuffers) {
  const FileTensors file = file_of({{"wte.weight", {50, 8}},
                                    {"wpe.weight", {16, 8}},
                                    {"h.0.ln_1.weight", {8}},
                                    {"h.0.ln_1.bias", {8}},
                                    {"h.0.attn.bias", {1, 1, 16, 16}},
                                    {"h.0.attn.masked_bias", {}},
                                    {"h.0.attn.c_attn.weight", {8, 24}},
                                    {"h.0.attn.c_attn.bias", {24}},
                                    {"ln_f.weight", {8}}});
  const WeightMatch match = matched(kGpt2, file);
  EXPECT_EQ(match.sources.at("transformer.h.0.attn.c_attn.bias"), "h.0.attn.c_attn.bias");
  EXPECT_THAT(testing::texts(match.notes),
              ElementsAre("model.initial-weights: prefix 'transformer.' added to 7 names in the file, for "
                          "example 'h.0.attn.c_attn.bias'",
                          "model.initial-weights: ignored 2 buffers that the model computes itself, for "
                          "example 'h.0.attn.bias'"));
}

TEST(WeightNames, ATiedHeadMustEqualTheEmbedding) {
  std::vector<WantedWeight> names = kGpt2;
  names.push_back({"lm_head.weight", {50, 8}});
  FileTensors file = file_of(names);
  EXPECT_THAT(refusal(kGpt2, file),
              HasSubstr("'lm_head.weight' and 'transformer.wte.weight' differ, but the model ties "
                        "them"));
  file["lm_head.weight"].digest = file["transformer.wte.weight"].digest;
  EXPECT_THAT(testing::texts(matched(kGpt2, file).notes),
              ElementsAre("model.initial-weights: 'lm_head.weight' equals "
                          "'transformer.wte.weight', to which the model ties it"));
}

TEST(WeightNames, AHeadOfItsOwnTakesTheEmbeddingThatTheFileTiesItTo) {
  std::vector<WantedWeight> wanted = kGpt2;
  wanted.push_back({"lm_head.weight", {50, 8}});
  const WeightMatch match = matched(wanted, file_of(kGpt2));
  EXPECT_EQ(match.sources.at("lm_head.weight"), "transformer.wte.weight");
  EXPECT_THAT(
      testing::texts(match.notes),
      ElementsAre("model.initial-weights: 'lm_head.weight' is tied to 'transformer.wte.weight' and gets its values"));
}

const std::vector<WantedWeight> kBert = {{"bert.embeddings.word_embeddings.weight", {50, 8}},
                                         {"bert.embeddings.LayerNorm.weight", {8}},
                                         {"bert.embeddings.LayerNorm.bias", {8}},
                                         {"bert.encoder.layer.0.attention.self.query.weight", {8, 8}},
                                         {"cls.predictions.bias", {50}},
                                         {"cls.predictions.transform.LayerNorm.weight", {8}}};

TEST(WeightNames, BertBaseUncasedHasGammaBetaAndATiedDecoder) {
  FileTensors file = file_of({{"bert.embeddings.word_embeddings.weight", {50, 8}},
                              {"bert.embeddings.LayerNorm.gamma", {8}},
                              {"bert.embeddings.LayerNorm.beta", {8}},
                              {"bert.embeddings.position_ids", {1, 16}},
                              {"bert.encoder.layer.0.attention.self.query.weight", {8, 8}},
                              {"bert.pooler.dense.weight", {8, 8}},
                              {"cls.predictions.bias", {50}},
                              {"cls.predictions.decoder.weight", {50, 8}},
                              {"cls.predictions.transform.LayerNorm.gamma", {8}},
                              {"cls.seq_relationship.weight", {2, 8}}});
  file["bert.embeddings.position_ids"].type = "i64";
  file["cls.predictions.decoder.weight"].digest = file["bert.embeddings.word_embeddings.weight"].digest;
  const WeightMatch match = matched(kBert, file);
  EXPECT_EQ(match.sources.at("bert.embeddings.LayerNorm.bias"), "bert.embeddings.LayerNorm.beta");
  EXPECT_THAT(testing::texts(match.notes),
              ElementsAre("model.initial-weights: gamma and beta are read as weight and bias in 3 names, for example "
                          "'bert.embeddings.LayerNorm.beta'",
                          "model.initial-weights: 'cls.predictions.decoder.weight' equals "
                          "'bert.embeddings.word_embeddings.weight', to which the model ties it",
                          "model.initial-weights: ignored 1 buffer that the model computes itself, for example "
                          "'bert.embeddings.position_ids'",
                          "model.initial-weights: ignored 2 tensors that the model does not have, for example "
                          "'bert.pooler.dense.weight'"));
}

TEST(WeightNames, AbsentHeadsKeepTheirInitialisationWhereThatIsAskedFor) {
  const FileTensors file = file_of({{"embeddings.word_embeddings.weight", {50, 8}},
                                    {"embeddings.LayerNorm.weight", {8}},
                                    {"embeddings.LayerNorm.bias", {8}},
                                    {"encoder.layer.0.attention.self.query.weight", {8, 8}}});
  EXPECT_THAT(refusal(kBert, file),
              AllOf(HasSubstr("the model needs 'cls.predictions.bias' [50], but the file has no tensor of "
                              "that name (2 of 6 weights missing)"),
                    HasSubstr("model.initial-weights-partial = true")));
  const WeightMatch match = matched(kBert, file, kPartial);
  EXPECT_THAT(match.absent, UnorderedElementsAre("cls.predictions.bias", "cls.predictions.transform.LayerNorm.weight"));
  EXPECT_THAT(testing::texts(match.notes),
              ElementsAre("model.initial-weights: prefix 'bert.' added to 4 names in the file, for "
                          "example 'embeddings.LayerNorm.bias'",
                          "model.initial-weights: initialisation kept for 2 weights that the file "
                          "lacks, for example 'cls.predictions.bias'"));
}

TEST(WeightNames, AHeadOfAnotherSizeKeepsItsInitialisationWhereThatIsAskedFor) {
  const std::vector<WantedWeight> model = {{"conv.bias", {8}}, {"conv.weight", {8, 3, 3, 3}}, {"fc.weight", {10, 8}}};
  const FileTensors file = file_of({{"conv.bias", {8}}, {"conv.weight", {8, 3, 3, 3}}, {"fc.weight", {1000, 8}}});
  EXPECT_EQ(refusal(model, file),
            "model.initial-weights: the model needs 'fc.weight' [10,8], but the file has [1000,8]; "
            "if the weight belongs to a new head, model.initial-weights-partial = true keeps its initialisation");
  const WeightMatch match = matched(model, file, kPartial);
  EXPECT_THAT(match.absent, ElementsAre("fc.weight"));
  EXPECT_EQ(match.sources.size(), 2U);
  EXPECT_THAT(testing::texts(match.notes),
              ElementsAre("model.initial-weights: initialisation kept for 1 weight whose size differs in "
                          "the file, for example 'fc.weight' [10,8], "
                          "which is [1000,8] there"));
}

TEST(WeightNames, AFileWhoseWeightsMostlyDifferInSizeIsRefusedEvenInPart) {
  EXPECT_EQ(refusal({{"a", {2}}, {"b", {3}}, {"c", {5}}}, file_of({{"a", {2}}, {"b", {4}}, {"c", {6}}}), kPartial),
            "model.initial-weights: the model needs 'b' [3], but the file has [4]; most weights differ in size: does "
            "the file belong to a different model?");
}

TEST(WeightNames, APrefixThatTheModelLacksIsLeftOff) {
  const WeightMatch match = matched({{"fc.weight", {2, 3}}, {"fc.bias", {2}}},
                                    file_of({{"module.fc.weight", {2, 3}}, {"module.fc.bias", {2}}}));
  EXPECT_THAT(match.sources,
              UnorderedElementsAre(Pair("fc.weight", "module.fc.weight"), Pair("fc.bias", "module.fc.bias")));
  EXPECT_THAT(testing::texts(match.notes),
              ElementsAre("model.initial-weights: prefix 'module.' removed from 2 names in the "
                          "file, for example 'module.fc.bias'"));
}

TEST(WeightNames, APrefixThatCouldBeEitherIsNotGuessed) {
  EXPECT_THAT(refusal({{"fc.weight", {2, 3}}}, file_of({{"a.fc.weight", {2, 3}}, {"b.fc.weight", {2, 3}}})),
              HasSubstr("did you mean 'a.fc.weight' [2,3]?"));
}

TEST(WeightNames, AModelsOwnGammaIsNotAnOldName) {
  const std::vector<WantedWeight> wanted = {
      {"blocks.0.gamma", {8}}, {"blocks.0.norm.beta", {8}}, {"blocks.0.norm.weight", {8}}, {"head.bias", {4}}};
  const WeightMatch own = matched(wanted, file_of(wanted), kPartial);
  EXPECT_EQ(own.sources.at("blocks.0.gamma"), "blocks.0.gamma");
  EXPECT_THAT(own.absent, IsEmpty());
  EXPECT_THAT(own.notes, IsEmpty());

  const WeightMatch mapped = matched(wanted,
                                     file_of({{"model.blocks.0.gamma", {8}},
                                              {"model.blocks.0.norm.beta", {8}},
                                              {"model.blocks.0.norm.gamma", {8}},
                                              {"model.head.beta", {4}}}),
                                     kPartial);
  EXPECT_THAT(mapped.sources, UnorderedElementsAre(Pair("blocks.0.gamma", "model.blocks.0.gamma"),
                                                   Pair("blocks.0.norm.beta", "model.blocks.0.norm.beta"),
                                                   Pair("blocks.0.norm.weight", "model.blocks.0.norm.gamma"),
                                                   Pair("head.bias", "model.head.beta")));
}

TEST(WeightNames, ATensorThatTwoPrefixesClaimIsNotGuessed) {
  const WeightMatch match =
      matched({{"decoder.layer.0.weight", {2, 3}}, {"encoder.layer.0.weight", {2, 3}}, {"head.weight", {2}}},
              file_of({{"layer.0.weight", {2, 3}}, {"head.weight", {2}}}), kPartial);
  EXPECT_THAT(match.sources, UnorderedElementsAre(Pair("head.weight", "head.weight")));
  EXPECT_THAT(
      match.notes[0].text,
      HasSubstr("prefixes 'decoder.' and 'encoder.' match the names in the file equally well, so neither is used"));
}

TEST(WeightNames, OneNameThatEndsLikeAnotherIsNoPrefixOfTheWhole) {
  const std::vector<WantedWeight> wanted = {{"a", {2}}, {"b", {2}}, {"c", {2}}, {"auxiliary.head.weight", {2}}};
  const WeightMatch match =
      matched(wanted, file_of({{"a", {2}}, {"b", {2}}, {"c", {2}}, {"head.weight", {2}}}), kPartial);
  EXPECT_THAT(match.absent, UnorderedElementsAre("auxiliary.head.weight"));
}

TEST(WeightNames, AFileOfAnotherModelIsRefusedEvenInPart) {
  EXPECT_THAT(refusal(kGpt2, file_of({{"conv1.weight", {2, 2}}, {"conv2.weight", {2}}}), kPartial),
              HasSubstr("(7 of 7 weights missing); available: conv1.weight, conv2.weight"));
}

TEST(WeightNames, AMappedNameIsShownWithAShapeThatDiffers) {
  FileTensors file = file_of({{"wte.weight", {60, 8}}, {"ln_f.weight", {8}}});
  EXPECT_THAT(refusal({{"transformer.wte.weight", {50, 8}}, {"transformer.ln_f.weight", {8}}}, file),
              HasSubstr("the model needs 'transformer.wte.weight' [50,8], but the file has "
                        "'wte.weight' [60,8]"));
}

TEST(WeightNames, OnlyWeightsThatAreUsedMustBeFloats) {
  FileTensors file = file_of({{"a", {2}}, {"steps", {1}}});
  file["steps"].type = "i64";
  EXPECT_EQ(refusal({{"a", {2}}}, file), "accepted");
  file["a"].type = "i64";
  EXPECT_THAT(refusal({{"a", {2}}}, file), HasSubstr("'a' has elements of type i64"));
}

}  // namespace
}  // namespace poprun
