#include "launcher/outputs/result_files.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "launcher/outputs/profile_file.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ResultFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  void put(const std::string& name, const std::string& text) const { (void)folder_.write(name, text); }
  [[nodiscard]] std::string get(const std::string& name) const { return folder_.read(name); }

  testing::TemporaryFolder folder_;
  DiskThread disk_;
};

/// Makes a disk hang until the object is destroyed.
class HungDisk {
 public:
  explicit HungDisk(DiskThread& disk) {
    disk.post([wait = thaw_.get_future().share()]() -> Status {
      wait.wait();
      return {};
    });
  }
  HungDisk(const HungDisk&) = delete;
  HungDisk& operator=(const HungDisk&) = delete;
  ~HungDisk() { thaw_.set_value(); }

 private:
  std::promise<void> thaw_;
};

proto::TensorChunk chunk(const std::string& name, const std::string& data, bool last) {
  proto::TensorChunk chunk;
  chunk.set_name(name);
  chunk.set_type("f32");
  chunk.add_shape(2);
  chunk.set_data(data);
  chunk.set_last(last);
  return chunk;
}

TEST_F(ResultFiles, OfAnEarlierRunAreRefusedAndUntouched) {
  for (const char* name : {"weights.safetensors", "metrics.csv", "profile.json"}) {
    put(name, "precious");

    const auto taken = take_output_folder(folder_.path(), /*overwrite=*/false);

    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, ErrorCode::kUsage);
    EXPECT_THAT(taken.error().message, HasSubstr(std::string("earlier run (") + name + ")"));
    EXPECT_THAT(taken.error().message, HasSubstr("--overwrite"));
    EXPECT_EQ(get(name), "precious");
    EXPECT_FALSE(fs::exists(path("logs")));
    fs::remove(path(name));
  }
}

TEST_F(ResultFiles, OfAnEarlierRunStayWithOverwriteUntilTheyAreCleared) {
  for (const char* name : {"metrics.csv", "failure.txt", "dump-step-7.safetensors", "notes.txt"}) {
    put(name, "old");
  }

  ASSERT_TRUE(take_output_folder(folder_.path(), /*overwrite=*/true));
  EXPECT_EQ(get("metrics.csv"), "old");
  ASSERT_TRUE(clear_results(folder_.path(), ""));

  EXPECT_FALSE(fs::exists(path("metrics.csv")));
  EXPECT_FALSE(fs::exists(path("failure.txt")));
  EXPECT_FALSE(fs::exists(path("dump-step-7.safetensors")));
  EXPECT_EQ(get("notes.txt"), "old");
}

TEST_F(ResultFiles, ThatAJobBeginsFromStayUntilItsOwnReplaceThem) {
  put("weights.safetensors", "old");
  put("metrics.csv", "old");

  ASSERT_TRUE(clear_results(folder_.path(), path("./weights.safetensors")));
  EXPECT_EQ(get("weights.safetensors"), "old");
  EXPECT_FALSE(fs::exists(path("metrics.csv")));

  ASSERT_TRUE(clear_results(folder_.path(), path("another.safetensors")));
  EXPECT_FALSE(fs::exists(path("weights.safetensors")));
}

TEST_F(ResultFiles, OfAnEarlierRunThatCannotBeRemovedAreNamed) {
  put("metrics.csv/in the way", "");

  const Status cleared = clear_results(folder_.path(), "");

  ASSERT_FALSE(cleared);
  EXPECT_EQ(cleared.error().code, ErrorCode::kInfrastructure);
  EXPECT_THAT(cleared.error().message,
              HasSubstr("metrics.csv of an earlier run cannot be removed: Directory not empty"));
}

TEST_F(ResultFiles, LogsOfAnEarlierRunGoWithTheFirstNewLineAndNothingElseDoes) {
  put("logs/replica-07.log", "old");
  put("logs/mine.txt", "mine");
  ReplicaLogs logs(disk_, path("logs"), /*replicas=*/4);
  EXPECT_EQ(get("logs/replica-07.log"), "old");

  logs.write(1, "new");
  logs.write(2, "new");
  ASSERT_TRUE(logs.flush());

  EXPECT_FALSE(fs::exists(path("logs/replica-07.log")));
  EXPECT_EQ(get("logs/replica-01.log"), "new\n");
  EXPECT_EQ(get("logs/mine.txt"), "mine");
}

TEST_F(ResultFiles, FolderIsOneJobsAtATime) {
  {
    const auto first = take_output_folder(path("out"), false);
    ASSERT_TRUE(first);
    put("out/metrics.csv", "growing");

    const auto second = take_output_folder(path("out"), false);

    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kUsage);
    EXPECT_THAT(second.error().message, HasSubstr("another job is writing to this folder"));
  }
  EXPECT_TRUE(take_output_folder(path("out"), /*overwrite=*/true));
}

TEST_F(ResultFiles, FolderStaysOneJobsFromAttemptToAttempt) {
  auto first = take_output_folder(path("out"), false);
  ASSERT_TRUE(first);

  auto second = take_output_folder(path("out"), false, "logs", true, std::move(*first));

  ASSERT_TRUE(second) << second.error().message;
  EXPECT_FALSE(take_output_folder(path("out"), false));

  fs::remove_all(path("out"));
  const auto third = take_output_folder(path("out"), false, "logs", true, std::move(*second));

  ASSERT_TRUE(third) << third.error().message;
  EXPECT_FALSE(take_output_folder(path("out"), false)) << "the new folder is locked, too";
}

// A restart may overwrite what its own earlier attempt left, but nothing else.
TEST_F(ResultFiles, OfAnEarlierAttemptAreItsOwn) {
  auto first = take_output_folder(path("out"), false);
  ASSERT_TRUE(first);
  put("out/metrics.csv", "growing");

  auto second = take_output_folder(path("out"), false, "logs", true, std::move(*first));

  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->epoch(), 2U);
  put("other/metrics.csv", "precious");
  EXPECT_FALSE(take_output_folder(path("other"), false, "logs", true, std::move(*second)));
}

TEST_F(ResultFiles, FolderThatIsLockedNamesTheJobThere) {
  const auto first = take_output_folder(path("out"), false);
  ASSERT_TRUE(first);
  EXPECT_THAT(take_output_folder(path("out"), false).error().message, HasSubstr("is writing to this folder (host "));
  EXPECT_THAT(take_output_folder(path("out"), false).error().message,
              HasSubstr("process " + std::to_string(getpid()) + "); choose"));
}

TEST_F(ResultFiles, FolderBelongsToTheLaterAttempt) {
  const auto first = take_output_folder(path("out"), false);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->check());
  put("out/.poprun-emu.lock", "epoch 2\nhost node-b, process 7\n");
  ASSERT_FALSE(first->check());
  EXPECT_EQ(first->check().error().code, ErrorCode::kUsage);
  EXPECT_THAT(first->check().error().message, HasSubstr("(host node-b, process 7)"));
}

TEST_F(ResultFiles, FolderIsMadeWithItsParents) {
  ASSERT_TRUE(take_output_folder(path("a/b/c"), false));
  EXPECT_TRUE(fs::is_directory(path("a/b/c/logs")));
}

TEST_F(ResultFiles, FolderThatCannotBeMadeIsAUsageErrorWithTheReason) {
  put("file", "");
  const auto taken = take_output_folder(path("file/out"), false);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kUsage);
  EXPECT_THAT(taken.error().message, HasSubstr("cannot be created: Not a directory"));
}

TEST_F(ResultFiles, AreWholeOrNotThere) {
  ASSERT_TRUE(write_whole_file(path("x"), {"one ", "two"}));
  EXPECT_EQ(get("x"), "one two");
  EXPECT_FALSE(fs::exists(path("x.part")));
}

TEST_F(ResultFiles, AFullDiskIsAnErrorWithTheFilesName) {
  const Status written = write_whole_file("/dev/full/x", {"a"});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kInfrastructure);

  GrowingFile file(disk_, "/dev/full");
  file.append("a\n");
  const Status flushed = file.flush();
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().message, "/dev/full cannot be written: No space left on device");
  EXPECT_EQ(flushed.error().code, ErrorCode::kInfrastructure);
}

TEST_F(ResultFiles, SayWhetherRoomWouldHelp) {
  GrowingFile full(disk_, "/dev/full");
  full.append("a\n");
  EXPECT_TRUE(full.flush().error().facts.shortage);
  EXPECT_FALSE(write_whole_file("/nowhere/x", {"text"}).error().facts.shortage);
}

TEST_F(ResultFiles, LogsAreWrittenThoughOneOfThemCannotBe) {
  fs::create_directories(path("replica-00.log") + "/in the way");
  fs::create_directories(path("replica-01.log") + "/in the way");
  ReplicaLogs logs(disk_, folder_.path(), 2);
  logs.write(0, "zero");
  logs.write(1, "one");
  EXPECT_FALSE(logs.flush());
  fs::remove_all(path("replica-01.log"));
  EXPECT_THAT(logs.flush().error().message, HasSubstr("replica-00.log cannot be written"));
  EXPECT_EQ(get("replica-01.log"), "one\n");
  fs::remove_all(path("replica-00.log"));
  EXPECT_TRUE(logs.flush());
  EXPECT_EQ(get("replica-00.log"), "zero\n");
}

TEST_F(ResultFiles, ThatNeedMoreThanTheDiskHasAreRefusedBeforeAnythingIsWritten) {
  const std::string huge(64 << 20, ' ');
  const std::vector<std::string_view> parts(1 << 20, huge);  // 64 TiB.
  const Status written = write_whole_file(path("huge"), parts);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("huge cannot be written: No space left on device; "
                                                 "it needs 67,108,864.0 MiB, but only "));
  EXPECT_EQ(written.error().facts.shortage->needed, Bytes{std::int64_t{64} << 40});
  EXPECT_FALSE(fs::exists(path("huge.part")));
}

TEST_F(ResultFiles, ThatWereGivenUpAreNotThere) {
  const std::atomic<bool> given_up = true;
  EXPECT_FALSE(write_whole_file(path("x"), {"text"}, &given_up));
  EXPECT_FALSE(fs::exists(path("x")));
  EXPECT_FALSE(fs::exists(path("x.part")));
}

/// A limit on the size of files, which stands in for a disk that becomes full in the middle of a line.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(ResultFiles, ThatGrowEndWithAWholeLineAndLoseNoneWhereTheDiskIsFullForAWhile) {
  GrowingFile file(disk_, path("metrics.csv"));
  {
    const FileSizeLimit full(20);
    file.append("one,1\ntwo,2\n");
    ASSERT_TRUE(file.flush());
    file.append("three,3\nfour,4\n");
    ASSERT_FALSE(file.flush());
    EXPECT_EQ(get("metrics.csv"), "one,1\ntwo,2\nthree,3\n");
    file.append("five,5\n");
    ASSERT_FALSE(file.flush());
  }
  ASSERT_TRUE(file.flush());
  EXPECT_EQ(get("metrics.csv"), "one,1\ntwo,2\nthree,3\nfour,4\nfive,5\n");
}

TEST_F(ResultFiles, ThatGrowCountTheLinesThatTheyLeaveOut) {
  GrowingFile file(disk_, path("replica-00.log"), /*waiting_bytes_max=*/8);
  {
    const FileSizeLimit full(0);
    for (const char* line : {"one\n", "two\n", "three\n", "four\n"}) {
      file.append(line);
      ASSERT_FALSE(file.flush());
    }
  }
  ASSERT_TRUE(file.flush());
  EXPECT_EQ(get("replica-00.log"), "one\ntwo\n# 2 lines left out here: the disk accepted no data\n");
}

TEST_F(ResultFiles, ThatGrowMakeNobodyWaitForADiskThatHangs) {
  GrowingFile file(disk_, path("metrics.csv"));
  const auto began = std::chrono::steady_clock::now();
  {
    const HungDisk hung(disk_);
    for (int i = 0; i < 1000; ++i) {
      file.append("row\n");
      ASSERT_TRUE(file.flush());
      ASSERT_FALSE(file.flushed());
    }
    EXPECT_GT(disk_.busy_seconds(), 0);
    EXPECT_FALSE(fs::exists(path("metrics.csv")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5)) << "only the first flush waits";
  while (!file.flushed()) {
    ASSERT_TRUE(file.flush());
  }
  EXPECT_EQ(get("metrics.csv").size(), 4000U);
}

TEST_F(ResultFiles, LogsMakeNobodyWaitForADiskThatHangs) {
  ReplicaLogs logs(disk_, folder_.path(), 1);
  {
    const HungDisk hung(disk_);
    logs.write(0, "one");
    logs.write(0, "two");
    EXPECT_TRUE(logs.flush());
  }
  while (get("replica-00.log").size() < 8) {
    ASSERT_TRUE(logs.flush());
  }
  EXPECT_EQ(get("replica-00.log"), "one\ntwo\n");
}

TEST_F(ResultFiles, LogsOfAJobThatEndsWhileTheDiskIsSlowKeepTheirLastLines) {
  ReplicaLogs logs(disk_, folder_.path(), 1);
  {
    const HungDisk hung(disk_);
    logs.write(0, "one");
    logs.write(0, "two");
    EXPECT_TRUE(logs.flush());
    logs.hand_over();
  }
  disk_.post([] { return Status{}; }).wait();
  EXPECT_EQ(get("replica-00.log"), "one\ntwo\n");
}

TEST_F(ResultFiles, TensorsWithoutTheirLastChunkAreLeftOut) {
  WeightsCollector broken_off;
  ASSERT_TRUE(broken_off.take(chunk("a", "12345678", true)));
  ASSERT_TRUE(broken_off.take(chunk("b", "abc", false)));
  EXPECT_FALSE(broken_off.write(path("broken_off")));
  EXPECT_EQ(broken_off.keep_complete(), 1U);

  WeightsCollector whole;
  ASSERT_TRUE(whole.take(chunk("a", "12345678", true)));
  EXPECT_EQ(whole.keep_complete(), 1U);
  ASSERT_TRUE(whole.write(path("whole")));
  ASSERT_TRUE(broken_off.write(path("broken_off")));
  EXPECT_EQ(get("broken_off"), get("whole"));
}

TEST_F(ResultFiles, WeightsAreEqualBytesForEqualChunks) {
  WeightsCollector at_once;
  ASSERT_TRUE(at_once.take(chunk("a", "12345678", true)));
  ASSERT_TRUE(at_once.take(chunk("b", "abcdefgh", true)));
  WeightsCollector in_pieces;
  ASSERT_TRUE(in_pieces.take(chunk("a", "123", false)));
  ASSERT_TRUE(in_pieces.take(chunk("a", "45678", true)));
  ASSERT_TRUE(in_pieces.take(chunk("b", "abcdefgh", true)));

  ASSERT_TRUE(at_once.write(path("at_once")));
  ASSERT_TRUE(in_pieces.write(path("in_pieces")));

  EXPECT_EQ(get("at_once"), get("in_pieces"));
  const auto tensors = read_safetensors(path("at_once"));
  ASSERT_TRUE(tensors);
  EXPECT_EQ((*tensors)[1], (Tensor{"b", "F32", {2}, "abcdefgh"}));
}

TEST_F(ResultFiles, WeightsThatDoNotFitTheirShapeAreABug) {
  WeightsCollector wrong_size;
  EXPECT_EQ(wrong_size.take(chunk("a", "1234", true)).error().message,
            "weights: 'a' f32 [2] needs 8 B, but 4 B arrived");
  WeightsCollector mixed;
  ASSERT_TRUE(mixed.take(chunk("a", "1234", false)));
  EXPECT_EQ(mixed.take(chunk("b", "1234", true)).error().message, "weights: a chunk of 'b' arrived before 'a' ended");
  EXPECT_EQ(mixed.write(path("w")).error().code, ErrorCode::kBug);
}

TEST_F(ResultFiles, WeightsThatWereRefusedLeaveNothingBehind) {
  const std::int64_t huge = std::int64_t{1} << 62;
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{2}, {huge, 4}, {-1, -1}, {-2}}) {
    WeightsCollector weights;
    ASSERT_TRUE(weights.take(chunk("a", "12345678", true)));
    proto::TensorChunk refused = chunk("b", "", true);
    *refused.mutable_shape() = {shape.begin(), shape.end()};
    EXPECT_FALSE(weights.take(refused)) << shape.front();
    EXPECT_TRUE(weights.complete());
    ASSERT_TRUE(weights.write(path("w")));
    const auto read = read_safetensors(path("w"));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->size(), 1U);
  }
  WeightsCollector unknown;
  proto::TensorChunk typed = chunk("a", "12345678", true);
  typed.set_type("x32");
  EXPECT_EQ(unknown.take(typed).error().message, "weights: 'a' x32 [2] has an unknown type or shape");
  EXPECT_EQ(unknown.keep_complete(), 0U);
}

TEST_F(ResultFiles, MetricsReadBackAsTheFloatsTheyWere) {
  proto::StepMetrics step;
  step.set_step(7);
  step.set_epoch(2);
  step.set_loss(static_cast<double>(0.1F));
  step.set_accuracy(0.5);
  step.set_wall_seconds(1.25);
  EXPECT_EQ(metrics_row(step), "7,2,train,0.100000001,0.5,1.25,0\n");
  proto::EvaluationMetrics evaluation;
  evaluation.set_step(7);
  evaluation.set_epoch(2);
  EXPECT_EQ(metrics_row(evaluation), "7,2,test,0,0,0,0\n");
  evaluation.set_accuracy(-1);
  EXPECT_EQ(metrics_row(evaluation), "7,2,test,0,,0,0\n") << "there is none";
}

TEST_F(ResultFiles, ProfileHasAllFieldsAlsoTheEmptyOnesAndNumbersAsNumbers) {
  EXPECT_THAT(*message_json(proto::Profile{}), HasSubstr("\"parameterCount\": 0,"));
  proto::Profile profile;
  profile.mutable_config()->mutable_training()->set_seed(18446744073709551615U);
  profile.add_measured_peak_bytes(123);
  profile.add_planned_memory()->set_peak(456);
  profile.set_version("7");
  const std::string json = *message_json(profile);
  EXPECT_THAT(json, HasSubstr("\"seed\": 18446744073709551615"));
  EXPECT_THAT(json, HasSubstr("\"measuredPeakBytes\": [\n  123\n ]"));
  EXPECT_THAT(json, HasSubstr("\"peak\": 456"));
  EXPECT_THAT(json, HasSubstr("\"version\": \"7\""));
}

TEST_F(ResultFiles, LogsHaveNamesThatSort) {
  EXPECT_EQ(ReplicaLogs(disk_, "logs", 16).path(5), "logs/replica-05.log");
  EXPECT_EQ(ReplicaLogs(disk_, "logs", 1).path(0), "logs/replica-00.log");
  EXPECT_EQ(ReplicaLogs(disk_, "logs", 4096).path(5), "logs/replica-0005.log");
}

TEST_F(ResultFiles, LogsTakeLines) {
  ReplicaLogs logs(disk_, folder_.path(), 1);
  logs.write(0, "one");
  logs.write(0, "two");
  EXPECT_TRUE(logs.flush());
  EXPECT_EQ(get("replica-00.log"), "one\ntwo\n");
  ReplicaLogs nowhere(disk_, "/nowhere", 1);
  EXPECT_TRUE(nowhere.flush());
  nowhere.write(0, "y");
  EXPECT_EQ(nowhere.flush().error().code, ErrorCode::kInfrastructure);
}

}  // namespace
}  // namespace poprun::launcher
