#include "hostio/streams/dataset_store.h"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/hostio/idx_bytes.h"

namespace poprun::hostio {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_images;

void write_dataset(const TemporaryFolder& folder) {
  write_images(folder, "train", 4, 0);
  write_images(folder, "t10k", 4, 0);
}

std::string source_of(const TemporaryFolder& folder) {
  return "idx:" + folder.path().string();
}

TEST(DatasetStore, LoadsADatasetOnceForAllWhoAskAtTheSameTime) {
  const TemporaryFolder folder;
  write_dataset(folder);
  DatasetStore store;
  std::vector<const Dataset*> loaded(8);
  std::vector<std::thread> threads;
  for (const Dataset*& mine : loaded) {
    threads.emplace_back([&] { mine = store.load(source_of(folder)).value(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(loaded, Each(loaded[0]));
}

TEST(DatasetStore, TriesAFailedLoadAgain) {
  const TemporaryFolder folder;
  DatasetStore store;
  EXPECT_FALSE(store.load(source_of(folder)));
  write_dataset(folder);
  EXPECT_TRUE(store.load(source_of(folder)));
}

TEST(DatasetStore, RefusesMoreDatasetsThanItMayHold) {
  const std::vector<TemporaryFolder> folders(DatasetStore::kDatasetsMax + 1);
  DatasetStore store;
  for (const TemporaryFolder& folder : folders) {
    write_dataset(folder);
    const auto loaded = store.load(source_of(folder));
    if (&folder == &folders.back()) {
      ASSERT_FALSE(loaded);
      EXPECT_EQ(loaded.error().code, ErrorCode::kUsage);
      EXPECT_THAT(loaded.error().message, HasSubstr("holds 16 datasets"));
    } else {
      EXPECT_TRUE(loaded);
    }
  }
}

}  // namespace
}  // namespace poprun::hostio
