#include "launcher/report/report_file.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() { fs::create_directories(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }

  void put(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  fs::path path_ = fs::path(::testing::TempDir()) /
                   ("report-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "-job");
};

TEST(ReportedJob, HasWhatItsFolderContains) {
  const Folder folder;
  folder.put("metrics.csv", "step,loss\n1,2.5\n2,2.25\n3,");
  folder.put("profile.json", R"({"version": "0.1.0", "parameterCount": "7"})");
  folder.put("failure.txt", "replica 3 was killed\n");

  const Result<ReportedJob> job = read_reported_job(folder.path() + "/");

  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->profile->parameter_count(), 7);
  EXPECT_EQ(job->failure, "replica 3 was killed\n");
  EXPECT_EQ(job->replicas, "");
}

TEST(ReportedJob, OfAFolderWithoutResultsIsAnErrorThatNamesTheFolder) {
  const Folder folder;

  const Result<ReportedJob> job = read_reported_job(folder.path());

  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code, ErrorCode::kData);
  EXPECT_NE(job.error().message.find(folder.path()), std::string::npos);
}

TEST(ReportedJob, WithABrokenProfileIsAnErrorThatNamesTheFile) {
  const Folder folder;
  folder.put("profile.json", "{");

  const Result<ReportedJob> job = read_reported_job(folder.path());

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
