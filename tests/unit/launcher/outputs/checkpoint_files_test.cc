#include "launcher/outputs/checkpoint_files.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "launcher/outputs/checkpoint_writer.h"
#include "launcher/outputs/safetensors.h"
#include "replica/base/sha256.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Outcome = CheckpointWriter::Outcome;

class CheckpointFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("poprun-emu-checkpoints-{}", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    put(metrics(), "step,loss\n1,3\n2,2\n3,1\n");
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] fs::path checkpoints() const { return folder_ / "ck"; }
  [[nodiscard]] fs::path metrics() const { return folder_ / "metrics.csv"; }

  /// Returns the names in the folder of checkpoints, without the lock.
  [[nodiscard]] std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(checkpoints())) {
      names.push_back(entry.path().filename());
    }
    std::erase(names, ".poprun-emu.lock");
    return names;
  }

  static void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  static std::string get(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  [[nodiscard]] CheckpointWriter::Setup setup(std::uint32_t keep, bool may_replace = false) const {
    return {.folder = checkpoints(), .metrics = metrics(), .keep = keep, .may_replace = may_replace};
  }
  CheckpointWriter::News news() {
    return [this](std::uint64_t step, const Result<CheckpointWriter::Stored>& news) {
      news_.push_back(news ? fmt::format("{}", step) : news.error().message);
    };
  }
  CheckpointWriter writer(std::uint32_t keep = 3, bool may_replace = false) {
    return {setup(keep, may_replace), news()};
  }

  /// Returns the part of one of two replicas: half of "b" and, on replica 0, all of "a".
  static proto::StatePart part(std::uint32_t replica, std::uint64_t step) {
    proto::StatePart part;
    part.set_replica(replica);
    part.set_parts(2);
    part.mutable_host()->set_step(step);
    part.mutable_host()->set_metric_rows(std::min<std::uint64_t>(step, 3));
    for (const auto& [name, bytes] : {std::pair{"a", 4U}, {"b", 8U}}) {
      proto::StateVariable& variable = *part.add_variables();
      variable.set_name(name);
      variable.set_type("u8");
      variable.add_shape(bytes);
      variable.set_bytes(bytes);
    }
    if (replica == 0) {
      part.add_slices()->set_bytes(4);
    }
    proto::StateSlice& half = *part.add_slices();
    half.set_variable(1);
    half.set_offset(replica * 4);
    half.set_bytes(4);
    return part;
  }

  CheckpointWriter::Done done() {
    return [this](Outcome outcome) { outcomes_.push_back(outcome); };
  }

  void store(CheckpointWriter& writer, std::uint64_t step) {
    writer.begin(part(1, step), done());
    writer.write(1, "BBBB");
    writer.begin(part(0, step), done());
    writer.write(0, "aaa");
    writer.end(1);
    writer.write(0, "abbbb");
    writer.end(0);
  }

  fs::path folder_;
  std::vector<std::string> news_;
  std::vector<Outcome> outcomes_;
};

TEST_F(CheckpointFiles, HaveThePartsOfAllReplicasInTheirPlaces) {
  CheckpointWriter to = writer();
  store(to, 2);

  EXPECT_THAT(news_, ElementsAre("2"));
  EXPECT_THAT(outcomes_, ElementsAre(Outcome::kStored, Outcome::kStored));
  const Result<Checkpoint> read = read_checkpoint(checkpoints() / "step-2");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->manifest.host().step(), 2U);
  const auto state = read_safetensors(checkpoints() / "step-2/state.safetensors");
  ASSERT_TRUE(state) << state.error().message;
  ASSERT_EQ(state->size(), 2U);
  EXPECT_EQ((*state)[0].data, "aaaa");
  EXPECT_EQ((*state)[1].data, "bbbbBBBB");
  EXPECT_EQ(get(checkpoints() / "step-2/metrics.csv"), "step,loss\n1,3\n2,2\n");
}

TEST_F(CheckpointFiles, AreInFoldersNamedAfterTheirStep) {
  EXPECT_EQ(step_of("/x/step-12"), 12U);
  for (const char* other : {"step-", "step-1x", "step-x", "abcde12", "12", ""}) {
    EXPECT_EQ(step_of(other), 0U) << other;
  }
}

TEST_F(CheckpointFiles, AreKeptAsManyAsAskedForTheLatest) {
  CheckpointWriter to = writer(2);
  for (const std::uint64_t step : {9U, 10U, 11U, 100U}) {
    store(to, step);
  }
  EXPECT_THAT(checkpoints_in(checkpoints()), ElementsAre(checkpoints() / "step-100", checkpoints() / "step-11"));
}

TEST_F(CheckpointFiles, WaitForNoRowsOfAJobThatEnded) {
  put(metrics(), "step,loss\n1,3\n");
  CheckpointWriter to = writer();
  const auto began = std::chrono::steady_clock::now();
  std::thread job([&to] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    to.no_more_metrics();
  });
  store(to, 2);
  job.join();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  EXPECT_THAT(checkpoints_in(checkpoints()), IsEmpty());
  EXPECT_THAT(outcomes_, ElementsAre(Outcome::kFailed, Outcome::kFailed));
  EXPECT_THAT(news_, IsEmpty());
}

TEST_F(CheckpointFiles, WaitForNoRowsThatTheDiskDoesNotTake) {
  put(metrics(), "step,loss\n1,3\n");
  CheckpointWriter to = writer();
  to.hold_metrics(true);
  const auto began = std::chrono::steady_clock::now();
  store(to, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  EXPECT_THAT(outcomes_, ElementsAre(Outcome::kFailed, Outcome::kFailed));
  EXPECT_THAT(news_, ElementsAre(HasSubstr("metrics.csv, which cannot be written now")));
  store(to, 1);  // The metrics of step 1 are on the disk.
  EXPECT_EQ(news_.back(), "1");
}

TEST_F(CheckpointFiles, AreUnderWayOnceAllPartsHaveBegun) {
  CheckpointWriter to = writer();
  to.begin(part(1, 2), done());
  EXPECT_EQ(to.begun(), 0U);
  to.begin(part(0, 2), done());
  EXPECT_EQ(to.begun(), 2U);
  to.cancel(0);
  EXPECT_EQ(to.begun(), 0U);
}

/// Two jobs were started while the folder was empty.
TEST_F(CheckpointFiles, OfAnotherJobThatCameMeanwhileStay) {
  auto other = std::make_unique<CheckpointWriter>(setup(3), news());
  CheckpointWriter late = writer();
  store(*other, 50);
  store(late, 60);
  EXPECT_EQ(outcomes_.back(), Outcome::kRefused);
  EXPECT_THAT(news_.back(), HasSubstr("another job is writing to this folder"));
  other.reset();
  store(late, 60);
  EXPECT_EQ(outcomes_.back(), Outcome::kRefused);
  EXPECT_THAT(news_.back(), HasSubstr("this folder contains checkpoints of another job (step-50)"));
  EXPECT_THAT(checkpoints_in(checkpoints()), ElementsAre(checkpoints() / "step-50"));
}

TEST_F(CheckpointFiles, OfAnEarlierJobGoWithTheFirstOne) {
  {
    CheckpointWriter earlier = writer();
    store(earlier, 50);
    store(earlier, 60);
  }
  CheckpointWriter anew = writer(3, /*may_replace=*/true);
  ASSERT_TRUE(anew.take_folder());
  EXPECT_EQ(checkpoints_in(checkpoints()).size(), 2U);
  EXPECT_FALSE(anew.has_stored());
  store(anew, 1);
  EXPECT_TRUE(anew.has_stored());
  EXPECT_THAT(checkpoints_in(checkpoints()), ElementsAre(checkpoints() / "step-1"));
}

TEST_F(CheckpointFiles, OfAJobThatWentBackStayWithThoseThatWereLater) {
  {
    CheckpointWriter before = writer();
    for (const std::uint64_t step : {50U, 60U, 70U}) {
      store(before, step);
    }
  }
  CheckpointWriter back = writer(1);
  back.go_on(50);
  store(back, 55);
  const auto at = [this](const char* name) { return (checkpoints() / name).string(); };
  EXPECT_THAT(checkpoints_in(checkpoints()), ElementsAre(at("step-70"), at("step-60"), at("step-55")));
}

TEST_F(CheckpointFiles, OfTheSameStepTakeEachOthersPlace) {
  CheckpointWriter to = writer();
  store(to, 2);
  put(metrics(), "step,loss\n1,4\n2,4\n");
  store(to, 2);
  EXPECT_THAT(news_, ElementsAre("2", "2"));
  EXPECT_EQ(get(checkpoints() / "step-2/metrics.csv"), "step,loss\n1,4\n2,4\n");
  EXPECT_THAT(entries(), ElementsAre("step-2"));
}

TEST_F(CheckpointFiles, ThatBreakOffLeaveNothing) {
  CheckpointWriter to = writer();
  to.begin(part(0, 2), done());
  to.write(0, "aaaabb");
  to.cancel(0);
  EXPECT_THAT(outcomes_, ElementsAre(Outcome::kFailed));

  to.begin(part(0, 3), done());
  to.begin(part(0, 4), done());  // A part of the next step.
  EXPECT_THAT(outcomes_, ElementsAre(Outcome::kFailed, Outcome::kSuperseded));
  to.begin(part(1, 3), done());  // Too late.
  EXPECT_EQ(outcomes_.back(), Outcome::kSuperseded);
  to.write(0, "aaaabbbb and more");
  to.end(0);
  EXPECT_THAT(news_, ElementsAre(HasSubstr("sent more than it announced")));
  EXPECT_THAT(checkpoints_in(checkpoints()), IsEmpty());
  EXPECT_THAT(entries(), IsEmpty());
}

TEST_F(CheckpointFiles, ThatWereReadStayWhereTheOnesAfterThemWereNot) {
  {
    CheckpointWriter before = writer();
    store(before, 50);
    store(before, 60);
  }
  put(checkpoints() / "step-60/state.safetensors", "rotten");
  CheckpointWriter back = writer(2);
  back.go_on(50);  // step-60 could not be read then.
  store(back, 70);
  EXPECT_THAT(entries(), UnorderedElementsAre("step-50", "step-60", "step-70"));
  store(back, 80);
  EXPECT_THAT(entries(), UnorderedElementsAre("step-70", "step-80"));
}

/// On a file system without locks, both launchers believe that the folder is theirs.
TEST_F(CheckpointFiles, OfAnAttemptWhoseFolderALaterOneTookAreRefused) {
  CheckpointWriter first = writer();
  store(first, 50);
  put(checkpoints() / ".poprun-emu.lock", "epoch 2\nhost node-b, process 7\n");
  store(first, 60);
  EXPECT_EQ(outcomes_.back(), Outcome::kRefused);
  EXPECT_THAT(news_.back(), HasSubstr("a later job has taken over this folder (host node-b, process 7)"));
  EXPECT_THAT(entries(), ElementsAre("step-50"));
  EXPECT_EQ(read_checkpoint(checkpoints() / "step-50")->manifest.epoch(), 1U);
}

TEST_F(CheckpointFiles, ThatLackAByteOrHaveOneTwiceAreNotStored) {
  using Change = std::function<void(proto::StatePart&)>;
  const std::pair<const char*, Change> kWrong[] = {
      {"no slice of 'b' from replica 1", [](proto::StatePart& part) { part.clear_slices(); }},
      {"the half of replica 0", [](proto::StatePart& part) { part.mutable_slices(0)->set_offset(0); }},
      {"a gap", [](proto::StatePart& part) { part.mutable_slices(0)->set_bytes(3); }},
      {"a byte of 'a' again",
       [](proto::StatePart& part) {
         part.mutable_slices(0)->set_variable(0);
         part.mutable_slices(0)->set_offset(0);
       }},
  };
  for (const auto& [what, change] : kWrong) {
    SCOPED_TRACE(what);
    CheckpointWriter to = writer();
    proto::StatePart wrong = part(1, 2);
    change(wrong);
    to.begin(wrong, done());
    to.begin(part(0, 2), done());
    to.write(0, "aaaabbbb");
    to.write(1, std::string(wrong.slices().empty() ? 0 : wrong.slices(0).bytes(), 'B'));
    to.end(0);
    to.end(1);
    EXPECT_EQ(outcomes_.back(), Outcome::kFailed);
    EXPECT_THAT(news_.back(), HasSubstr("the parts do not contain each byte of"));
    EXPECT_THAT(entries(), IsEmpty());
  }
}

TEST_F(CheckpointFiles, WhosePartsDisagreeAreNotStored) {
  using Change = std::function<void(proto::StatePart&)>;
  const Change kWrong[] = {
      [](proto::StatePart& part) { part.mutable_variables(1)->set_name("c"); },
      [](proto::StatePart& part) { part.mutable_variables()->RemoveLast(); },
      [](proto::StatePart& part) { part.set_parts(1); },
  };
  for (const Change& change : kWrong) {
    CheckpointWriter to = writer();
    proto::StatePart wrong = part(1, 2);
    change(wrong);
    to.begin(part(0, 2), done());
    to.begin(wrong, done());
    to.write(1, "BBBB");
    to.end(1);
    EXPECT_EQ(outcomes_.back(), Outcome::kFailed);
    EXPECT_THAT(news_.back(), HasSubstr("replica 1 and replica 0 disagree about its variables or parts"));
  }
}

TEST_F(CheckpointFiles, OfStepsThatTheJobDoesNotHaveAreNotStored) {
  CheckpointWriter to = writer();
  to.limit_to(2);
  store(to, 2);
  EXPECT_EQ(outcomes_.back(), Outcome::kStored);
  store(to, 3);
  EXPECT_EQ(outcomes_.back(), Outcome::kFailed);
  EXPECT_THAT(news_.back(), HasSubstr("but the job has only 2 steps"));
  EXPECT_THAT(entries(), ElementsAre("step-2"));
}

TEST_F(CheckpointFiles, WithBytesThatNoVariableHasAreRefused) {
  CheckpointWriter to = writer();
  for (const auto& [variable, offset, bytes] :
       {std::tuple{2U, 0UL, 1UL}, {1U, 5UL, 4UL}, {1U, ~0UL, 4UL}, {1U, 4UL, ~0UL}}) {
    proto::StatePart wrong = part(1, 2);
    wrong.mutable_slices(0)->set_variable(variable);
    wrong.mutable_slices(0)->set_offset(offset);
    wrong.mutable_slices(0)->set_bytes(bytes);
    to.begin(wrong, done());
    to.write(1, "xxxx");
    to.end(1);
    EXPECT_THAT(news_.back(), HasSubstr("bytes that belong to no variable"));
    EXPECT_EQ(outcomes_.back(), Outcome::kFailed);
  }
}

TEST_F(CheckpointFiles, AreReadOnlyIfEveryByteIsAsItWasWritten) {
  CheckpointWriter to = writer();
  store(to, 3);
  const fs::path folder = checkpoints() / "step-3";
  for (const char* name : {kStateFile, kMetricsFile, kManifestFile}) {
    const std::string text = get(folder / name);
    for (std::size_t at = 0; at < text.size(); at += 7) {
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      put(folder / name, changed);
      const Result<Checkpoint> read = read_checkpoint(folder);
      ASSERT_FALSE(read) << name << " at " << at;
      EXPECT_EQ(read.error().code, ErrorCode::kData);
      EXPECT_THAT(read.error().message, HasSubstr(name));
    }
    put(folder / name, text.substr(0, text.size() / 2));
    EXPECT_FALSE(read_checkpoint(folder)) << name;
    fs::remove(folder / name);
    EXPECT_FALSE(read_checkpoint(folder)) << name;
    put(folder / name, text);
  }
  EXPECT_TRUE(read_checkpoint(folder));
}

/// Returns why the checkpoint cannot be read. Reads as a different user if run by root, who may read everything.
std::string why_unreadable(const fs::path& folder) {
  const bool is_root = geteuid() == 0;
  if (is_root && seteuid(65534) != 0) {
    return "no other user";
  }
  const Result<Checkpoint> read = read_checkpoint(folder);
  if (is_root && seteuid(0) != 0) {
    return "not root again";
  }
  return read                                             ? "read"
         : read.error().code == ErrorCode::kHostResources ? read.error().message
                                                          : "damaged: " + read.error().message;
}

TEST_F(CheckpointFiles, ThatCannotBeReadAreNotDamaged) {
  CheckpointWriter to = writer();
  store(to, 3);
  const fs::path folder = checkpoints() / "step-3";
  for (const char* name : {kStateFile, kMetricsFile, kManifestFile}) {
    const fs::path file = folder / name;
    const fs::path whole = folder / "whole";
    const auto permissions = fs::status(file).permissions();
    fs::permissions(file, fs::perms::none);
    EXPECT_THAT(why_unreadable(folder), HasSubstr(file.string() + ": cannot be read: Permission"));
    fs::permissions(file, permissions);
    fs::rename(file, whole);
    fs::create_directory(file);
    EXPECT_THAT(why_unreadable(folder), HasSubstr(": cannot be read: it is a directory"));
    fs::remove(file);
    fs::create_symlink(file, file);
    EXPECT_THAT(why_unreadable(folder), HasSubstr(": cannot be read: Too many levels"));
    fs::remove(file);
    fs::rename(whole, file);
  }
  fs::remove(folder / kManifestFile);
  fs::create_symlink("/proc/self/mem", folder / kManifestFile);  // Its first byte cannot be read.
  const Result<Checkpoint> read = read_checkpoint(folder);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kHostResources);
  EXPECT_THAT(read.error().message, HasSubstr("cannot be read: Input/output error"));
}

TEST_F(CheckpointFiles, AreLookedForOnlyInAFolderThatCanBeListed) {
  EXPECT_TRUE(check_can_list(checkpoints() / "not there"));
  CheckpointWriter to = writer();
  store(to, 3);
  EXPECT_TRUE(check_can_list(checkpoints()));
  const Status file = check_can_list(checkpoints() / "step-3" / kStateFile);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("cannot be read: Not a directory"));
}

TEST_F(CheckpointFiles, OfAnotherVersionOrBuildAreNotDamagedButRefused) {
  CheckpointWriter to = writer();
  store(to, 3);
  const fs::path folder = checkpoints() / "step-3";
  const std::string text = get(folder / kManifestFile);
  const std::string own = read_checkpoint(folder)->manifest.sha256();
  const auto replace = [](std::string in, const std::string& from, const std::string& with) {
    return in.replace(in.find(from), from.size(), with);
  };
  const std::string version = fmt::format("\"version\": \"{}\"", POPRUN_VERSION);
  const std::string format = "\"format\": 1,";
  for (const auto& [changed, message] : {
           std::pair{replace(text, version, "\"version\": \"9.9.9\""), "written by poprun-emu 9.9.9"},
           {replace(text, version, "\"version\": \"9.9.9\",\n \"later\": {\"x\": 1}"), "written by poprun-emu 9.9.9"},
           {replace(text, format, format + "\n \"later\": 1,"), "written by a different build of"},
           {replace(text, format, "\"format\": 2,"), "written by a different build of"},
       }) {
    put(folder / kManifestFile, changed);
    const Result<Checkpoint> damaged = read_checkpoint(folder);
    ASSERT_FALSE(damaged) << changed;
    EXPECT_EQ(damaged.error().code, ErrorCode::kData);

    put(folder / kManifestFile, replace(changed, own, sha256_of(replace(changed, own, ""))));
    const Result<Checkpoint> whole = read_checkpoint(folder);
    ASSERT_TRUE(whole) << whole.error().message;
    const Status refused = check_same_job(*whole, whole->manifest.config(), "");
    ASSERT_FALSE(refused) << changed;
    EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
    EXPECT_THAT(refused.error().message, HasSubstr(message));
  }
}

TEST_F(CheckpointFiles, AreThoseOfAJobWithEqualSettings) {
  proto::RunConfig config;
  config.mutable_training()->set_learning_rate(0.5);
  config.mutable_training()->set_schedule("constant");
  config.mutable_training()->set_steps(100);
  config.mutable_topology()->set_num_replicas(4);
  config.mutable_topology()->set_num_instances(4);
  Checkpoint checkpoint{.folder = "ck/step-3", .manifest = {}};
  checkpoint.manifest.set_version(POPRUN_VERSION);
  *checkpoint.manifest.mutable_config() = config;
  EXPECT_TRUE(check_same_job(checkpoint, config, ""));

  proto::RunConfig moved = config;
  moved.mutable_topology()->set_num_instances(1);
  moved.mutable_training()->set_steps(200);
  moved.mutable_data()->set_prefetch_batches(9);
  EXPECT_TRUE(check_same_job(checkpoint, moved, ""));

  moved.mutable_training()->set_schedule("cosine");
  Checkpoint falling = checkpoint;
  falling.manifest.mutable_config()->mutable_training()->set_schedule("cosine");
  const Status longer = check_same_job(falling, moved, "");
  ASSERT_FALSE(longer);
  EXPECT_THAT(longer.error().message, HasSubstr("training.steps: 100 -> 200"));

  proto::RunConfig other = config;
  other.mutable_training()->set_learning_rate(0.25);
  const Status refused = check_same_job(checkpoint, other, "");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_THAT(refused.error().message, HasSubstr("training.learning-rate: 0.5 -> 0.25"));

  checkpoint.manifest.set_version("0.0.1");
  EXPECT_THAT(check_same_job(checkpoint, config, "").error().message, HasSubstr("poprun-emu 0.0.1"));
}

TEST_F(CheckpointFiles, AreThoseOfTheSameOnnxModelWhereverItLies) {
  proto::RunConfig config;
  config.mutable_model()->set_onnx("a/model.onnx");
  config.mutable_model()->set_name("model.onnx");
  Checkpoint checkpoint{.folder = "ck/step-3", .manifest = {}};
  checkpoint.manifest.set_version(POPRUN_VERSION);
  checkpoint.manifest.set_onnx_sha256(sha256_of("model"));
  *checkpoint.manifest.mutable_config() = config;

  config.mutable_model()->set_onnx("b/copy.onnx");
  config.mutable_model()->set_name("copy.onnx");
  EXPECT_TRUE(check_same_job(checkpoint, config, sha256_of("model")));
  const Status other = check_same_job(checkpoint, config, sha256_of("another"));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kData);
  EXPECT_THAT(other.error().message, HasSubstr("b/copy.onnx is not the checkpoint's model"));
  EXPECT_FALSE(check_same_job(checkpoint, config, "")) << "a built-in model is another one";
}

TEST(Sha256, HasTheDigestsOfTheStandard) {  // FIPS 180-4, examples.
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace poprun::launcher
