/// Synthetic labels of pixels, and synthetic clicks.

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hostio/datasets/dataset.h"
#include "tests/unit/hostio/served.h"

namespace poprun::hostio::synthetic_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Lt;
using testing::values;

TEST(SyntheticImages, GiveEveryPixelALabelOnRequest) {
  const std::string source = "synthetic:images=1x12x5,classes=4,items=60";
  const auto dataset = load_dataset(source + ",labels=pixels");
  const auto plain = load_dataset(source);
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().classes(), 2U);
  EXPECT_THAT((*dataset)->description().tensors(1).sample_shape(), ElementsAre(12, 5));
  for (std::uint64_t item = 0; item < 10; ++item) {
    const auto labels = values<std::int32_t>(**dataset, item, 1, proto::SPLIT_TRAIN);
    const auto images = values<std::uint8_t>(**dataset, item, 0, proto::SPLIT_TRAIN);
    EXPECT_EQ(images, values<std::uint8_t>(**plain, item, 0, proto::SPLIT_TRAIN));
    for (std::size_t i = 0; i < labels.size(); ++i) {
      EXPECT_EQ(labels[i], images[i] >= 128 ? 1 : 0) << i;
    }
  }
  EXPECT_THAT(load_dataset(source + ",labels=rows").error().message,
              HasSubstr("labels = rows must be image or pixels"));
}

TEST(SyntheticClicks, AreNumbersCategoriesAndLabels) {
  const auto dataset = load_dataset("synthetic:clicks,dense=5,sparse=3,vocabulary=7,items=600,seed=2");
  ASSERT_TRUE(dataset) << dataset.error().message;
  const proto::Dataset& description = (*dataset)->description();
  EXPECT_EQ(description.train_items(), 600U);
  EXPECT_EQ(description.test_items(), 100U);
  EXPECT_THAT(description.tensors(0).sample_shape(), ElementsAre(5));
  EXPECT_EQ(description.tensors(1).element(), "i32");
  int clicked = 0;
  int above = 0;
  for (std::uint64_t item = 0; item < 600; ++item) {
    const auto dense = values<float>(**dataset, item, 0, proto::SPLIT_TRAIN);
    const auto sparse = values<std::int32_t>(**dataset, item, 1, proto::SPLIT_TRAIN);
    const std::int32_t label = values<std::int32_t>(**dataset, item, 2, proto::SPLIT_TRAIN).at(0);
    EXPECT_THAT(dense, Each(AllOf(Ge(-1), Lt(1))));
    EXPECT_THAT(sparse, Each(AllOf(Ge(0), Lt(7))));
    clicked += label;
    above += label == (dense[0] > static_cast<float>(sparse[0]) / 3 - 1 ? 1 : 0) ? 1 : 0;
  }
  EXPECT_GT(clicked, 200);
  EXPECT_LT(clicked, 400);
  EXPECT_GT(above, 480) << "the features hardly tell the label";
  EXPECT_NE(values<float>(**dataset, 0, 0, proto::SPLIT_TRAIN), values<float>(**dataset, 0, 0, proto::SPLIT_TEST));
}

TEST(SyntheticClicks, SayWhatTheyNeed) {
  EXPECT_TRUE(load_dataset("synthetic:clicks"));
  EXPECT_THAT(load_dataset("synthetic:clicks,classes=4").error().message,
              HasSubstr("classes is not a parameter of this source; available: dense, sparse, vocabulary"));
  EXPECT_THAT(load_dataset("synthetic:clicks,sparse=0").error().message, HasSubstr("sparse"));
}

}  // namespace
}  // namespace poprun::hostio::synthetic_test
