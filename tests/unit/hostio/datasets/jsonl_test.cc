#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hostio/datasets/dataset.h"
#include "tests/unit/hostio/served.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::hostio::jsonl_test {
namespace {

using poprun::testing::TemporaryFolder;
using testing::complaint_of;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::values;

class Jsonl : public ::testing::Test {
 protected:
  std::string file(const std::string& text, const std::string& name = "a.jsonl") {
    return "jsonl:" + folder_.write(name, text).string();
  }
  std::string complaint(const std::string& text, const std::string& parameters = "") {
    const std::string message = complaint_of(file(text) + parameters);
    const std::string prefix = folder_.path().string() + "/";
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }

  TemporaryFolder folder_;
};

TEST_F(Jsonl, ServesTokensOfEqualLength) {
  const auto dataset = load_dataset(file(R"({"input_ids": [1, 2, 3], "labels": [2, 3, -100], "id": "x"}
{"labels": [5, 6, 7], "input_ids": [4, 5, 6], "more": {}}
)") + "?test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  const proto::Dataset& description = (*dataset)->description();
  EXPECT_EQ(description.train_items(), 2U);
  EXPECT_EQ(description.classes(), 8U);
  EXPECT_EQ(description.tensors(0).name(), "tokens");
  EXPECT_THAT(values<std::int32_t>(**dataset, 1, 0), ElementsAre(4, 5, 6));
  EXPECT_THAT(values<std::int32_t>(**dataset, 0, 1), ElementsAre(2, 3, -100));
  EXPECT_THAT(describe_dataset(file(R"({"input_ids": [1], "labels": [2], "id": "x"})"))->notes(),
              Contains(HasSubstr("id is not read")));
}

TEST_F(Jsonl, TakesLabelsWithAPointAsNumbers) {
  const auto dataset = load_dataset(file(R"({"x": [1], "y": 1.0}
{"x": [2], "y": 2.0}
)") + "?test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().tensors(1).element(), "f32");
}

TEST_F(Jsonl, TestsWithTheTextsOfTheTestPart) {
  const std::string train = file(R"({"text": ")" + std::string(80, 'a') + R"("})");
  const std::string test = file(R"({"text": "01234"}
{"text": "56"})",
                                "b.jsonl")
                               .substr(6);
  const auto dataset = load_dataset(train + ",test=" + test + "?sequence-length=4");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().train_items(), 20U) << "81 bytes, with the label of the last one";
  EXPECT_EQ((*dataset)->description().test_items(), 2U) << "9 bytes";
  EXPECT_THAT((*dataset)->description().notes(), Each(Not(HasSubstr("5 %"))));
  std::vector<std::int32_t> tokens(4);
  ASSERT_TRUE((*dataset)->read({.split = proto::SPLIT_TEST, .item = 1}, 0, std::as_writable_bytes(std::span(tokens))));
  EXPECT_THAT(tokens, ElementsAre('4', '\n', '5', '6'));
}

TEST_F(Jsonl, RefusesATestPartWithoutTexts) {
  const std::string train = file(R"({"text": ")" + std::string(80, 'a') + R"("})");
  const std::string test = file(R"({"x": [1], "y": 1})", "b.jsonl").substr(6);
  const auto description = describe_dataset(train + ",test=" + test + "?sequence-length=2");
  ASSERT_FALSE(description);
  EXPECT_THAT(description.error().message, HasSubstr("column 'text' must be as in"));
}

TEST_F(Jsonl, PadsTokensToTheSequenceLength) {
  const std::string text = R"({"input_ids": [1, 2, 3], "labels": [2, 3, 4], "attention_mask": [1, 1, 1]}
{"input_ids": [5], "labels": [6], "attention_mask": [1]}
)";
  EXPECT_THAT(complaint(text), HasSubstr("the longest has 3 elements; set data.sequence-length = 3"));
  EXPECT_THAT(complaint(text, "?sequence-length=2"), HasSubstr("has 3 elements, but data.sequence-length = 2"));
  const auto dataset = load_dataset(file(text) + "?sequence-length=4,test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().tensors(0).name(), "attention_mask");
  EXPECT_THAT(values<std::int32_t>(**dataset, 1, 0), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(values<std::int32_t>(**dataset, 1, 1), ElementsAre(5, 0, 0, 0));
  EXPECT_THAT(values<std::int32_t>(**dataset, 1, 2), ElementsAre(6, -1, -1, -1));
  EXPECT_THAT(values<std::int32_t>(**dataset, 0, 2), ElementsAre(2, 3, 4, -1));
}

TEST_F(Jsonl, PadsTokensOfEqualLengthToo) {
  const auto dataset =
      load_dataset(file("{\"input_ids\": [1, 2], \"labels\": [1, 0]}\n") + "?sequence-length=3,test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_THAT(values<std::int32_t>(**dataset, 0, 0), ElementsAre(1, 2, 0));
  EXPECT_THAT(values<std::int32_t>(**dataset, 0, 1), ElementsAre(1, 0, -1));
}

TEST_F(Jsonl, ServesFeaturesAndLabels) {
  const std::string text = "{\"features\": [1, 2], \"label\": 1}\n{\"features\": [0.5, -1e3], \"label\": 0}\n";
  const auto dataset = load_dataset(file(text) + "?test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().tensors(0).name(), "images");
  EXPECT_THAT(values<float>(**dataset, 1, 0), ElementsAre(0.5, -1000));
  EXPECT_THAT(values<std::int32_t>(**dataset, 0, 1), ElementsAre(1));
}

TEST_F(Jsonl, ServesNestedArraysAndNamesOfClasses) {
  const auto dataset = load_dataset(file("{\"x\": [[[1, 2]], [[3, 4]]], \"y\": \"dog\"}\n"
                                         "{\"x\": [[[5, 6]], [[7, 8]]], \"y\": \"cat\"}\n") +
                                    "?test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_THAT((*dataset)->description().tensors(0).sample_shape(), ElementsAre(2, 1, 2));
  EXPECT_THAT(values<float>(**dataset, 1, 0), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(values<std::int32_t>(**dataset, 0, 1), ElementsAre(1));
}

TEST_F(Jsonl, ServesNumbersAsLabels) {
  const auto dataset = load_dataset(file("{\"x\": [1], \"y\": 0.5}\n{\"x\": [1], \"y\": 3}\n") + "?test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_THAT(values<float>(**dataset, 0, 1), ElementsAre(0.5));
  EXPECT_THAT(values<float>(**dataset, 1, 1), ElementsAre(3));
}

TEST_F(Jsonl, ServesTextAsBytes) {
  std::string text;
  for (int i = 0; i < 30; ++i) {
    text += "{\"text\": \"ab\\u00e9\", \"source\": \"web\"}\n";
  }
  const auto dataset = load_dataset(file(text) + "?sequence-length=5");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_THAT(values<std::int32_t>(**dataset, 1, 0), ElementsAre('a', 'b', 0xC3, 0xA9, '\n'));
  EXPECT_THAT(values<std::int32_t>(**dataset, 1, 1), ElementsAre('b', 0xC3, 0xA9, '\n', 'a'));
  EXPECT_EQ(describe_dataset(file(text) + "?test-fraction=0.5").error().code, ErrorCode::kUsage);
  EXPECT_EQ(describe_dataset(file("{\"x\": [1], \"y\": 0}\n") + "?task=masked-lm").error().code, ErrorCode::kUsage);
}

TEST_F(Jsonl, TakesTheTestPartFromAnotherFile) {
  const std::string train = file("{\"x\": [1], \"y\": \"b\"}\n", "train.jsonl");
  const std::string test = file("{\"y\": \"a\", \"x\": [9]}\n", "test.jsonl").substr(6);
  const auto dataset = load_dataset(train + ",test=" + test);
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_THAT(values<std::int32_t>(**dataset, 0, 1), ElementsAre(1));
  EXPECT_THAT(values<float>(**dataset, 0, 0, proto::SPLIT_TEST), ElementsAre(9));
  EXPECT_THAT(complaint_of(train + ",test=" + file("{\"x\": [9]}\n", "b").substr(6)), HasSubstr("it is missing"));
}

TEST_F(Jsonl, NamesLineAndKeyOfAFault) {
  const std::string good = "{\"x\": [1, 2], \"y\": 0}\n";
  EXPECT_THAT(complaint(good + "\n{\"x\": [1, 2], \"y\": 0\n"), HasSubstr("a.jsonl: line 3: expected a JSON object: "));
  EXPECT_THAT(complaint(good + "[1]\n"), HasSubstr("line 2: expected a JSON object, such as"));
  EXPECT_THAT(complaint(good + "{\"x\": [1, 2]}\n"), HasSubstr("line 2, key 'y': the value is missing"));
  EXPECT_THAT(complaint(good + "{\"x\": null, \"y\": 1}\n"), HasSubstr("line 2, key 'x': the value is missing"));
  EXPECT_THAT(complaint(good + "{\"x\": [1, \"2\"], \"y\": 1}\n"), HasSubstr("line 2, key 'x': expected numbers"));
  EXPECT_THAT(complaint(good + "{\"x\": [[1], [2]], \"y\": 1}\n"), HasSubstr("expected an array like the first, [2]"));
  EXPECT_THAT(complaint(good + "{\"x\": [1e99, 1], \"y\": 1}\n"), HasSubstr("does not fit in float32"));
  EXPECT_THAT(complaint("{\"x\": [1], \"y\": \"a\"}\n{\"x\": [1], \"y\": 1}\n"), HasSubstr("use only one kind"));
  EXPECT_THAT(complaint("{\"input_ids\": [10000000000], \"labels\": [0]}\n"), HasSubstr("a.jsonl: input_ids"));
  EXPECT_THAT(complaint("{\"input_ids\": [-1], \"labels\": [0]}\n"), HasSubstr("tokens must be >= 0"));
  EXPECT_THAT(complaint("{\"a\": {}}\n"), HasSubstr("found other keys"));
  EXPECT_THAT(complaint(""), HasSubstr("found no lines"));
  EXPECT_THAT(complaint("{\"x\": [1], \"y\": 0}\n{\"x\": [1], \"y\": \xFF}\n"), HasSubstr("line 2"));
}

}  // namespace
}  // namespace poprun::hostio::jsonl_test
