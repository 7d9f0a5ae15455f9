/// Language models: parameter counts, refusals, and which tokens the attention masks admit.

#include <cstring>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/layers/llama_blocks.h"
#include "replica/models/layers/model.h"
#include "tests/unit/replica/graph_runner.h"

namespace poprun::language_model_test {
namespace {

using testing::GraphRunner;
using ::testing::HasSubstr;

const std::map<std::string, std::int64_t> kTiny = {
    {"layers", 2}, {"hidden", 8}, {"heads", 2}, {"vocabulary", 11}, {"sequence-length", 6}};

const std::map<std::string, std::int64_t> kTinyLlama = {{"layers", 2},         {"hidden", 8},        {"heads", 4},
                                                        {"kv-heads", 2},       {"intermediate", 12}, {"vocabulary", 11},
                                                        {"sequence-length", 6}};

const std::map<std::string, std::int64_t> kTinyT5 = {{"layers", 2},      {"decoder-layers", 3}, {"hidden", 8},
                                                     {"heads", 2},       {"head-features", 3},  {"intermediate", 12},
                                                     {"vocabulary", 11}, {"sequence-length", 6}};

/// A model on made-up inputs: two sequences of `T` tokens, six by default.
class Built {
 public:
  explicit Built(const std::string& name, const std::map<std::string, std::int64_t>& sizes = {}, std::int64_t T = 6,
                 double dropout = 0) {
    graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
    Builder builder(graph, {1, 0}, "");
    const Result<Model> model = find_model(name);
    EXPECT_TRUE(model);
    ModelInputs inputs;
    inputs.sizes = *sizes_of(*model, sizes);
    inputs.dropout = dropout;
    const auto add = [&](const std::string& input, Shape shape) {
      inputs.names.push_back(input);
      inputs.tensors.push_back(graph.add_tensor({input, {DataType::kI32, std::move(shape), {}}, Role::kStream}));
    };
    add("tokens", {2, T});
    if (name.starts_with("t5")) {
      add("attention_mask", {2, T});
      add("labels", {2, 4});
    } else if (!name.starts_with("bert")) {
      add("labels", {2, T});
    } else {
      add("segments", {2, T});
      add("positions", {2, 3});
      add("labels", {2, 3});
      add("next_sentence", {2});
    }
    outputs = model->build(builder, inputs);
    status = builder.status();
  }

  [[nodiscard]] std::int64_t parameters() const {
    std::int64_t count = 0;
    for (const Tensor& tensor : graph.tensors()) {
      count += tensor.role == Role::kParameter ? tensor.type.elements() : 0;
    }
    return count;
  }

  Graph graph;
  ModelOutputs outputs{};
  Status status;
};

// The counts are those of Hugging Face's GPT2LMHeadModel, BertForPreTraining,
// LlamaForCausalLM, MixtralForCausalLM and T5ForConditionalGeneration.
TEST(LanguageModels, HaveTheirParameterCounts) {
  EXPECT_EQ(Built("gpt2").parameters(), 124'439'808);
  EXPECT_EQ(Built("gpt2-medium").parameters(), 354'823'168);
  EXPECT_EQ(Built("gpt2-large").parameters(), 774'030'080);
  EXPECT_EQ(Built("gpt2-xl").parameters(), 1'557'611'200);
  EXPECT_EQ(Built("bert-base").parameters(), 110'106'428);
  EXPECT_EQ(Built("bert-large").parameters(), 336'226'108);
  EXPECT_EQ(Built("llama-3.2-1b").parameters(), 1'235'814'400);
  EXPECT_EQ(Built("llama-3.1-8b").parameters(), 8'030'261'248);
  EXPECT_EQ(Built("mixtral-8x7b").parameters(), 46'702'792'704);
  EXPECT_EQ(Built("t5-small").parameters(), 60'506'624);
  EXPECT_EQ(Built("t5-base").parameters(), 222'903'552);
  EXPECT_EQ(Built("t5-large").parameters(), 737'668'096);
}

TEST(LanguageModels, NameParametersAsHuggingFaceDoes) {
  const Built gpt2("gpt2", kTiny);
  const auto shape = [](const Built& built, const std::string& name) {
    return built.graph.tensor(built.graph.find(name)).type.shape;
  };
  EXPECT_EQ(shape(gpt2, "transformer.h.1.attn.c_attn.weight"), (Shape{8, 24}));
  EXPECT_EQ(shape(gpt2, "transformer.h.0.mlp.c_proj.weight"), (Shape{32, 8}));
  EXPECT_EQ(shape(gpt2, "transformer.wpe.weight"), (Shape{6, 8}));
  const Built bert("bert-base", kTiny);
  EXPECT_EQ(shape(bert, "bert.encoder.layer.1.attention.self.query.weight"), (Shape{8, 8}));
  EXPECT_EQ(shape(bert, "bert.encoder.layer.0.intermediate.dense.weight"), (Shape{32, 8}));
  EXPECT_EQ(shape(bert, "cls.predictions.bias"), (Shape{11}));
  EXPECT_EQ(shape(bert, "cls.seq_relationship.weight"), (Shape{2, 8}));
  const Built llama("llama-3.1-8b", kTinyLlama);
  EXPECT_EQ(shape(llama, "model.layers.1.self_attn.q_proj.weight"), (Shape{8, 8}));
  EXPECT_EQ(shape(llama, "model.layers.1.self_attn.k_proj.weight"), (Shape{4, 8}));
  EXPECT_EQ(shape(llama, "model.layers.0.mlp.down_proj.weight"), (Shape{8, 12}));
  EXPECT_EQ(shape(llama, "model.layers.0.post_attention_layernorm.weight"), (Shape{8}));
  EXPECT_EQ(shape(llama, "lm_head.weight"), (Shape{11, 8}));
  const Built moe("moe-mini", kTinyLlama);
  EXPECT_EQ(shape(moe, "model.layers.1.block_sparse_moe.gate.weight"), (Shape{4, 8}));
  EXPECT_EQ(shape(moe, "model.layers.1.block_sparse_moe.experts.w2.weight"), (Shape{4, 8, 12}));
  const Built t5("t5-mini", kTinyT5);
  EXPECT_EQ(shape(t5, "decoder.block.1.layer.1.EncDecAttention.k.weight"), (Shape{6, 8}));
  EXPECT_EQ(shape(t5, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"), (Shape{32, 2}));
  EXPECT_EQ(shape(t5, "decoder.block.0.layer.2.DenseReluDense.wo.weight"), (Shape{8, 12}));
}

TEST(LanguageModels, HaveSlotsForAllTokensWhateverTheNumberOfExperts) {
  for (const std::int64_t experts : {2, 4, 64}) {
    auto sizes = kTinyLlama;
    sizes["experts"] = experts;
    const Built moe("moe-mini", sizes);
    std::int64_t layers = 0;
    for (const Operation& operation : moe.graph.functions[1].regions[0].operations) {
      if (operation.kind == "expert_slots") {
        EXPECT_EQ(operation.attributes.integer("capacity"), 2 * 6) << experts;
        ++layers;
      }
    }
    EXPECT_EQ(layers, 2);
  }
}

TEST(LanguageModels, DropWhereHuggingFaceDrops) {
  const auto dropouts = [](const std::string& name, double rate) {
    const Built built(name, kTiny, 6, rate);
    EXPECT_TRUE(built.status);
    const auto& operations = built.graph.functions[1].regions[0].operations;
    std::set<std::string> keys;
    for (const Operation& operation : operations) {
      if (operation.kind == "dropout") {
        EXPECT_EQ(operation.attributes.real("rate"), rate);
        EXPECT_TRUE(keys.insert(operation.attributes.text("key")).second) << "drops alike twice";
      }
    }
    return keys.size();
  };
  // There is dropout after the embeddings, and in each of two blocks after softmax and both projections.
  EXPECT_EQ(dropouts("gpt2", 0.25), 1U + 2 * 3);
  EXPECT_EQ(dropouts("bert-base", 0.25), 1U + 2 * 3);
  EXPECT_EQ(dropouts("gpt2", 0), 0U);
}

TEST(LanguageModels, RefuseSequencesLongerThanTheirPositions) {
  for (const std::string name : {"gpt2", "bert-base"}) {
    const Built built(name, kTiny, 7);
    ASSERT_FALSE(built.status);
    EXPECT_THAT(built.status.error().message, HasSubstr("sequences of 7 tokens, but the model has positions for 6; set "
                                                        "model.sequence-length = 7"));
  }
}

TEST(Llama, RefusesHeadsOfKeysThatDoNotDivide) {
  auto sizes = kTinyLlama;
  sizes["kv-heads"] = 3;
  const Built built("llama-mini", sizes);
  ASSERT_FALSE(built.status);
  EXPECT_THAT(built.status.error().message, HasSubstr("model.kv-heads = 3 does not divide model.heads = 4"));
}

// The frequencies of transformers' _compute_llama3_parameters for a head of 128 features, theta 500000 and factor 8:
// unchanged, interpolated and divided.
TEST(Llama, ScalesLowFrequencies) {
  const auto plain = layers::rope_frequencies(128, 500'000, 1);
  const auto scaled = layers::rope_frequencies(128, 500'000, 8);
  ASSERT_EQ(scaled.size(), 64U);
  EXPECT_EQ(scaled[0], 1);
  EXPECT_EQ(scaled[28], plain[28]);
  EXPECT_NEAR(scaled[31], 0.000856751, 1e-8);
  EXPECT_DOUBLE_EQ(scaled[40], plain[40] / 8);
}

TEST(Llama, GivesTheSameLogitsIfItsVocabularyIsDivided) {
  auto sizes = kTinyLlama;
  sizes["vocabulary"] = 12;
  const Built whole("llama-3.1-8b", sizes);
  sizes["vocabulary-parts"] = 3;
  const Built parts("llama-3.1-8b", sizes);
  ASSERT_TRUE(parts.status) << parts.status.error().message;
  EXPECT_EQ(parts.parameters(), whole.parameters());
  GraphRunner one(whole.graph);
  GraphRunner other(parts.graph);
  for (auto* runner : {&one, &other}) {  // Constants are only filled by the compiled job: no position is rotated.
    const Graph& graph = runner == &one ? whole.graph : parts.graph;
    std::ranges::fill(runner->floats(graph.find("model.rotary_emb.cosine_6")), 1.0F);
  }
  std::mt19937 random(71);
  std::normal_distribution<float> normal(0.0F, 0.3F);
  for (std::uint32_t t = 0; t < whole.graph.tensors().size(); ++t) {
    const Tensor& tensor = whole.graph.tensors()[t];
    if (tensor.role != Role::kParameter) {
      continue;
    }
    const auto values = one.floats(TensorId{t});
    std::ranges::generate(values, [&] { return normal(random); });
    const bool divided = tensor.name == "lm_head.weight" || tensor.name == "model.embed_tokens.weight";
    for (std::size_t p = 0; p < (divided ? 3U : 1U); ++p) {
      const std::string stem = tensor.name.substr(0, tensor.name.rfind('.'));
      const auto to =
          other.floats(parts.graph.find(divided ? stem + "." + std::to_string(p) + ".weight" : tensor.name));
      std::ranges::copy(values.subspan(p * to.size(), to.size()), to.begin());
    }
  }
  const std::vector<std::int32_t> tokens = {0, 3, 4, 7, 8, 11, 1, 2, 3, 4, 5, 6};
  for (auto* runner : {&one, &other}) {
    const Graph& graph = runner == &one ? whole.graph : parts.graph;
    std::memcpy(runner->bytes(graph.find("tokens")), tokens.data(), 4 * tokens.size());
    runner->run(graph.functions[1].regions[0].operations);
  }
  const auto expected = one.floats(whole.graph.find("lm_head"));
  const auto logits = other.floats(parts.graph.find("lm_head.logits"));
  ASSERT_EQ(logits.size(), expected.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    EXPECT_NEAR(logits[i], expected[i], 1e-5F) << i;
  }
}

TEST(LanguageModels, RefuseHeadsThatDoNotDivide) {
  auto sizes = kTiny;
  sizes["heads"] = 3;
  const Built built("gpt2", sizes);
  ASSERT_FALSE(built.status);
  EXPECT_THAT(built.status.error().message, HasSubstr("model.heads = 3 does not divide model.hidden = 8"));
}

TEST(Models, RefuseSizesThatTheyDoNotHave) {
  const auto sizes = sizes_of(*find_model("gpt2"), {{"layers", 3}, {"image-size", 224}});
  ASSERT_FALSE(sizes);
  EXPECT_EQ(sizes.error().code, ErrorCode::kUsage);
  EXPECT_EQ(sizes.error().message,
            "model.image-size = 224: the model gpt2 has no size of this name; available: heads, hidden, layers, "
            "sequence-length, vocabulary");
  EXPECT_FALSE(sizes_of(*find_model("small-cnn"), {{"layers", 3}}));
  EXPECT_FALSE(sizes_of(*find_model("gpt2"), {{"layers", 0}}));
  EXPECT_EQ(*sizes_of(*find_model("gpt2"), kTiny), kTiny);
}

/// Returns the logits of a tiny model for given tokens, with the same parameters every time.
std::vector<float> logits_of(const Built& built, const std::string& name, const std::vector<std::int32_t>& tokens) {
  GraphRunner runner(built.graph);
  std::mt19937 random(71);
  std::normal_distribution<float> normal(0.0F, 0.3F);
  for (std::uint32_t t = 0; t < built.graph.tensors().size(); ++t) {
    if (built.graph.tensors()[t].role == Role::kParameter) {
      std::ranges::generate(runner.floats(TensorId{t}), [&] { return normal(random); });
    }
  }
  std::memcpy(runner.bytes(built.graph.find("tokens")), tokens.data(), 4 * tokens.size());
  runner.run(built.graph.functions[1].regions[0].operations);
  const auto logits = runner.floats(built.graph.find(name));
  return {logits.begin(), logits.end()};
}

TEST(Gpt2, SeesNoLaterToken) {
  const Built built("gpt2", kTiny);
  ASSERT_TRUE(built.status) << built.status.error().message;
  const auto one = logits_of(built, "lm_head", {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
  const auto other = logits_of(built, "lm_head", {1, 2, 3, 9, 5, 6, 1, 2, 3, 4, 5, 6});

  // The first sequences are equal at positions 0, 1 and 2, but not at 3; the second sequences are equal.
  const auto row = [](const std::vector<float>& logits, std::size_t position) {
    return std::vector<float>(logits.begin() + static_cast<std::ptrdiff_t>(position * 11),
                              logits.begin() + static_cast<std::ptrdiff_t>((position + 1) * 11));
  };
  for (const std::size_t position : {0U, 1U, 2U, 6U, 11U}) {
    EXPECT_EQ(row(one, position), row(other, position)) << position;
  }
  for (const std::size_t position : {3U, 4U, 5U}) {
    EXPECT_NE(row(one, position), row(other, position)) << position;
  }
}

TEST(T5, DecoderSeesItsEarlierLabelsAndTheWholeInput) {
  const Built built("t5-mini", kTinyT5);
  ASSERT_TRUE(built.status) << built.status.error().message;
  const auto logits = [&](std::int32_t last_token, std::int32_t second_label, std::int32_t last_label) {
    GraphRunner runner(built.graph);
    std::mt19937 random(71);
    std::normal_distribution<float> normal(0.0F, 0.3F);
    for (std::uint32_t t = 0; t < built.graph.tensors().size(); ++t) {
      if (built.graph.tensors()[t].role == Role::kParameter) {
        std::ranges::generate(runner.floats(TensorId{t}), [&] { return normal(random); });
      }
    }
    const std::vector<std::int32_t> tokens = {1, 2, 3, 4, 5, last_token, 1, 2, 3, 4, 5, 6};
    const std::vector<std::int32_t> mask = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
    const std::vector<std::int32_t> labels = {7, second_label, 9, last_label, 7, 8, -100, -100};
    std::memcpy(runner.bytes(built.graph.find("tokens")), tokens.data(), 4 * tokens.size());
    std::memcpy(runner.bytes(built.graph.find("attention_mask")), mask.data(), 4 * mask.size());
    std::memcpy(runner.bytes(built.graph.find("labels")), labels.data(), 4 * labels.size());
    runner.run(built.graph.functions[1].regions[0].operations);
    const auto y = runner.floats(built.graph.find("lm_head"));
    return std::vector<float>(y.begin(), y.begin() + 44);  // Of the first sequence.
  };
  const auto equal_rows = [](const std::vector<float>& a, const std::vector<float>& b) {
    std::ptrdiff_t row = 0;
    while (row < 4 && std::equal(a.begin() + 11 * row, a.begin() + 11 * (row + 1), b.begin() + 11 * row)) {
      ++row;
    }
    return row;
  };
  const auto one = logits(6, 8, 10);
  EXPECT_EQ(equal_rows(one, logits(6, 8, 10)), 4);
  EXPECT_EQ(equal_rows(one, logits(9, 8, 10)), 0) << "the encoder's last token";
  EXPECT_EQ(equal_rows(one, logits(6, 3, 10)), 2) << "the second label is read at the third position";
  EXPECT_EQ(equal_rows(one, logits(6, 8, 2)), 4) << "the last label is not read";
}

TEST(Bert, SeesEveryTokenOfItsOwnSequence) {
  const Built built("bert-base", kTiny);
  ASSERT_TRUE(built.status) << built.status.error().message;
  const auto one = logits_of(built, "cls.predictions.decoder", {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
  const auto other = logits_of(built, "cls.predictions.decoder", {1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 5, 6});
  // All masked positions are 0 here, with three of them per sequence.
  EXPECT_FALSE(std::equal(one.begin(), one.begin() + 33, other.begin()));
  EXPECT_TRUE(std::equal(one.begin() + 33, one.end(), other.begin() + 33));
}

}  // namespace
}  // namespace poprun::language_model_test
