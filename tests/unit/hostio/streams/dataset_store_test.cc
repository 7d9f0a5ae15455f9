#include "hostio/streams/dataset_store.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/hostio/idx_bytes.h"
#include "tests/unit/hostio/npy_bytes.h"

namespace poprun::hostio {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_images;

constexpr const char* kFourTebibytes = "synthetic:tokens,vocabulary=50,items=16777216?sequence-length=65536";

void write_dataset(const TemporaryFolder& folder) {
  write_images(folder, "train", 4, 0);
  write_images(folder, "t10k", 4, 0);
}

std::string source_of(const TemporaryFolder& folder) {
  return "idx:" + folder.path().string();
}

Result<proto::Dataset> describe(DatasetStore& store, const std::string& source) {
  std::promise<Result<proto::Dataset>> answer;
  store.describe_then(source, true, [&](const Result<proto::Dataset>& found) { answer.set_value(found); });
  return answer.get_future().get();
}

Result<DatasetStore::Loaded> load(DatasetStore& store, const std::string& source, const std::string& fingerprint = "") {
  std::promise<Result<DatasetStore::Loaded>> answer;
  store.load_then(source, fingerprint,
                  [&](Result<DatasetStore::Loaded> loaded) { answer.set_value(std::move(loaded)); });
  return answer.get_future().get();
}

std::string fingerprint_of(DatasetStore& store, const std::string& source) {
  const auto described = describe(store, source);
  EXPECT_TRUE(described) << described.error().message;
  return described ? described->fingerprint() : "";
}

TEST(DatasetStore, StoresADatasetOnceForAllWhoAskAtTheSameTime) {
  const TemporaryFolder folder;
  write_dataset(folder);
  DatasetStore store({.files = {}, .sources = {}, .datasets_max = 1});
  std::vector<DatasetStore::Loaded> loaded(8);
  std::vector<std::thread> threads;
  for (DatasetStore::Loaded& mine : loaded) {
    threads.emplace_back([&] { mine = load(store, source_of(folder)).value(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  // All eight loads share one dataset: it is in use, and the store may hold only one.
  for (const DatasetStore::Loaded& mine : loaded) {
    EXPECT_EQ(mine->description().fingerprint(), loaded[0]->description().fingerprint());
  }
}

TEST(DatasetStore, SharesOneCopyAmongAugmentationsAndNormalisations) {
  const TemporaryFolder folder;
  const std::string source =
      "npz:" + folder
                   .write("a.npz", testing::zip_bytes(
                                       {{"x.npy", testing::npy_bytes("<f4", "(4, 1, 2, 2)", testing::Bytes(4 * 16))},
                                        {"y.npy", testing::npy_bytes("|u1", "(4,)", testing::Bytes(4))}}))
                   .string();
  DatasetStore store({.files = {}, .sources = {}, .datasets_max = 1});
  std::vector<DatasetStore::Loaded> held;
  for (const std::string parameters : {"", "?augment=flip", "?mean=1", "?mean=1,deviation=3"}) {
    const auto loaded = load(store, source + parameters);
    ASSERT_TRUE(loaded) << parameters << loaded.error().message;
    held.push_back(*loaded);
  }
}

TEST(DatasetStore, GivesTheDataThatWasDescribedThoughItsFilesWereReplaced) {
  const TemporaryFolder folder;
  write_dataset(folder);
  DatasetStore store;
  const std::string source = source_of(folder);
  const std::string first = fingerprint_of(store, source);
  ASSERT_TRUE(load(store, source, first));

  write_images(folder, "train", 8, 1);
  const std::string second = fingerprint_of(store, source);

  ASSERT_NE(first, second);
  EXPECT_EQ((*load(store, source, second))->description().train_items(), 8U);
  EXPECT_EQ((*load(store, source, first))->description().train_items(), 4U);
  DatasetStore restarted;
  const auto gone = load(restarted, source, first);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::kData);
  EXPECT_THAT(gone.error().message, HasSubstr("the files changed after the job began"));
}

/// Removes the dataset's files; returns whether the store still has the data.
bool is_stored(DatasetStore& store, const TemporaryFolder& folder, const std::string& fingerprint) {
  std::filesystem::remove_all(folder.path());
  return load(store, source_of(folder), fingerprint).has_value();
}

TEST(DatasetStore, ServesTheSourcesThatItWasStartedForWithAnyParameters) {
  const TemporaryFolder folder;
  write_dataset(folder);
  const std::string source = source_of(folder);
  DatasetStore store({.files = FileScope::nothing(), .sources = {source}});
  EXPECT_TRUE(describe(store, source + "?augment=flip"));
  EXPECT_TRUE(load(store, source + "?augment=flip"));
}

TEST(DatasetStore, TriesAFailedLoadAgain) {
  const TemporaryFolder folder;
  DatasetStore store;
  EXPECT_FALSE(load(store, source_of(folder)));
  write_dataset(folder);
  EXPECT_TRUE(load(store, source_of(folder)));
}

TEST(DatasetStore, LetsGoOfTheDatasetThatWasNotAskedForTheLongest) {
  const std::vector<TemporaryFolder> folders(4);
  for (const TemporaryFolder& folder : folders) {
    write_dataset(folder);
  }
  DatasetStore store({.files = {}, .sources = {}, .datasets_max = 3});
  std::vector<std::string> fingerprints;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto loaded = load(store, source_of(folders[i]));
    fingerprints.push_back((*loaded)->description().fingerprint());
  }
  ASSERT_TRUE(load(store, source_of(folders[0]), fingerprints[0]));

  const auto last = load(store, source_of(folders[3]));

  ASSERT_TRUE(last) << last.error().message;
  for (const std::size_t i : {0U, 1U, 2U}) {
    std::filesystem::remove_all(folders[i].path());  // The stored data must remain available.
    EXPECT_EQ(load(store, source_of(folders[i]), fingerprints[i]).has_value(), i != 1) << i;
  }
}

TEST(DatasetStore, BoundsTheMemoryOfWhatNobodyReads) {
  const std::vector<TemporaryFolder> folders(3);
  for (const TemporaryFolder& folder : folders) {
    write_dataset(folder);
  }
  const std::uint64_t one = read_dataset(source_of(folders[0]))->stored->bytes();
  ASSERT_GT(one, 0U);
  DatasetStore store({.files = {}, .sources = {}, .bytes_max = 2 * one});
  const auto held = load(store, source_of(folders[0]));
  const std::string idle = (*load(store, source_of(folders[1])))->description().fingerprint();

  ASSERT_TRUE(load(store, source_of(folders[2])));

  EXPECT_TRUE(is_stored(store, folders[0], (*held)->description().fingerprint()));
  EXPECT_FALSE(is_stored(store, folders[1], idle));
}

TEST(DatasetStore, LetsGoOfWhatNobodyReadsWhereALoadLacksMemory) {
  const std::vector<TemporaryFolder> folders(2);
  for (const TemporaryFolder& folder : folders) {
    write_dataset(folder);
  }
  DatasetStore store;
  const auto held = load(store, source_of(folders[0]));
  const std::string idle = (*load(store, source_of(folders[1])))->description().fingerprint();

  EXPECT_FALSE(load(store, "idx:/nowhere"));
  EXPECT_FALSE(load(store, kFourTebibytes));

  EXPECT_TRUE(is_stored(store, folders[0], (*held)->description().fingerprint()));
  EXPECT_FALSE(is_stored(store, folders[1], idle));
}

TEST(DatasetStore, RefusesADescriptionThatNoMessageHolds) {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, testing::Bytes>> members;
  for (int i = 0; i < 200; ++i) {
    members.emplace_back("a" + std::to_string(i) + std::string(6000, 'x') + ".npy",
                         testing::npy_bytes("|u1", "(4, 2)", testing::Bytes(8)));
  }
  DatasetStore store;
  const auto described = describe(store, "npz:" + folder.write("a.npz", testing::zip_bytes(members)).string());
  ASSERT_FALSE(described);
  EXPECT_EQ(described.error().code, ErrorCode::kData);
  EXPECT_THAT(described.error().message, HasSubstr("of the 200 arrays take 1,2"));
}

TEST(DatasetStore, RefusesWhatNoMemoryHolds) {
  DatasetStore store;
  for (const Error& error : {describe(store, kFourTebibytes).error(), load(store, kFourTebibytes).error()}) {
    EXPECT_EQ(error.code, ErrorCode::kData);
    EXPECT_THAT(error.message, HasSubstr("16,777,216 items of 65,536 tokens: needs 4,194,304.0 MiB"));
  }
}

TEST(DatasetStore, LoadsNoMoreThanItMayKeepBesideWhatIsBeingRead) {
  const std::vector<TemporaryFolder> folders(3);
  for (const TemporaryFolder& folder : folders) {
    write_dataset(folder);
  }
  DatasetStore store({.files = {}, .sources = {}, .datasets_max = 2});
  std::vector<DatasetStore::Loaded> read = {*load(store, source_of(folders[0])), *load(store, source_of(folders[1]))};

  const auto refused = load(store, source_of(folders[2]));

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kHostResources);
  EXPECT_THAT(refused.error().message, HasSubstr("in addition to the 2 datasets"));
  read.clear();
  EXPECT_TRUE(load(store, source_of(folders[2])));
}

TEST(DatasetStore, MakesAFewDescriptionsAtATimeAndLetsNobodyWaitForThem) {
  const TemporaryFolder folder;
  write_dataset(folder);
  DatasetStore store({.files = {}, .sources = {}, .descriptions_max = 1, .descriptions_at_once = 1});
  std::promise<void> begun;
  std::promise<void> go_on;
  store.describe_then(source_of(folder), true, [&](const Result<proto::Dataset>& first) {
    EXPECT_TRUE(first);
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  std::promise<bool> second;
  store.describe_then(source_of(folder), true,
                      [&](const Result<proto::Dataset>& described) { second.set_value(described.has_value()); });
  std::future<bool> answer = second.get_future();

  EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_TRUE(store.describing(source_of(folder)).waits());
  EXPECT_TRUE(load(store, source_of(folder)));
  const auto third = describe(store, source_of(folder));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kHostResources);
  EXPECT_EQ(third.error().message, "1 requests for dataset descriptions are already waiting");
  go_on.set_value();
  EXPECT_TRUE(answer.get());
}

TEST(DatasetStore, ServesASmallDatasetWhileALargeOneLoads) {
  const TemporaryFolder folder;
  write_dataset(folder);
  const std::string large = "synthetic:tokens,vocabulary=50,items=400000?sequence-length=64";
  DatasetStore store;
  std::promise<bool> done;
  std::atomic<bool> is_done = false;
  store.load_then(large, "", [&](const Result<DatasetStore::Loaded>& loaded) {
    is_done = true;
    done.set_value(loaded.has_value());
  });

  EXPECT_TRUE(load(store, source_of(folder), fingerprint_of(store, source_of(folder))));

  EXPECT_FALSE(is_done);
  EXPECT_TRUE(done.get_future().get());
}

TEST(DatasetStore, BoundsTheRequestsThatWait) {
  const TemporaryFolder folder;
  write_dataset(folder);
  DatasetStore store({.files = {}, .sources = {}, .requests_max = 0});
  const auto refused = load(store, source_of(folder));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kHostResources);
}

}  // namespace
}  // namespace poprun::hostio
