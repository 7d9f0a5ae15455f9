#include "launcher/outputs/job_results.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include "tests/unit/temporary_folder.h"

namespace poprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The results of a job that dumps steps 1 and 3, and the items that its replicas report.
class JobResultsTest : public ::testing::Test {
 protected:
  static proto::RunConfig config_with_dumps() {
    proto::RunConfig config;
    for (const std::uint64_t step : {1U, 3U}) {
      config.mutable_report()->add_dump_tensors()->set_step(step);
    }
    return config;
  }

  [[nodiscard]] bool has(const std::string& name) const { return std::filesystem::exists(results_.path(name)); }

  static void fill(proto::TensorChunk& chunk, const std::string& name, bool last) {
    chunk.set_name(name);
    chunk.set_type("f32");
    chunk.set_data("1234");
    chunk.set_last(last);
  }
  Status dump(std::uint64_t step, const std::string& tensor, bool last = true) {
    proto::ReportItem item;
    item.mutable_dumped()->set_step(step);
    fill(*item.mutable_dumped()->mutable_chunk(), tensor, last);
    return results_.take(item);
  }
  Status weight(const std::string& name, bool last = true) {
    proto::ReportItem item;
    fill(*item.mutable_weights(), name, last);
    return results_.take(item);
  }
  Status end_step(std::uint64_t step) {
    proto::ReportItem item;
    item.mutable_step()->set_step(step);
    return results_.take(item);
  }
  Status profile() {
    proto::ReportItem item;
    item.mutable_profile();
    return results_.take(item);
  }

  /// Ends the report and waits until all files are on the disk or cannot be saved.
  Status finish() {
    POPRUN_TRY(results_.finish());
    while (results_.reported() && !results_.complete() && !results_.save_failure()) {
      (void)results_.refresh(/*now=*/0);
      std::this_thread::yield();
    }
    return results_.save_failure() ? tl::unexpected<Error>{*results_.save_failure()} : Status{};
  }

  testing::TemporaryFolder folder_;
  proto::RunConfig config_ = config_with_dumps();
  DiskThread disk_;
  JobResults results_{disk_, folder_.path(), config_};
};

TEST_F(JobResultsTest, AreThereOnceTheReportIsOver) {
  ASSERT_TRUE(weight("w"));
  ASSERT_TRUE(profile());
  EXPECT_FALSE(has("weights.safetensors"));
  EXPECT_FALSE(results_.complete());

  ASSERT_TRUE(finish());

  EXPECT_TRUE(has("weights.safetensors"));
  EXPECT_TRUE(has("profile.json"));
  EXPECT_TRUE(results_.complete());
}

TEST_F(JobResultsTest, OfAnAttemptThatWasReplacedAreNotWritten) {
  results_.fence([]() -> Status { return fail(ErrorCode::kUsage, "a later job has taken over this folder"); });
  ASSERT_TRUE(weight("w"));
  ASSERT_TRUE(profile());

  EXPECT_THAT(finish().error().message, HasSubstr("taken over"));

  EXPECT_FALSE(has("weights.safetensors"));
}

TEST_F(JobResultsTest, OfAnEarlierRunStayUntilTheFirstNewOne) {
  (void)folder_.write("weights.safetensors", "old");
  proto::ReportItem shape;
  shape.mutable_shape();
  ASSERT_TRUE(results_.take(shape));
  EXPECT_EQ(folder_.read("weights.safetensors"), "old");

  ASSERT_TRUE(end_step(1));
  EXPECT_FALSE(has("weights.safetensors"));

  ASSERT_TRUE(weight("w"));
  ASSERT_TRUE(profile());
  ASSERT_TRUE(finish());
  EXPECT_TRUE(has("weights.safetensors"));
}

TEST_F(JobResultsTest, AreWrittenAlsoWhereTheirFolderWasRemoved) {
  ASSERT_TRUE(end_step(1));
  ASSERT_TRUE(weight("w"));
  ASSERT_TRUE(profile());
  std::filesystem::remove_all(folder_.path());

  ASSERT_TRUE(finish());

  EXPECT_TRUE(has("weights.safetensors"));
  EXPECT_TRUE(has("profile.json"));
}

TEST_F(JobResultsTest, ThatTheDiskCannotTakeAreRefusedBeforeTheFirstStep) {
  proto::ReportItem item;
  item.mutable_shape()->set_parameter_count(std::uint64_t{1} << 60);

  const Status taken = results_.take(item);

  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kInfrastructure);
  EXPECT_THAT(taken.error().message, HasSubstr("the weights need 4,398,046,511,104.0 MiB, but the folder's disk has "));
  config_.set_inference(true);
  EXPECT_TRUE(results_.take(item));
}

TEST_F(JobResultsTest, ThatGoOnFromACheckpointForReadingOnlyCanGrow) {
  namespace fs = std::filesystem;
  (void)folder_.write("ck/step-2/metrics.csv", "header\n1\n2\n");
  const fs::path checkpoint = folder_.path() / "ck/step-2";
  fs::permissions(checkpoint / "metrics.csv", fs::perms::owner_read | fs::perms::others_read);

  results_.go_on_from(checkpoint, 2);
  ASSERT_TRUE(end_step(3));
  ASSERT_TRUE(results_.refresh(/*now=*/0));

  EXPECT_EQ(fs::status(results_.path("metrics.csv")).permissions(),
            fs::perms::owner_read | fs::perms::owner_write | fs::perms::others_read);
  EXPECT_THAT(folder_.read("metrics.csv"), HasSubstr("header\n1\n2\n3,"));
}

TEST_F(JobResultsTest, OfAReportThatBrokeOffAreNotWritten) {
  ASSERT_TRUE(weight("w"));

  ASSERT_TRUE(finish());

  EXPECT_FALSE(has("weights.safetensors"));
  EXPECT_FALSE(results_.complete());
}

TEST_F(JobResultsTest, AwaitDumpsUntilTheLastOfThemIsThere) {
  ASSERT_TRUE(dump(1, "w"));
  ASSERT_TRUE(end_step(1));
  EXPECT_TRUE(results_.awaits_dumps(3));

  ASSERT_TRUE(dump(3, "w"));
  ASSERT_TRUE(end_step(3));

  EXPECT_FALSE(results_.awaits_dumps(3));
}

TEST_F(JobResultsTest, AwaitNoDumpsOfLaterSteps) {
  ASSERT_TRUE(dump(1, "w"));
  ASSERT_TRUE(end_step(1));

  EXPECT_FALSE(results_.awaits_dumps(2));
}

TEST_F(JobResultsTest, AwaitNoDumpsOfAReportThatIsOver) {
  ASSERT_TRUE(dump(1, "w"));

  ASSERT_TRUE(finish());

  EXPECT_FALSE(results_.awaits_dumps(3));
}

TEST_F(JobResultsTest, AreNotCompleteWithHalfAWeight) {
  ASSERT_TRUE(weight("w", /*last=*/false));
  ASSERT_TRUE(profile());

  EXPECT_EQ(finish().error().code, ErrorCode::kBug);

  EXPECT_FALSE(results_.reported());
  EXPECT_FALSE(has("profile.json"));
  EXPECT_FALSE(results_.complete());
}

TEST_F(JobResultsTest, OfInferenceCountTheItemsWritten) {
  config_.set_inference(true);
  EXPECT_EQ(results_.items_written(), 0U);
  proto::ReportItem item;
  item.mutable_output()->set_type("f32");
  item.mutable_output()->add_shape(2);
  item.mutable_output()->set_offset(4);
  item.mutable_output()->set_data("1234");
  ASSERT_TRUE(results_.take(item));
  EXPECT_EQ(results_.items_written(), 1U);
  item.mutable_output()->set_offset(0);
  ASSERT_TRUE(results_.take(item));
  ASSERT_TRUE(profile());
  EXPECT_FALSE(has("outputs.npy"));

  ASSERT_TRUE(finish());

  EXPECT_TRUE(has("outputs.npy"));
  EXPECT_FALSE(has("weights.safetensors"));
}

TEST_F(JobResultsTest, OfInferenceWithoutOutputsAreABug) {
  config_.set_inference(true);
  ASSERT_TRUE(profile());
  EXPECT_EQ(finish().error().message, "no outputs arrived");
}

TEST_F(JobResultsTest, OfAFewProfiledStepsAreMetricsAlone) {
  config_.mutable_profile()->set_steps(1);
  ASSERT_TRUE(weight("w"));
  ASSERT_TRUE(end_step(1));
  ASSERT_TRUE(profile());

  ASSERT_TRUE(finish());

  EXPECT_TRUE(has("metrics.csv"));
  EXPECT_FALSE(has("weights.safetensors"));
  EXPECT_FALSE(has("profile.json")) << "the launcher has more to say in it";
}

TEST_F(JobResultsTest, HaveMetricsWithOneHeader) {
  ASSERT_TRUE(results_.refresh(0));
  EXPECT_FALSE(has("metrics.csv"));
  ASSERT_TRUE(end_step(1));
  ASSERT_TRUE(end_step(2));
  ASSERT_TRUE(results_.refresh(0));
  EXPECT_EQ(folder_.read("metrics.csv"), metrics_header() + "1,0,train,0,0,0,0\n2,0,train,0,0,0,0\n");
}

TEST_F(JobResultsTest, HaveADumpAsSoonAsItsStepIsOver) {
  ASSERT_TRUE(dump(1, "a"));
  ASSERT_TRUE(dump(1, "b"));
  EXPECT_FALSE(has("dump-step-1.safetensors"));
  ASSERT_TRUE(end_step(1));
  ASSERT_TRUE(dump(3, "a"));
  ASSERT_TRUE(end_step(3));

  const auto tensors = read_safetensors(results_.path("dump-step-1.safetensors"));
  ASSERT_TRUE(tensors);
  EXPECT_EQ(tensors->size(), 2U);
  EXPECT_TRUE(has("dump-step-3.safetensors"));
  EXPECT_THAT(results_.settle_dumps(/*ended_after=*/3), IsEmpty());
}

TEST_F(JobResultsTest, KeepTheWholeTensorsOfAStepThatBrokeOff) {
  ASSERT_TRUE(dump(1, "a"));
  ASSERT_TRUE(dump(1, "b", /*last=*/false));

  EXPECT_THAT(results_.settle_dumps(/*ended_after=*/0),
              ElementsAre("dump-step-1.safetensors contains only what step 1 computed before the job ended: 1 tensor",
                          "report.dump-tensors: the job ended after step 0, so there is no dump of step "
                          "3"));

  const auto tensors = read_safetensors(results_.path("dump-step-1.safetensors"));
  ASSERT_TRUE(tensors);
  EXPECT_EQ(tensors->size(), 1U);
}

TEST_F(JobResultsTest, AreTriedAgainWhereTheyCannotBeWritten) {
  ASSERT_TRUE(weight("w"));
  ASSERT_TRUE(profile());
  std::filesystem::create_directories(folder_.path() / "weights.safetensors" / "in the way");
  const Status first = finish();
  ASSERT_FALSE(first);
  EXPECT_THAT(first.error().message, HasSubstr("weights.safetensors cannot be written: "));
  EXPECT_FALSE(has("profile.json")) << "weights come first";

  std::filesystem::remove_all(folder_.path() / "weights.safetensors");
  for (double now = 1; !results_.complete(); now += 1) {
    ASSERT_TRUE(results_.refresh(now));
    std::this_thread::yield();
  }
  EXPECT_FALSE(results_.save_failure());
  EXPECT_TRUE(has("weights.safetensors"));
  EXPECT_TRUE(has("profile.json"));
}

TEST_F(JobResultsTest, OfDumpsAreTriedAgainWhereTheyCannotBeWritten) {
  std::filesystem::create_directories(folder_.path() / "dump-step-1.safetensors" / "in the way");
  ASSERT_TRUE(dump(1, "a"));
  ASSERT_TRUE(end_step(1));
  EXPECT_FALSE(results_.refresh(10));
  EXPECT_TRUE(results_.refresh(10.5)) << "not ten times a second";
  std::filesystem::remove_all(folder_.path() / "dump-step-1.safetensors");

  ASSERT_TRUE(results_.refresh(11));

  EXPECT_TRUE(read_safetensors(results_.path("dump-step-1.safetensors")));
  EXPECT_FALSE(results_.awaits_dumps(2));
}

TEST_F(JobResultsTest, DoNotNameTheDumpsOfAJobThatNeverRan) {
  EXPECT_THAT(results_.settle_dumps(std::nullopt), IsEmpty());
}

TEST_F(JobResultsTest, OfWeightsAreNoMoreThanTheJobsShapeAnnounced) {
  proto::ReportItem shape;
  shape.mutable_shape()->set_parameter_count(1 << 20);
  ASSERT_TRUE(results_.take(shape));
  proto::ReportItem piece;
  fill(*piece.mutable_weights(), "w", /*last=*/false);
  piece.mutable_weights()->set_data(std::string(1 << 20, 'x'));
  for (int mebibyte = 0; mebibyte < 71; ++mebibyte) {
    ASSERT_TRUE(results_.take(piece));
  }

  const Status refused = results_.take(piece);

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBug);
  EXPECT_EQ(refused.error().message, "weights: more than 75497472 B arrived for a model of 1048576 parameters");
}

TEST_F(JobResultsTest, TakeNoDumpThatNobodyAskedFor) {
  ASSERT_TRUE(dump(1, "w"));
  const Status refused = dump(2, "w");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBug);
  EXPECT_EQ(refused.error().message, "a dump of step 2 arrived, which report.dump-tensors did not request");
}

/// A check of two runs writes to a folder that contains the results of an earlier job and check.
TEST(CheckResults, ReplaceThoseOfAnEarlierCheckOnlyWhenAllRunsAreIn) {
  const testing::TemporaryFolder folder;
  const auto path = [&](const char* name) { return std::filesystem::path(folder.path()) / name; };
  for (const char* name : {"check.json", "failure.txt", "metrics.csv"}) {
    std::ofstream(path(name)) << "earlier";
  }
  proto::RunConfig config;
  config.mutable_check()->set_steps(1);
  DiskThread disk;
  JobResults results(disk, folder.path(), config);
  proto::ReportItem plan;
  plan.mutable_check_plan()->set_runs(2);
  proto::ReportItem run;
  run.mutable_checked_run()->set_verdict(proto::CheckedRun::EQUAL);

  ASSERT_TRUE(results.take(plan));
  ASSERT_TRUE(results.take(run));
  ASSERT_TRUE(results.finish());
  EXPECT_FALSE(results.reported());
  EXPECT_EQ(std::filesystem::file_size(path("check.json")), 7U);

  ASSERT_TRUE(results.take(run));
  ASSERT_TRUE(results.finish());
  while (!results.complete() && !results.save_failure()) {
    (void)results.refresh(/*now=*/0);
    std::this_thread::yield();
  }
  EXPECT_GT(std::filesystem::file_size(path("check.json")), 7U);
  std::ifstream written(path("check.json"));
  const std::string text{std::istreambuf_iterator<char>(written), {}};
  EXPECT_NE(text.find("\"version\""), std::string::npos);
  EXPECT_NE(text.find(POPRUN_VERSION), std::string::npos);
  EXPECT_FALSE(results.take(run)) << "a third one";
  EXPECT_EQ(std::filesystem::file_size(path("failure.txt")), 7U);
  EXPECT_EQ(std::filesystem::file_size(path("metrics.csv")), 7U);
}

}  // namespace
}  // namespace poprun::launcher
