#include "launcher/metrics/job_status.h"

#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "launcher/metrics/live_page.h"
#include "launcher/metrics/training_history.h"

namespace poprun::launcher::job_status_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

proto::ReportItem step(std::uint64_t number, double loss = 1) {
  proto::ReportItem item;
  item.mutable_step()->set_step(number);
  item.mutable_step()->set_loss(loss);
  item.mutable_step()->set_accuracy(-1);
  item.mutable_step()->set_learning_rate(0.5);
  return item;
}

std::vector<std::uint64_t> steps_of(const Curve& curve) {
  std::vector<std::uint64_t> steps;
  for (const Curve::Point& point : curve.points()) {
    steps.push_back(point.step);
  }
  return steps;
}

TEST(Curve, KeepsAllPointsOfAShortJob) {
  Curve curve;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    curve.add({.step = step});
  }
  EXPECT_THAT(steps_of(curve), ElementsAre(1, 2, 3));
}

TEST(Curve, KeepsEqualDistancesAndTheLatestPointOfALongJob) {
  Curve curve;
  for (std::uint64_t step = 1; step <= 100'003; ++step) {
    curve.add({.step = step});
    ASSERT_LE(curve.points().size(), Curve::kPointsMax);
    ASSERT_EQ(curve.points().back().step, step);
  }
  const std::vector<std::uint64_t> steps = steps_of(curve);
  EXPECT_GE(steps.size(), Curve::kPointsMax / 2);
  EXPECT_EQ(steps.front(), 1U);
  for (std::size_t k = 2; k + 1 < steps.size(); ++k) {
    ASSERT_EQ(steps[k] - steps[k - 1], steps[1] - steps[0]) << k;
  }
}

TEST(Curve, ForgetsTheStepsThatARestartedJobRepeats) {
  Curve curve;
  for (const std::uint64_t step : {10U, 20U, 30U, 40U, 25U, 30U}) {
    curve.add({.step = step, .loss = step == 30 ? 0.5 : 1});
  }
  EXPECT_THAT(steps_of(curve), ElementsAre(10, 20, 25, 30));
}

TEST(TrainingHistory, CountsRepeatedStepsAgain) {
  TrainingHistory history;
  proto::ReportItem shape;
  shape.mutable_shape()->set_samples_per_step(32);
  history.take(shape);
  for (const std::uint64_t number : {1U, 2U, 3U}) {
    history.take(step(number));
  }
  history.take(shape);  // The job is restarted.
  history.take(step(3));
  EXPECT_EQ(history.steps(), 4U);
  EXPECT_EQ(history.samples(), 128U);
  EXPECT_EQ(history.learning_rate(), 0.5);
  EXPECT_THAT(steps_of(history.training()), ElementsAre(1, 2, 3));
}

/// The keys of the status, each with the types that its value may have.
const std::map<std::string, std::string>& schema() {
  static const std::map<std::string, std::string> kSchema = {{"version", "string"},
                                                             {"model", "string"},
                                                             {"phase", "string"},
                                                             {"time", "number"},
                                                             {"startTime", "number"},
                                                             {"instances", "number"},
                                                             {"instancesJoined", "number"},
                                                             {"heartbeatAgeSeconds", "number or null"},
                                                             {"restarts", "number"},
                                                             {"step", "number or null"},
                                                             {"lastStep", "number or null"},
                                                             {"epoch", "number or null"},
                                                             {"items", "number or null"},
                                                             {"samplesPerSecond", "number or null"},
                                                             {"etaSeconds", "number or null"},
                                                             {"loss", "number or null"},
                                                             {"accuracy", "number or null"},
                                                             {"learningRate", "number or null"},
                                                             {"evaluation", "object or null"},
                                                             {"checkpoint", "object or null"},
                                                             {"goodput", "object or null"},
                                                             {"slowest", "object or null"},
                                                             {"medianStepSeconds", "number or null"},
                                                             {"replicas", "array"},
                                                             {"curves", "object"},
                                                             {"messages", "array"}};
  return kSchema;
}

void expect_schema(const Json& status) {
  EXPECT_EQ(status.size(), schema().size());
  for (const auto& [key, types] : schema()) {
    ASSERT_TRUE(status.contains(key)) << key;
    EXPECT_THAT(types, HasSubstr(status[key].type_name())) << key;
  }
}

TEST(StatusJson, HasEveryKeyBeforeAnythingIsKnown) {
  JobStatus status;
  status.replicas.resize(2);
  const Json json = Json::parse(status_json(status));
  expect_schema(json);
  EXPECT_EQ(json["phase"], "starting");
  EXPECT_TRUE(json["step"].is_null());
  EXPECT_EQ(json["replicas"][1].dump(), R"({"host":"","step":0,"activity":"","stepSeconds":null})");
  EXPECT_EQ(json["curves"].dump(), R"({"training":{"steps":[],"loss":[],"accuracy":[]},)"
                                   R"("evaluation":{"steps":[],"loss":[],"accuracy":[]}})");
}

TEST(StatusJson, GivesEachValue) {
  TrainingHistory history;
  history.take(step(1, 2.5));
  history.take(step(2, std::numeric_limits<double>::quiet_NaN()));
  JobStatus status;
  status.history = &history;
  status.metrics.step = 2;
  status.metrics.phase = JobPhase::kRunning;
  status.metrics.evaluation = {.loss = 0.5, .accuracy = std::nullopt};
  status.metrics.checkpoint = {.step = 1, .age_seconds = 3.5};
  status.metrics.slowest = {.replica = 1, .step_seconds = 4, .others_step_seconds = 2};
  status.metrics.goodput.emplace().set_step_seconds(7);
  status.pending_seconds = 1.5;
  status.replicas = {{.host = "a", .step = 2, .activity = "forward", .step_seconds = 2},
                     {.host = "b", .step = 2, .activity = "all-reduce", .step_seconds = 4},
                     {.host = "b", .step = 2, .activity = "all-reduce", .step_seconds = 2}};
  status.messages = {{.time = 5, .text = "note: </script><b>"}};
  const Json json = Json::parse(status_json(status));
  expect_schema(json);
  EXPECT_EQ(json["phase"], "running");
  EXPECT_EQ(json["step"], 2);
  EXPECT_EQ(json["evaluation"].dump(), R"({"loss":0.5,"accuracy":null})");
  EXPECT_EQ(json["checkpoint"].dump(), R"({"step":1,"ageSeconds":3.5})");
  EXPECT_EQ(json["slowest"].dump(), R"({"replica":1,"stepSeconds":4.0,"othersStepSeconds":2.0})");
  EXPECT_EQ(json["goodput"].dump(),
            R"({"ratio":0.0,"totalSeconds":0.0,"pendingSeconds":1.5,"redoneSteps":0,"seconds":{"step":7.0,)"
            R"("evaluation":0.0,"start":0.0,"data":0.0,"saving":0.0,"redone":0.0,"down":0.0}})");
  EXPECT_EQ(json["medianStepSeconds"], 2.0);
  EXPECT_EQ(json["replicas"][1]["stepSeconds"], 4.0);
  EXPECT_EQ(json["curves"]["training"].dump(), R"({"steps":[1,2],"loss":[2.5,null],"accuracy":[null,null]})");
  EXPECT_EQ(json["messages"][0].dump(), R"({"time":5.0,"text":"note: </script><b>"})");
}

TEST(StatusJson, ReplacesTextThatIsNotUtf8) {
  JobStatus status;
  status.messages = {{.time = 0, .text = "a\xff"}};
  EXPECT_EQ(Json::parse(status_json(status))["messages"][0]["text"], "a\xef\xbf\xbd");
}

TEST(LivePage, IsOneDocumentThatLoadsNothingButItsData) {
  const std::string page = live_page();
  EXPECT_THAT(page, HasSubstr("status.json"));
  for (const char* never : {"http://", "https://", "src=", "innerHTML", "outerHTML", "insertAdjacent", "eval(",
                            "document.write", "/*page."}) {
    const std::string allowed = "http://www.w3.org/2000/svg";  // A name, which browsers never load.
    std::string rest = page;
    rest.erase(rest.find(allowed), allowed.size());
    EXPECT_THAT(rest, Not(HasSubstr(never)));
  }
}

}  // namespace
}  // namespace poprun::launcher::job_status_test
