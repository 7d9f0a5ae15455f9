#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hostio/datasets/dataset.h"
#include "tests/unit/hostio/arrow_bytes.h"
#include "tests/unit/hostio/served.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::hostio::arrow_test {
namespace {

namespace fs = std::filesystem;

using poprun::testing::TemporaryFolder;
using testing::arrow_bytes;
using testing::arrow_fixed_lists;
using testing::arrow_floats;
using testing::arrow_integers;
using testing::arrow_lists;
using testing::arrow_texts;
using testing::ArrowArray;
using testing::Bytes;
using testing::complaint_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::values;

using Batches = std::vector<std::vector<ArrowArray>>;

class Arrow : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const Bytes& bytes) {
    fs::create_directories((folder_.path() / name).parent_path());
    (void)folder_.write(name, bytes);
    return "arrow:" + folder_.path().string();
  }
  std::string dataset(const Batches& batches) { return write("data-00000-of-00001.arrow", arrow_bytes(batches)); }
  std::string complaint(const Batches& batches, const std::string& parameters = "") {
    return complaint_of(dataset(batches) + parameters);
  }

  TemporaryFolder folder_;
};

TEST_F(Arrow, ServesTokensOfAllBatchesAndFiles) {
  write("data-00001-of-00002.arrow", arrow_bytes({{arrow_lists("input_ids", {2}, arrow_integers("", {7, 8})),
                                                   arrow_lists("labels", {2}, arrow_integers("", {8, -100}))}}));
  const std::string source = write("data-00000-of-00002.arrow",
                                   arrow_bytes({{arrow_lists("input_ids", {2, 2}, arrow_integers("", {1, 2, 3, 4})),
                                                 arrow_lists("labels", {2, 2}, arrow_integers("", {2, 3, 4, 5}))},
                                                {arrow_lists("input_ids", {2}, arrow_integers("", {5, 6})),
                                                 arrow_lists("labels", {2}, arrow_integers("", {6, 7}))}}));
  write("cache-1234.arrow", {});
  const auto loaded = load_dataset(source + "?test-fraction=0");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)->description().train_items(), 4U);
  EXPECT_EQ((*loaded)->description().classes(), 9U);
  EXPECT_THAT(values<std::int32_t>(**loaded, 1, 0), ElementsAre(3, 4));
  EXPECT_THAT(values<std::int32_t>(**loaded, 2, 0), ElementsAre(5, 6));
  EXPECT_THAT(values<std::int32_t>(**loaded, 3, 1), ElementsAre(8, -100));
  const auto halves = load_dataset(source + "?test-fraction=0.5");
  ASSERT_TRUE(halves) << halves.error().message;
  EXPECT_THAT(values<std::int32_t>(**halves, 0, 0, proto::SPLIT_TEST), ElementsAre(5, 6));
}

TEST_F(Arrow, PadsListsToTheSequenceLength) {
  const Batches batches = {{arrow_lists("input_ids", {1, 3, 0}, arrow_integers("", {1, 2, 3, 4}, 4)),
                            arrow_lists("labels", {1, 3, 0}, arrow_integers("", {5, 6, 7, 8}, 2))}};
  EXPECT_THAT(complaint(batches), HasSubstr("set data.sequence-length = 3"));
  const auto loaded = load_dataset(dataset(batches) + "?sequence-length=4,test-fraction=0");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_THAT(values<std::int32_t>(**loaded, 0, 0), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(values<std::int32_t>(**loaded, 1, 0), ElementsAre(2, 3, 4, 0));
  EXPECT_THAT(values<std::int32_t>(**loaded, 1, 1), ElementsAre(6, 7, 8, -1));
  EXPECT_THAT(values<std::int32_t>(**loaded, 2, 1), ElementsAre(-1, -1, -1, -1));
  EXPECT_THAT(complaint({{arrow_lists("labels", {1, 2}, arrow_integers("", {5, 6, 7}, 1, false)),
                          arrow_lists("input_ids", {1, 2}, arrow_integers("", {5, 6, 7}))}},
                        "?sequence-length=2"),
              HasSubstr("they must be signed"));
}

TEST_F(Arrow, ServesNestedAndFixedLists) {
  const auto loaded = load_dataset(
      dataset({{arrow_lists("x", {1, 1},
                            arrow_fixed_lists(
                                "", 2, arrow_lists("", {2, 2, 2, 2}, arrow_floats("", {1, 2, 3, 4, 5, 6, 7, 8})))),
                arrow_integers("label", {1, 0})}}) +
      "?test-fraction=0");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_THAT((*loaded)->description().tensors(0).sample_shape(), ElementsAre(1, 2, 2));
  EXPECT_THAT(values<float>(**loaded, 1, 0), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(values<std::int32_t>(**loaded, 0, 1), ElementsAre(1));
}

TEST_F(Arrow, ServesBytesAsImagesAndOtherIntegersAsFloats) {
  const auto bytes = load_dataset(
      dataset({{arrow_fixed_lists("images", 2, arrow_fixed_lists("", 2, arrow_integers("", {1, 2, 3, 255}, 1, false))),
                arrow_integers("label", {0})}}) +
      "?test-fraction=0");
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_THAT(values<std::uint8_t>(**bytes, 0, 0), ElementsAre(1, 2, 3, 255));
  const auto integers = load_dataset(dataset({{arrow_fixed_lists("features", 2, arrow_integers("", {-1, 2, 300, 4}, 2)),
                                               arrow_integers("label", {0, 1})}}) +
                                     "?test-fraction=0,label-type=number");
  ASSERT_TRUE(integers) << integers.error().message;
  EXPECT_THAT(values<float>(**integers, 0, 0), ElementsAre(-1, 2));
  EXPECT_THAT(values<float>(**integers, 1, 1), ElementsAre(1));
}

TEST_F(Arrow, ServesHalvesDoublesAndBooleans) {
  ArrowArray halves = arrow_integers("", {0x3C00, 0xC000}, 2);  // 1.0 and -2.0 in IEEE 754.
  halves.type = 3;
  halves.type_fields = {{.id = 0, .scalar = 0}};
  ArrowArray bools{.name = "label", .type = 6, .length = 2, .buffers = {{0x02}}};
  const auto loaded = load_dataset(dataset({{arrow_fixed_lists("x", 1, halves), bools}}) + "?test-fraction=0");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_THAT(values<float>(**loaded, 1, 0), ElementsAre(-2));
  EXPECT_THAT(values<std::int32_t>(**loaded, 0, 1), ElementsAre(0));
  EXPECT_THAT(values<std::int32_t>(**loaded, 1, 1), ElementsAre(1));
}

TEST_F(Arrow, ServesTextAndNamesOfClasses) {
  std::vector<std::string> texts(30, "abc");
  texts[1].clear();
  const auto text =
      load_dataset(dataset({{arrow_texts("text", texts), arrow_integers("id", std::vector<std::int64_t>(30))}}) +
                   "?sequence-length=4");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_THAT(values<std::int32_t>(**text, 1, 0), ElementsAre('\n', 'a', 'b', 'c'));
  const std::string source =
      dataset({{arrow_fixed_lists("x", 1, arrow_floats("", {1, 2, 3})), arrow_texts("label", {"dog", "cat", "dog"}),
                arrow_texts("title", {"", "", ""})}});
  const auto names = load_dataset(source + "?test-fraction=0");
  ASSERT_TRUE(names) << names.error().message;
  EXPECT_THAT(values<std::int32_t>(**names, 0, 1), ElementsAre(1));
  EXPECT_THAT(values<std::int32_t>(**names, 1, 1), ElementsAre(0));
  EXPECT_THAT(describe_dataset(source)->notes(), Contains(HasSubstr("title is not read")));
}

TEST_F(Arrow, TakesTheTestPartFromADatasetDict) {
  const auto part = [](float x) -> Batches {
    return {{arrow_fixed_lists("x", 1, arrow_floats("", {x})), arrow_integers("y", {1})}};
  };
  write("train/data.arrow", arrow_bytes(part(1)));
  const std::string source = write("validation/data.arrow", arrow_bytes(part(2)));
  const auto loaded = load_dataset(source);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_THAT(values<float>(**loaded, 0, 0), ElementsAre(1));
  EXPECT_THAT(values<float>(**loaded, 0, 0, proto::SPLIT_TEST), ElementsAre(2));
}

TEST_F(Arrow, NamesTheColumnOfAFault) {
  ArrowArray nulls = arrow_integers("label", {0, 1, 1});
  nulls.bitmap = {0x05};
  nulls.nulls = 1;
  const ArrowArray x = arrow_fixed_lists("x", 1, arrow_floats("", {1, 2, 3}));
  EXPECT_THAT(complaint({{x, nulls}}), HasSubstr("arrow: column 'label': value 1 of a batch of 3 is null"));
  EXPECT_THAT(complaint({{arrow_lists("x", {2, 1}, arrow_lists("", {1, 2, 1}, arrow_floats("", {1, 2, 3, 4}))),
                          arrow_integers("label", {0, 1})}}),
              HasSubstr("nested lists must have equal lengths"));
  ArrowArray descending = arrow_lists("x", {1, 1}, arrow_floats("", {1, 2}));
  descending.buffers = {testing::integers({0, 2, 1}, 4)};
  EXPECT_THAT(complaint({{descending, arrow_integers("label", {0, 1})}}), HasSubstr("do not ascend"));
  ArrowArray beyond = arrow_lists("x", {1, 1}, arrow_floats("", {1, 2}));
  beyond.buffers = {testing::integers({0, 1, 9}, 4)};
  EXPECT_THAT(complaint({{beyond, arrow_integers("label", {0, 1})}}), HasSubstr("a list ends after the last value"));
  ArrowArray few = arrow_integers("label", {0, 1, 1});
  few.buffers[0].resize(17);
  EXPECT_THAT(complaint({{x, few}}), HasSubstr("expected 24 bytes of values, found 17"));
  EXPECT_THAT(complaint({{arrow_texts("title", {"a"})}}), HasSubstr("only columns of other types"));
  EXPECT_THAT(complaint({{arrow_integers("label", {})}}), HasSubstr("found no rows"));
  ArrowArray unknown = x;
  unknown.type = 99;
  EXPECT_THAT(complaint({{unknown}}), HasSubstr("column 'x' has a type that is not supported"));
}

TEST_F(Arrow, RefusesTextThatEndsAfterItsBytesBeforeItTakesMemory) {
  ArrowArray beyond = arrow_texts("text", {"abc", "d"});
  beyond.buffers[0] = testing::integers({0, 3, 0x7FFF'FFFF}, 4);
  EXPECT_THAT(complaint({{beyond}}),
              HasSubstr("arrow: column 'text': expected 2,147,483,647 bytes of values, found 4; write the file again"));
  beyond.name = "label";
  EXPECT_THAT(complaint({{arrow_fixed_lists("x", 1, arrow_floats("", {1, 2})), beyond}}),
              HasSubstr("column 'label': expected 2,147,483,647 bytes of values, found 4"));
}

TEST_F(Arrow, RefusesDamagedFiles) {
  const Bytes whole =
      arrow_bytes({{arrow_fixed_lists("x", 1, arrow_floats("", {1, 2, 3})), arrow_integers("y", {0, 1, 2})}});
  for (std::size_t size = 1; size + 9 < whole.size(); size += 7) {
    EXPECT_THAT(complaint_of(write("a.arrow", {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)})),
                HasSubstr("a.arrow: "))
        << size;
  }
  EXPECT_THAT(complaint_of(write("a.arrow", testing::integers({0x31524150}, 8))), HasSubstr("found a Parquet file"));
  EXPECT_THAT(complaint_of("arrow:" + (folder_.path() / "none").string()), HasSubstr("none: cannot be read"));
}

}  // namespace
}  // namespace poprun::hostio::arrow_test
