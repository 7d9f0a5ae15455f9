/// GPT-2 and BERT: parameter counts, refusals, and which tokens the attention masks admit.

#include <cstring>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/layers/model.h"
#include "tests/unit/replica/graph_runner.h"

namespace poprun::language_model_test {
namespace {

using testing::GraphRunner;
using ::testing::HasSubstr;

const std::map<std::string, std::int64_t> kTiny = {
    {"layers", 2}, {"hidden", 8}, {"heads", 2}, {"vocabulary", 11}, {"sequence-length", 6}};

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
    if (name.starts_with("gpt2")) {
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

// The counts are those of Hugging Face's GPT2LMHeadModel and BertForPreTraining.
TEST(LanguageModels, HaveTheirParameterCounts) {
  EXPECT_EQ(Built("gpt2").parameters(), 124'439'808);
  EXPECT_EQ(Built("gpt2-medium").parameters(), 354'823'168);
  EXPECT_EQ(Built("gpt2-large").parameters(), 774'030'080);
  EXPECT_EQ(Built("gpt2-xl").parameters(), 1'557'611'200);
  EXPECT_EQ(Built("bert-base").parameters(), 110'106'428);
  EXPECT_EQ(Built("bert-large").parameters(), 336'226'108);
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
