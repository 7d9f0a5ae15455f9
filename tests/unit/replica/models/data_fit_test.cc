#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/layers/model.h"

/// Errors of models on data that they cannot learn from.
namespace poprun::data_fit_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Data {
  std::vector<std::pair<std::string, std::string>> tensors;  ///< Name and type.
  std::int64_t classes = 10;
  std::map<std::string, std::int64_t> sizes;
};

Status build(const std::string& name, const Data& data) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
  Builder builder(graph, {1, 0}, "");
  ModelInputs inputs;
  inputs.classes = data.classes;
  for (const auto& [tensor, type] : data.tensors) {
    inputs.names.push_back(tensor);
    inputs.tensors.push_back(graph.add_tensor({tensor, *parse_type(type), Role::kStream}));
  }
  const Result<Model> model = find_model(name);
  POPRUN_CHECK(model);
  inputs.sizes = *sizes_of(*model, data.sizes);
  (void)model->build(builder, inputs);
  return builder.status();
}

std::string complaint(const std::string& name, const Data& data) {
  const Status status = build(name, data);
  EXPECT_FALSE(status) << name;
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  return status ? "" : status.error().message;
}

const std::vector<std::string> kClassifiers = {"small-cnn", "mlp", "resnet50"};
const std::map<std::string, std::int64_t> kTiny = {
    {"layers", 1}, {"hidden", 8}, {"heads", 2}, {"vocabulary", 50}, {"sequence-length", 6}};

TEST(DataFit, ClassifiersTakeBytesAndFloats) {
  for (const std::string& name : kClassifiers) {
    for (const std::string type : {"u8[4,3,8,8]", "f32[4,3,8,8]"}) {
      const Status status = build(name, {{{"images", type}, {"labels", "i32[4]"}}, 10, {}});
      EXPECT_TRUE(status) << name << type << status.error().message;
    }
  }
  EXPECT_TRUE(build("mlp", {{{"images", "f32[4,20]"}, {"labels", "i32[4]"}}, 10, {}}));
  EXPECT_TRUE(build("mlp", {{{"images", "u8[4,20]"}, {"labels", "i32[4]"}}, 10, {}}));
}

TEST(DataFit, ClassifiersSayWhichImagesTheyNeed) {
  EXPECT_THAT(complaint("small-cnn", {{{"images", "f32[4,20]"}, {"labels", "i32[4]"}}, 10, {}}),
              AllOf(HasSubstr("[N,C,H,W] of at least 4 x 4"), HasSubstr("has f32[4,20]")));
  EXPECT_THAT(complaint("small-cnn", {{{"images", "u8[4,1,3,9]"}, {"labels", "i32[4]"}}, 10, {}}),
              HasSubstr("has u8[4,1,3,9]"));
  EXPECT_THAT(complaint("mlp", {{{"images", "i32[4,20]"}, {"labels", "i32[4]"}}, 10, {}}),
              AllOf(HasSubstr("or features [N,F]"), HasSubstr("has i32[4,20]")));
  EXPECT_THAT(complaint("mlp", {{{"tokens", "i32[4,20]"}, {"labels", "i32[4,20]"}}, 10, {}}),
              AllOf(HasSubstr("needs images, but the dataset has tokens, labels"), HasSubstr("fashion-mnist")));
}

TEST(DataFit, ClassifiersSayWhichLabelsTheyNeed) {
  for (const std::string& name : kClassifiers) {
    EXPECT_THAT(complaint(name, {{{"images", "u8[4,1,8,8]"}, {"labels", "i32[4,10]"}}, 10, {}}),
                AllOf(HasSubstr("needs labels of type i32[4], one per item"), HasSubstr("has i32[4,10]")));
    EXPECT_THAT(complaint(name, {{{"images", "u8[4,1,8,8]"}}, 10, {}}),
                HasSubstr("needs labels, but the dataset has images"));
    EXPECT_THAT(complaint(name, {{{"images", "u8[4,1,8,8]"}, {"labels", "i32[4]"}}, 10, {{"classes", 9}}}),
                AllOf(HasSubstr("model.classes = 9"), HasSubstr("labels up to 9")));
    EXPECT_TRUE(build(name, {{{"images", "u8[4,1,8,8]"}, {"labels", "i32[4]"}}, 10, {{"classes", 1000}}}));
  }
}

TEST(DataFit, LanguageModelsSayThatTheirVocabularyIsTooSmall) {
  const Data data = {{{"tokens", "i32[2,6]"}, {"labels", "i32[2,6]"}}, 51, kTiny};
  EXPECT_THAT(complaint("gpt2", data), AllOf(HasSubstr("token ids up to 50"), HasSubstr("set model.vocabulary = 51")));
}

TEST(DataFit, BertTakesLabelsOfEveryTokenWithAnAttentionMaskOnly) {
  Data data = {{{"tokens", "i32[2,6]"}, {"labels", "i32[2,6]"}}, 50, kTiny};
  EXPECT_THAT(complaint("bert-base", data), AllOf(HasSubstr("needs positions"), HasSubstr("data.task = masked-lm")));
  data.tensors.emplace_back("attention_mask", "i32[2,6]");
  EXPECT_TRUE(build("bert-base", data));
  data.tensors.back().second = "i32[2,5]";
  EXPECT_THAT(complaint("bert-base", data),
              AllOf(HasSubstr("attention_mask of type i32[2,6]"), HasSubstr("has i32[2,5]")));
}

TEST(DataFit, SquadNeedsTheFirstAndLastPositionOfEachAnswer) {
  Data data = {{{"tokens", "i32[3,6]"}, {"labels", "i32[3,2]"}}, 50, kTiny};
  EXPECT_TRUE(build("bert-base-squad", data));
  data.tensors.back().second = "i32[3,6]";
  EXPECT_THAT(complaint("bert-base-squad", data),
              AllOf(HasSubstr("needs labels of type i32[3,2]"), HasSubstr("data.task = question-answering")));
  EXPECT_THAT(complaint("bert-base-squad", {{{"tokens", "i32[3,6]"}}, 50, kTiny}), HasSubstr("needs labels"));
}

TEST(DataFit, LanguageModelsSayWhichTaskTheyNeed) {
  EXPECT_THAT(complaint("gpt2", {{{"tokens", "i32[2,6]"}, {"labels", "i32[2,1]"}}, 50, kTiny}),
              AllOf(HasSubstr("needs labels of type i32[2,6]"), HasSubstr("check that data.task = next-token")));
  EXPECT_THAT(complaint("gpt2", {{{"images", "u8[4,1,8,8]"}, {"labels", "i32[4]"}}, 10, kTiny}),
              AllOf(HasSubstr("needs tokens"), HasSubstr("text:FILE")));
  EXPECT_THAT(complaint("gpt2", {{{"tokens", "f32[2,6]"}, {"labels", "i32[2,6]"}}, 50, kTiny}),
              HasSubstr("needs tokens of type i32[B,T], but the dataset has f32[2,6]"));
}

}  // namespace
}  // namespace poprun::data_fit_test
