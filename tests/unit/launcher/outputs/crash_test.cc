/// A machine that crashes at any call on a disk, after any legal prefix of what was not synced, leaves whole
/// checkpoints and results, and after the first checkpoint at least one.
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "launcher/outputs/checkpoint_writer.h"
#include "launcher/outputs/npy.h"
#include "launcher/outputs/result_files.h"
#include "tests/unit/launcher/outputs/recorded_disk.h"
#include "tests/unit/number_in.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

class CrashedDisk : public ::testing::Test {
 protected:
  CrashedDisk() {
    fs::create_directories(root_);
    (void)folder_.write("metrics.csv", "step,loss\n1,3\n2,2\n3,1\n4,1\n5,1\n6,1\n7,1\n8,1\n");
  }

  /// Returns the files below a folder, and what they contain.
  static std::map<std::string, std::string> contents_of(const fs::path& folder) {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) {
        std::ifstream file(entry.path(), std::ios::binary);
        found[fs::relative(entry.path(), folder)] = {std::istreambuf_iterator<char>(file), {}};
      }
    }
    return found;
  }

  /// Calls `check` with what each crash leaves, and with the number of calls before it. First checks that the recorded
  /// calls reproduce the folder.
  void crash_everywhere(const testing::RecordedDisk& disk,
                        const std::function<void(const std::string& left, std::size_t calls)>& check) {
    const std::string whole = folder_.path() / "whole";
    disk.copy(whole);
    ASSERT_EQ(contents_of(whole), contents_of(root_)) << "not every call was recorded";
    const std::size_t crashes_per_call = testing::number_in("POPRUN_EMU_CRASHES", 6);
    std::mt19937_64 random(1);
    const std::string left = folder_.path() / "left";
    std::size_t crashes = 0;
    for (std::size_t calls = 0; calls <= disk.calls(); ++calls) {
      for (std::size_t k = 0; k < crashes_per_call; ++k, ++crashes) {
        fs::remove_all(left);
        disk.crash(calls, random, left);
        ASSERT_NO_FATAL_FAILURE(check(left, calls)) << "crash " << k << " after call " << calls;
      }
    }
    fmt::print("{} crashes after {} calls\n", crashes, disk.calls());
  }

  /// Stores a checkpoint of two variables in two parts.
  static void store(CheckpointWriter& writer, std::uint64_t step) {
    for (const std::uint32_t replica : {0U, 1U}) {
      proto::StatePart part;
      part.set_replica(replica);
      part.set_parts(2);
      part.mutable_host()->set_step(step);
      part.mutable_host()->set_metric_rows(step);
      for (const char* name : {"a", "b"}) {
        proto::StateVariable& variable = *part.add_variables();
        variable.set_name(name);
        variable.set_type("u8");
        variable.add_shape(1000);
        variable.set_bytes(1000);
      }
      part.add_slices()->set_variable(replica);
      part.mutable_slices(0)->set_bytes(1000);
      writer.begin(part, [](auto) {});
      writer.write(replica, std::string(1000, static_cast<char>('0' + step)));
    }
    writer.end(1);
    writer.end(0);
  }

  [[nodiscard]] CheckpointWriter writer(testing::RecordedDisk& disk) {
    return {{.folder = root_ / "checkpoints", .metrics = folder_.path() / "metrics.csv", .keep = 2},
            [this, &disk](std::uint64_t step, const Result<CheckpointWriter::Stored>& news) {
              ASSERT_TRUE(news) << news.error().message;
              stored_.emplace_back(disk.calls(), step);
            }};
  }

  /// Returns the last step whose checkpoint was stored within the first `calls` calls.
  [[nodiscard]] std::uint64_t stored_within(std::size_t calls) const {
    std::uint64_t last = 0;
    for (const auto& [at, step] : stored_) {
      last = at <= calls ? step : last;
    }
    return last;
  }

  testing::TemporaryFolder folder_;
  fs::path root_ = folder_.path() / "root";
  std::vector<std::pair<std::size_t, std::uint64_t>> stored_;  ///< Numbers of calls, and steps.
};

TEST_F(CrashedDisk, HasWholeCheckpointsAloneAndTheLastThatWasStored) {
  testing::RecordedDisk disk(root_);
  {
    CheckpointWriter first = writer(disk);
    for (const std::uint64_t step : {1U, 2U, 3U, 4U}) {
      store(first, step);
    }
    store(first, 4);  // Takes the place of the other one.
  }
  CheckpointWriter second = writer(disk);  // After a restart.
  second.go_on(4);
  for (const std::uint64_t step : {5U, 6U, 7U}) {
    store(second, step);
  }
  ASSERT_EQ(stored_.size(), 8U);

  crash_everywhere(disk, [this](const std::string& left, std::size_t calls) {
    const std::vector<std::string> found = checkpoints_in(left + "/checkpoints");
    for (const std::string& checkpoint : found) {
      const Result<Checkpoint> read = read_checkpoint(checkpoint);
      ASSERT_TRUE(read) << read.error().message;
    }
    ASSERT_GE(found.empty() ? 0 : step_of(found.front()), stored_within(calls));
  });
}

TEST_F(CrashedDisk, HasWholeResultsAndTheLastThatWereWritten) {
  testing::RecordedDisk disk(root_);
  std::vector<std::size_t> written;
  for (const char* text : {"old", "new and longer", "newest"}) {
    ASSERT_TRUE(write_whole_file(root_ / "weights.safetensors", {text, "!"}));
    written.push_back(disk.calls());
  }
  const std::vector<std::string> contents = {"", "old!", "new and longer!", "newest!"};

  crash_everywhere(disk, [&](const std::string& left, std::size_t calls) {
    const std::string path = left + "/weights.safetensors";
    std::ifstream file(path, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    const auto known = std::ranges::find(contents, content);
    ASSERT_NE(known, contents.end()) << content;
    const auto least = std::ranges::upper_bound(written, calls) - written.begin();
    ASSERT_GE(known - contents.begin(), least);
    ASSERT_EQ(content.empty(), !fs::exists(path)) << "an empty file";
  });
}

TEST_F(CrashedDisk, HasWholeOutputsOnceTheyAreFinished) {
  testing::RecordedDisk disk(root_);
  const std::string rows(2 * 3 * sizeof(float), 'x');
  {
    Result<NpyFile> file = NpyFile::create(root_ / "outputs.npy", "f32", std::vector<std::int64_t>{4, 3});
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(rows.size(), rows));
    ASSERT_TRUE(file->write(0, rows));
    ASSERT_TRUE(file->finish());
  }
  const std::size_t finished = disk.calls();
  const std::string whole = contents_of(root_).at("outputs.npy");

  crash_everywhere(disk, [&](const std::string& left, std::size_t calls) {
    const std::map<std::string, std::string> found = contents_of(left);
    const auto outputs = found.find("outputs.npy");
    ASSERT_TRUE(outputs != found.end() || calls < finished);
    ASSERT_TRUE(outputs == found.end() || outputs->second == whole);
  });
}

}  // namespace
}  // namespace poprun::launcher
