#include <array>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hostio/datasets/dataset.h"
#include "tests/unit/hostio/idx_bytes.h"

namespace poprun::hostio {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::idx_bytes;
using ::testing::Not;
using testing::TemporaryFolder;
using testing::write_images;

class IdxDataset : public ::testing::Test {
 protected:
  IdxDataset() {
    write_images(folder_, "train", 7, 10);
    write_images(folder_, "t10k", 3, 100);
  }

  std::string complaint() const {
    const auto loaded = load_dataset(source_);
    if (loaded) {
      return "no error";
    }
    EXPECT_EQ(loaded.error().code, ErrorCode::kData);
    return loaded.error().message;
  }

  TemporaryFolder folder_;
  std::string source_ = "idx:" + folder_.path().string();
};

TEST_F(IdxDataset, IsDescribedByItsHeadersAndLabels) {
  const Result<proto::Dataset> dataset = describe_dataset(source_);
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ(dataset->train_items(), 7U);
  EXPECT_EQ(dataset->test_items(), 3U);
  EXPECT_EQ(dataset->classes(), 5U);
  EXPECT_EQ(dataset->mean(), 0.5F);
  EXPECT_EQ(dataset->deviation(), 0.5F);
  ASSERT_EQ(dataset->tensors_size(), 2);
  EXPECT_EQ(dataset->tensors(0).name(), "images");
  EXPECT_EQ(dataset->tensors(0).element(), "u8");
  EXPECT_THAT(dataset->tensors(0).sample_shape(), ElementsAre(1, 2, 3));
  EXPECT_EQ(dataset->tensors(1).name(), "labels");
  EXPECT_EQ(dataset->tensors(1).element(), "i32");
  EXPECT_EQ(dataset->tensors(1).sample_shape_size(), 0);
}

TEST_F(IdxDataset, ReadsTensorsOfItems) {
  const auto dataset = load_dataset(source_);
  ASSERT_TRUE(dataset) << dataset.error().message;
  std::array<std::byte, 6> image{};
  (*dataset)->read({.split = proto::SPLIT_TRAIN, .item = 6}, 0, image);
  EXPECT_THAT(image, Each(std::byte{16}));
  (*dataset)->read({.split = proto::SPLIT_TEST, .item = 2}, 0, image);
  EXPECT_THAT(image, Each(std::byte{102}));
  std::array<std::byte, 4> label{};
  (*dataset)->read({.split = proto::SPLIT_TRAIN, .item = 6}, 1, label);
  EXPECT_THAT(label, ElementsAre(std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}));
}

TEST_F(IdxDataset, NamesAMissingFile) {
  std::filesystem::remove(folder_.path() / "t10k-images-idx3-ubyte");
  EXPECT_THAT(complaint(), AllOf(HasSubstr("t10k-images-idx3-ubyte.gz is missing"), Not(HasSubstr("apt-get"))));
}

TEST_F(IdxDataset, NeedsAsManyLabelsAsImages) {
  (void)folder_.write("train-labels-idx1-ubyte.gz", gzip(idx_bytes({2}, {0, 1})));
  EXPECT_THAT(complaint(),
              AllOf(HasSubstr("train-labels-idx1-ubyte.gz"), HasSubstr("expected 7 labels"), HasSubstr("found 2")));
}

TEST_F(IdxDataset, NeedsEqualShapesInBothSplits) {
  (void)folder_.write("t10k-images-idx3-ubyte", idx_bytes({3, 3, 3}, Bytes(27)));
  EXPECT_THAT(complaint(), HasSubstr("expected images of 2 x 3, as in training, found 3 x 3"));
}

TEST_F(IdxDataset, NeedsImagesOfThreeDimensionsAndLabelsOfOne) {
  (void)folder_.write("train-labels-idx1-ubyte.gz", gzip(idx_bytes({7, 1}, Bytes(7))));
  EXPECT_THAT(complaint(), HasSubstr("expected labels [items], found [7, 1]"));
  (void)folder_.write("train-images-idx3-ubyte", idx_bytes({7, 6}, Bytes(42)));
  EXPECT_THAT(complaint(), HasSubstr("expected images [items, height, width], found [7, 6]"));
}

TEST_F(IdxDataset, RefusesASplitWithoutImages) {
  (void)folder_.write("train-images-idx3-ubyte", idx_bytes({0, 2, 3}, {}));
  EXPECT_THAT(complaint(), HasSubstr("found [0, 2, 3]"));
}

TEST_F(IdxDataset, NoticesTruncatedImagesWhenLoaded) {
  (void)folder_.write("train-images-idx3-ubyte", idx_bytes({7, 2, 3}, Bytes(41)));
  EXPECT_TRUE(describe_dataset(source_));
  EXPECT_THAT(complaint(), HasSubstr("expected 42 elements (7 x 2 x 3), found 41"));
}

TEST(Datasets, ListsTheSourcesWhenOneIsUnknown) {
  const auto dataset = describe_dataset("minst");
  ASSERT_FALSE(dataset);
  EXPECT_EQ(dataset.error().code, ErrorCode::kUsage);
  EXPECT_THAT(dataset.error().message, AllOf(HasSubstr("\"minst\""), HasSubstr("fashion-mnist"), HasSubstr("idx:DIR")));
}

/// Points Fashion-MNIST at the test's own folder.
class FashionMnist : public ::testing::Test {
 protected:
  FashionMnist() { setenv("POPRUN_EMU_DATASETS", folder_.path().c_str(), 1); }
  ~FashionMnist() override { unsetenv("POPRUN_EMU_DATASETS"); }

  TemporaryFolder folder_;
};

TEST_F(FashionMnist, NamesFileAndPackageWhenMissing) {
  const auto dataset = describe_dataset("fashion-mnist");
  ASSERT_FALSE(dataset);
  EXPECT_EQ(dataset.error().code, ErrorCode::kData);
  EXPECT_THAT(dataset.error().message, AllOf(HasSubstr((folder_.path() / "fashion-mnist").string()),
                                             HasSubstr("train-images-idx3-ubyte.gz is missing"),
                                             HasSubstr("apt-get install dataset-fashion-mnist")));
}

TEST_F(FashionMnist, SaysHowToRepairADamagedFile) {
  write_images(folder_, "fashion-mnist/train", 7, 0);
  write_images(folder_, "fashion-mnist/t10k", 3, 0);
  (void)folder_.write("fashion-mnist/train-images-idx3-ubyte", Bytes{1, 2, 3, 4});
  const auto dataset = load_dataset("fashion-mnist");
  ASSERT_FALSE(dataset);
  EXPECT_THAT(dataset.error().message, HasSubstr("apt-get install --reinstall dataset-fashion-mnist"));
}

TEST_F(FashionMnist, RefusesLabelsBeyondItsTenClasses) {
  write_images(folder_, "fashion-mnist/train", 3, 0);
  write_images(folder_, "fashion-mnist/t10k", 3, 0);
  (void)folder_.write("fashion-mnist/t10k-labels-idx1-ubyte.gz", gzip(idx_bytes({3}, {1, 10, 2})));
  ASSERT_TRUE(describe_dataset("fashion-mnist"));
  EXPECT_EQ(describe_dataset("fashion-mnist")->classes(), 10U);
  const auto dataset = load_dataset("fashion-mnist");
  ASSERT_FALSE(dataset);
  EXPECT_THAT(dataset.error().message, HasSubstr("item 1: the label must be below 10, but it is 10"));
}

TEST(FashionMnistOfDebian, HasSixtyAndTenThousandImagesOf28x28) {
  const auto dataset = describe_dataset("fashion-mnist");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ(dataset->train_items(), 60'000U);
  EXPECT_EQ(dataset->test_items(), 10'000U);
  EXPECT_THAT(dataset->tensors(0).sample_shape(), ElementsAre(1, 28, 28));
}

}  // namespace
}  // namespace poprun::hostio
