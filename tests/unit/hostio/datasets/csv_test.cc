#include "hostio/formats/csv.h"

#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hostio/datasets/dataset.h"
#include "tests/unit/hostio/served.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::hostio::csv_test {
namespace {

using poprun::testing::TemporaryFolder;
using ::testing::AllOf;
using testing::complaint_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::values;

class Csv : public ::testing::Test {
 protected:
  std::string file(const std::string& text, const std::string& name = "a.csv") {
    return "csv:" + folder_.write(name, text).string();
  }
  std::string complaint(const std::string& text, const std::string& parameters = "") {
    const std::string message = complaint_of(file(text) + parameters);
    const std::string prefix = folder_.path().string() + "/";
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }

  TemporaryFolder folder_;
};

TEST_F(Csv, ServesFeaturesAndIntegerLabels) {
  const auto dataset = load_dataset(file("a,label,b\n1,0,2.5\n-3,2,1e2\n+.5,1,0\n") + "?test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  const proto::Dataset& description = (*dataset)->description();
  EXPECT_EQ(description.train_items(), 3U);
  EXPECT_EQ(description.test_items(), 0U);
  EXPECT_EQ(description.classes(), 3U);
  EXPECT_EQ(description.tensors(0).name(), "images");
  EXPECT_THAT(description.tensors(0).sample_shape(), ElementsAre(2));
  EXPECT_THAT(values<float>(**dataset, 1, 0), ElementsAre(-3, 100));
  EXPECT_THAT(values<float>(**dataset, 2, 0), ElementsAre(0.5, 0));
  EXPECT_THAT(values<std::int32_t>(**dataset, 1, 1), ElementsAre(2));
}

TEST_F(Csv, TakesTheLastColumnAsTheLabelAndSaysSo) {
  const auto description = describe_dataset(file("a,b\n1,0\n2,1\n"));
  ASSERT_TRUE(description) << description.error().message;
  EXPECT_THAT(description->notes(), Contains(HasSubstr("the label is column 'b'")));
  EXPECT_THAT(description->notes(), Contains(HasSubstr("the test part is the last 1 of 2 rows")));
}

TEST_F(Csv, TakesTheLabelColumnThatIsNamed) {
  const auto dataset = load_dataset(file("a,b\n1,5\n0,6\n") + "?label-column=a,test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_THAT(values<float>(**dataset, 0, 0), ElementsAre(5));
  EXPECT_THAT(values<std::int32_t>(**dataset, 0, 1), ElementsAre(1));
  EXPECT_THAT(complaint("price,b\n1,5\n", "?label-column=prize"), HasSubstr("did you mean price?"));
}

TEST_F(Csv, ReadsOtherSeparatorsLineEndsAndAByteOrderMark) {
  for (const std::string& text :
       {std::string("\xEF\xBB\xBF"
                    "a;b\r\n1.5;0\r\n2;1"),
        std::string("a\tb\n1.5\t0\n\n2\t1\n"), std::string("\"a\",\"b, c\"\n\"1.5\",0\n 2 ,\"1\"\n")}) {
    const auto dataset = load_dataset(file(text) + "?test-fraction=0");
    ASSERT_TRUE(dataset) << dataset.error().message;
    EXPECT_EQ((*dataset)->description().train_items(), 2U);
    EXPECT_THAT(values<float>(**dataset, 0, 0), ElementsAre(1.5));
    EXPECT_THAT(values<std::int32_t>(**dataset, 1, 1), ElementsAre(1));
  }
}

TEST_F(Csv, NumbersClassesInTheOrderOfTheirNames) {
  const std::string source = file("x,kind\n1,\"setosa\"\n2,\"a \"\"b\"\"\"\n3,setosa\n");
  const auto dataset = load_dataset(source + "?test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().classes(), 2U);
  EXPECT_THAT(values<std::int32_t>(**dataset, 0, 1), ElementsAre(1));
  EXPECT_THAT(values<std::int32_t>(**dataset, 1, 1), ElementsAre(0));
  EXPECT_THAT(describe_dataset(source)->notes(), Contains(HasSubstr("0 = a \"b\", 1 = setosa")));
}

TEST_F(Csv, ServesFloatLabelsForRegression) {
  const auto floats = load_dataset(file("x,y\n1,0.25\n2,3\n") + "?test-fraction=0");
  ASSERT_TRUE(floats) << floats.error().message;
  EXPECT_EQ((*floats)->description().tensors(1).element(), "f32");
  EXPECT_THAT(values<float>(**floats, 0, 1), ElementsAre(0.25));
  const auto numbers = load_dataset(file("x,y\n1,250000\n2,-3\n") + "?test-fraction=0,label-type=number");
  ASSERT_TRUE(numbers) << numbers.error().message;
  EXPECT_THAT(values<float>(**numbers, 0, 1), ElementsAre(250000));
  const auto classes = load_dataset(file("x,y\n1,1.0\n2,0.0\n") + "?test-fraction=0,label-type=class");
  ASSERT_TRUE(classes) << classes.error().message;
  EXPECT_THAT(values<std::int32_t>(**classes, 0, 1), ElementsAre(1));
  EXPECT_THAT(complaint("x,y\n1,0.5\n2,0.0\n", "?label-type=class"), HasSubstr("the label is not a whole number"));
}

TEST_F(Csv, RefusesARowOfTabsAlone) {
  EXPECT_THAT(complaint("a\tb\n1\t0\n\t\n2\t1\n"), HasSubstr("missing"));
}

TEST_F(Csv, ShowsNoControlCharactersOfAFile) {
  EXPECT_THAT(complaint("\xC2\x9B"
                        "31m,b\nx,5\n"),
              HasSubstr("\\xc2\\x9b31m"));
}

TEST_F(Csv, TakesTheTestPartFromAnotherFileWithTheSameClasses) {
  const std::string train = file("x,label\n1,b\n2,c\n", "train.csv");
  const std::string test = file("x,label\n7,a\n", "test.csv").substr(4);
  const auto dataset = load_dataset(train + ",test=" + test);
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().train_items(), 2U);
  EXPECT_EQ((*dataset)->description().test_items(), 1U);
  EXPECT_EQ((*dataset)->description().classes(), 3U);
  EXPECT_THAT(values<std::int32_t>(**dataset, 1, 1), ElementsAre(2));
  EXPECT_THAT(values<float>(**dataset, 0, 0, proto::SPLIT_TEST), ElementsAre(7));
  EXPECT_THAT(complaint_of(train + ",test=" + file("z,label\n7,a\n", "z.csv").substr(4)),
              HasSubstr("column 1 is 'z' instead of 'x'"));
  EXPECT_THAT(complaint_of(train + ",test=" + file("x,label\n7,1\n", "z.csv").substr(4)),
              HasSubstr("it has integers instead of names"));
}

TEST_F(Csv, TakesTheLastRowsAsTheTestPart) {
  std::string text = "x,label\n";
  for (int i = 0; i < 40; ++i) {
    text += std::to_string(i) + "," + std::to_string(i % 3) + "\n";
  }
  const auto dataset = load_dataset(file(text));
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().train_items(), 38U);
  EXPECT_THAT(values<float>(**dataset, 0, 0, proto::SPLIT_TEST), ElementsAre(38));
  EXPECT_EQ((*load_dataset(file(text) + "?test-fraction=0.25"))->description().test_items(), 10U);
}

TEST_F(Csv, NormalisesFeatures) {
  const auto dataset = load_dataset(file("x,label\n3,0\n5,1\n") + "?mean=4,deviation=2");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_THAT(values<float>(**dataset, 0, 0), ElementsAre(-0.5));
}

TEST_F(Csv, ReadsRecordsAcrossTheEndOfTheWindow) {
  std::string text = "x,label\n";
  while (text.size() < (3U << 20)) {
    text += "0.125,\"1\"\n";
  }
  text += "7,2\n";
  const auto dataset = load_dataset(file(text) + "?test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  const std::uint64_t last = (*dataset)->description().train_items() - 1;
  EXPECT_THAT(values<float>(**dataset, last, 0), ElementsAre(7));
  EXPECT_THAT(values<float>(**dataset, last - 1, 0), ElementsAre(0.125));
}

TEST_F(Csv, NamesLineAndColumnOfAFault) {
  EXPECT_THAT(complaint("x,y,label\n1,2,0\n1,,0\n"),
              AllOf(StartsWith("a.csv: line 3, column 'y': the value is missing")));
  EXPECT_THAT(complaint("\"x\ny\",label\n1,0\n\nabc,0\n"),
              HasSubstr("a.csv: line 5, column 'x\\x0ay': expected a number that fits in float32, found 'abc'"));
  EXPECT_THAT(complaint("x,label\nnan,0\n"), HasSubstr("found 'nan'"));
  EXPECT_THAT(complaint("x,label\n1e99,0\n"), HasSubstr("found '1e99'"));
  EXPECT_THAT(complaint("x,label\n1, \n"), HasSubstr("line 2, column 'label': the label is missing"));
  EXPECT_THAT(complaint("x,label\n1,a\n1,3\n"), HasSubstr("line 3, column 'label': some labels are numbers"));
  EXPECT_THAT(complaint("x,label\n1,0\n1\n"), HasSubstr("a.csv: line 3: expected 2 fields, as in the header, found 1"));
  EXPECT_THAT(complaint("x,label\n\"1\"2,0\n"), HasSubstr("line 2: field 1: text follows a closing quote"));
  EXPECT_THAT(complaint("x,label\n\"1,0\n"), HasSubstr("line 2: a quote is never closed"));
  EXPECT_THAT(complaint("x,label\n"), HasSubstr("not followed by any row"));
  EXPECT_THAT(complaint(""), HasSubstr("found no text"));
  EXPECT_THAT(complaint("a b c\n1\n"), HasSubstr("found one column"));
  EXPECT_THAT(complaint("\xFF\xFE"
                        "a,b"),
              HasSubstr("save the file as UTF-8"));
  EXPECT_THAT(complaint("x,label\n1,-1\n"), HasSubstr("the label must be >= 0"));
  EXPECT_THAT(complaint("x,label,label\n1,1,1\n"), HasSubstr("several columns are called 'label'"));
}

TEST_F(Csv, RefusesARecordThatIsTooLong) {
  EXPECT_THAT(complaint("x,label\n\"" + std::string(kRecordBytesMax + (2U << 20), '1')), HasSubstr("limit, 16.0 MiB"));
}

TEST_F(Csv, ReadsOnlyWhatTheScopeAdmits) {
  const TemporaryFolder other;
  EXPECT_EQ(describe_dataset(file("x,label\n1,0\n2,0\n"), *FileScope::below(other.path())).error().code,
            ErrorCode::kUsage);
}

}  // namespace
}  // namespace poprun::hostio::csv_test
