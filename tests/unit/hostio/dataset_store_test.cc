#include "hostio/streams/dataset_store.h"

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/hostio/idx_bytes.h"
#include "tests/unit/hostio/npy_bytes.h"

namespace poprun::hostio {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_images;

constexpr const char* kFourTebibytes =
    "synthetic:tokens,vocabulary=50,items=16777216?sequence-length=65536";

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
  std::vector<DatasetStore::Loaded> loaded(8);
  std::vector<std::thread> threads;
  for (DatasetStore::Loaded& mine : loaded) {
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

TEST(DatasetStore, LetsGoOfTheDatasetThatWasNotAskedForTheLongest) {
  const std::vector<TemporaryFolder> folders(4);
  for (const TemporaryFolder& folder : folders) {
    write_dataset(folder);
  }
  DatasetStore store({.files = {}, .sources = {}, .datasets_max = 3});
  std::vector<std::weak_ptr<const Dataset>> loaded;
  for (std::size_t i = 0; i < 3; ++i) {
    loaded.emplace_back(*store.load(source_of(folders[i])));
  }
  ASSERT_TRUE(store.load(source_of(folders[0])));

  const auto last = store.load(source_of(folders[3]));

  ASSERT_TRUE(last) << last.error().message;
  EXPECT_FALSE(loaded[0].expired());
  EXPECT_TRUE(loaded[1].expired());
  EXPECT_FALSE(loaded[2].expired());
}

TEST(DatasetStore, BoundsTheMemoryOfWhatNobodyReads) {
  const std::vector<TemporaryFolder> folders(3);
  for (const TemporaryFolder& folder : folders) {
    write_dataset(folder);
  }
  DatasetStore measure;
  const std::uint64_t one = (*measure.load(source_of(folders[0])))->bytes();
  ASSERT_GT(one, 0U);
  DatasetStore store({.files = {}, .sources = {}, .bytes_max = 2 * one});
  const auto held = store.load(source_of(folders[0]));
  const std::weak_ptr<const Dataset> idle = *store.load(source_of(folders[1]));

  ASSERT_TRUE(store.load(source_of(folders[2])));

  EXPECT_TRUE(idle.expired());
  EXPECT_EQ(*store.load(source_of(folders[0])), *held);
}

TEST(DatasetStore, LetsGoOfWhatNobodyReadsWhereALoadLacksMemory) {
  const std::vector<TemporaryFolder> folders(2);
  for (const TemporaryFolder& folder : folders) {
    write_dataset(folder);
  }
  DatasetStore store;
  const auto held = store.load(source_of(folders[0]));
  const std::weak_ptr<const Dataset> idle = *store.load(source_of(folders[1]));

  EXPECT_FALSE(store.load("idx:/nowhere"));
  EXPECT_FALSE(idle.expired());
  EXPECT_FALSE(store.load(kFourTebibytes));
  EXPECT_TRUE(idle.expired());
  EXPECT_EQ(*store.load(source_of(folders[0])), *held);
}

TEST(DatasetStore, RefusesADescriptionThatNoMessageHolds) {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, testing::Bytes>> members;
  for (int i = 0; i < 200; ++i) {
    members.emplace_back("a" + std::to_string(i) + std::string(6000, 'x') + ".npy",
                         testing::npy_bytes("|u1", "(4, 2)", testing::Bytes(8)));
  }
  DatasetStore store;
  const auto described =
      store.describe("npz:" + folder.write("a.npz", testing::zip_bytes(members)).string());
  ASSERT_FALSE(described);
  EXPECT_EQ(described.error().code, ErrorCode::kData);
  EXPECT_THAT(described.error().message, HasSubstr("of its 200 arrays take 1,2"));
}

TEST(DatasetStore, RefusesWhatNoMemoryHolds) {
  DatasetStore store;
  for (const Error& error :
       {store.describe(kFourTebibytes).error(), store.load(kFourTebibytes).error()}) {
    EXPECT_EQ(error.code, ErrorCode::kData);
    EXPECT_THAT(error.message,
                HasSubstr("16,777,216 items of 65,536 tokens: needed 4,194,304.0 MiB"));
  }
}

TEST(DatasetStore, LoadsNoMoreThanItMayKeepBesideWhatIsBeingRead) {
  const std::vector<TemporaryFolder> folders(3);
  for (const TemporaryFolder& folder : folders) {
    write_dataset(folder);
  }
  DatasetStore store({.files = {}, .sources = {}, .datasets_max = 2});
  std::vector<DatasetStore::Loaded> read = {*store.load(source_of(folders[0])),
                                            *store.load(source_of(folders[1]))};

  const auto refused = store.load(source_of(folders[2]));

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kHostResources);
  EXPECT_THAT(refused.error().message, HasSubstr("beside the 2 datasets"));
  read.clear();
  EXPECT_TRUE(store.load(source_of(folders[2])));
}

TEST(DatasetStore, MakesOneDescriptionAtATimeAndLetsNobodyWaitForIt) {
  const TemporaryFolder folder;
  write_dataset(folder);
  DatasetStore store({.files = {}, .sources = {}, .descriptions_max = 1});
  std::promise<void> begun;
  std::promise<void> go_on;
  store.describe_then(source_of(folder), [&](const Result<proto::Dataset>& first) {
    EXPECT_TRUE(first);
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  std::promise<bool> second;
  store.describe_then(source_of(folder), [&](const Result<proto::Dataset>& described) {
    second.set_value(described.has_value());
  });
  std::future<bool> answer = second.get_future();

  EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_TRUE(store.load(source_of(folder)));
  const auto third = store.describe(source_of(folder));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kHostResources);
  EXPECT_EQ(third.error().message, "1 requests for descriptions of datasets wait already");
  go_on.set_value();
  EXPECT_TRUE(answer.get());
}

TEST(DatasetStore, BoundsTheRequestsThatWait) {
  const TemporaryFolder folder;
  write_dataset(folder);
  DatasetStore store({.files = {}, .sources = {}, .requests_max = 0});
  const auto refused = store.load(source_of(folder));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kHostResources);
}

}  // namespace
}  // namespace poprun::hostio
