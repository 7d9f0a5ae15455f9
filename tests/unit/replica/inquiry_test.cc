#include "replica/instance/inquiry.h"

#include <map>
#include <sstream>

#include <gmock/gmock.h>

#include "replica/models/model.h"

namespace poprun {
namespace {

using ::testing::HasSubstr;

/// Columns two and three of --list-models by model.
std::map<std::string, std::pair<std::string, std::string>> listed() {
  std::istringstream lines(answer_inquiry({"--list-models"}).text);
  std::map<std::string, std::pair<std::string, std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    words >> rows[name].first >> rows[name].second;
  }
  return rows;
}

// Parameters: the models' papers and reference implementations (torchvision, Hugging Face).
// Multiply-accumulates: published counts of the residual networks (torchvision's weights page
// rounds them to 4.09, 7.80, 4.23 and 16.41); small networks and transformers by hand, with S
// tokens, V words, M masks: layers * (12 S H^2 + 2 S^2 H) + S H V, and M (H^2 + H V) + H^2 + 2 H
// for BERT's heads.
TEST(ListModels, GivesPublishedCounts) {
  const auto rows = listed();
  const auto expect = [&](const char* name, const char* parameters, const char* gmac) {
    ASSERT_TRUE(rows.contains(name)) << name;
    EXPECT_EQ(rows.at(name).first, parameters) << name;
    EXPECT_EQ(rows.at(name).second, gmac) << name;
  };
  expect("small-cnn", "421,642", "0.004241152");
  expect("mlp", "1,863,690", "0.001861632");
  expect("resnet50", "25,557,032", "4.089184256");
  expect("resnet101", "44,549,160", "7.801405440");
  expect("resnext50-32x4d", "25,028,904", "4.230479872");
  expect("resnext101-32x8d", "88,791,336", "16.414015488");
  expect("bert-base", "110,106,428", "50.145308160");
  expect("bert-large", "336,226,108", "169.959811072");
  expect("gpt2", "124,439,808", "145.824153600");
  expect("gpt2-medium", "354,823,168", "413.475536896");
  expect("gpt2-large", "774,030,080", "887.285350400");
  expect("gpt2-xl", "1,557,611,200", "1753.351782400");
}

TEST(ListModels, ShowsEveryModelWithTheSizesItTakes) {
  const Answer answer = answer_inquiry({"--list-models"});
  ASSERT_TRUE(answer.status);
  for (const Model& model : all_models()) {
    EXPECT_THAT(answer.text, HasSubstr("\n" + model.name + " "));
    for (const auto& [size, value] : model.sizes) {
      EXPECT_THAT(answer.text, HasSubstr(size + "=" + std::to_string(value)));
    }
  }
}

TEST(Inquiry, OfAnotherKindIsRefused) {
  const Answer answer = answer_inquiry({"--list", "x"});
  ASSERT_FALSE(answer.status);
  EXPECT_EQ(answer.status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(answer.status.error().message, HasSubstr("'--list x'"));
}

}  // namespace
}  // namespace poprun
