#include "launcher/report/report_file.h"

#include <tuple>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/temporary_folder.h"

namespace poprun::launcher {
namespace {

TEST(ReportedJob, HasWhatItsFolderContains) {
  const testing::TemporaryFolder folder;
  std::ignore = folder.write("metrics.csv", "step,loss\n1,2.5\n2,2.25\n3,");
  std::ignore = folder.write("profile.json", R"({"version": "0.1.0", "parameterCount": "7"})");
  std::ignore = folder.write("failure.txt", "replica 3 was killed\n");

  const Result<ReportedJob> job = read_reported_job(folder.path().string() + "/");

  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->name, folder.path().filename());
  EXPECT_EQ(job->metrics, "step,loss\n1,2.5\n2,2.25\n3,");
  EXPECT_EQ(job->profile->parameter_count(), 7);
  EXPECT_EQ(job->failure, "replica 3 was killed\n");
  EXPECT_EQ(job->replicas, "");
}

TEST(ReportedJob, OfAFolderWithoutResultsIsAnErrorThatNamesTheFolder) {
  const testing::TemporaryFolder folder;

  const Result<ReportedJob> job = read_reported_job(folder.path().string());

  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code, ErrorCode::kData);
  EXPECT_NE(job.error().message.find(folder.path().string()), std::string::npos);
}

TEST(ReportedJob, WithABrokenProfileIsAnErrorThatNamesTheFile) {
  const testing::TemporaryFolder folder;
  std::ignore = folder.write("profile.json", "{");

  const Result<ReportedJob> job = read_reported_job(folder.path().string());

  ASSERT_FALSE(job);
  EXPECT_NE(job.error().message.find("profile.json"), std::string::npos);
}

TEST(PageData, HoldsTablesByColumnWithoutAnIncompleteLastLine) {
  ReportedJob job;
  job.name = "</script> & \"quotes\"";
  job.metrics = "step,loss\n1,2.5\n2,2.25\n3,";

  const Result<std::string> data = page_data({job});

  ASSERT_TRUE(data) << data.error().message;
  const auto json = nlohmann::json::parse(*data);
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["jobs"][0]["name"], "</script> & \"quotes\"");
  EXPECT_EQ(json["jobs"][0]["metrics"]["step"], (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(json["jobs"][0]["metrics"]["loss"], (std::vector<std::string>{"2.5", "2.25"}));
  EXPECT_FALSE(json["jobs"][0].contains("profile"));
}

TEST(PageData, HoldsAProfileWithEnumsAsNumbersAndLargeCountsAsNumbers) {
  ReportedJob job;
  job.profile.emplace();
  job.profile->set_parameter_count(std::uint64_t{1} << 40);
  job.profile->mutable_report()->mutable_timeline()->add_doing(proto::DOING_LINK);

  const auto json = nlohmann::json::parse(*page_data({job}));

  EXPECT_EQ(json["jobs"][0]["profile"]["parameterCount"], std::uint64_t{1} << 40);
  EXPECT_EQ(json["jobs"][0]["profile"]["report"]["timeline"]["doing"], (std::vector<int>{3}));
}

}  // namespace
}  // namespace poprun::launcher
