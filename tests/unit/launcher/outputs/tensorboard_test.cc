#include "launcher/outputs/tensorboard.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include <gmock/gmock.h>

#include "launcher/outputs/read_file.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::launcher::tensorboard_test {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::StartsWith;

// The examples of RFC 3720, appendix B.4.
TEST(Crc32c, IsThatOfTheRfc) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string ascending;
  for (char c = 0; c < 32; ++c) {
    ascending += c;
  }
  EXPECT_EQ(crc32c(ascending), 0x46dd794eU);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
}

TEST(TfRecord, HasBothLengthsAndChecksums) {
  // The bytes were computed bit by bit, with a separate program.
  EXPECT_EQ(tf_record("abc"), std::string("\x03\x00\x00\x00\x00\x00\x00\x00\xb0\x99\x49\x0e"
                                          "abc"
                                          "\x6e\x57\xf1\x21",
                                          19));
  // The first record of TensorFlow's own event files has 24 bytes and begins in this way.
  EXPECT_EQ(tf_record(std::string(24, 'x')).substr(0, 12),
            std::string("\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f\x4b\x22", 12));
}
class TensorboardFileTest : public ::testing::Test {
 protected:
  static proto::ReportItem shape() {
    proto::ReportItem item;
    item.mutable_shape()->set_samples_per_step(64);
    return item;
  }

  static proto::ReportItem step(std::uint64_t number, double wall, double device) {
    proto::ReportItem item;
    item.mutable_step()->set_step(number);
    item.mutable_step()->set_loss(0.5);
    item.mutable_step()->set_accuracy(-1);
    item.mutable_step()->set_learning_rate(0.125);
    item.mutable_step()->set_device_seconds(device);
    item.mutable_step()->mutable_elapsed()->set_wall_seconds(wall);
    return item;
  }

  static proto::ReportItem evaluation(std::uint64_t after, double wall, double device) {
    proto::ReportItem item;
    item.mutable_evaluation()->set_step(after);
    item.mutable_evaluation()->set_loss(0.25);
    item.mutable_evaluation()->set_accuracy(0.75);
    item.mutable_evaluation()->set_device_seconds(device);
    item.mutable_evaluation()->mutable_elapsed()->set_wall_seconds(wall);
    return item;
  }

  /// Writes the items to the only file of the folder, and returns its events.
  std::vector<proto::TensorboardEvent> written(std::uint64_t resumed_step,
                                               const std::vector<proto::ReportItem>& items) {
    DiskThread disk;
    TensorboardFile file(disk, {.folder = folder_.path(), .name_end = "host.7", .resumed_step = resumed_step});
    double time = 1'700'000'000;
    for (const proto::ReportItem& item : items) {
      file.take(item, time);
      EXPECT_TRUE(file.flush());
      time += 1;
    }
    file.hand_over();
    disk.post([]() -> Status { return {}; }).wait();
    std::vector<proto::TensorboardEvent> events;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      name_ = entry.path().filename();
      const std::string bytes = read_file(entry.path(), 1 << 20).value();
      for (std::size_t at = 0; at < bytes.size();) {
        std::uint64_t size = 0;
        std::memcpy(&size, bytes.data() + at, sizeof size);
        const std::string data = bytes.substr(at + 12, size);
        EXPECT_EQ(bytes.substr(at, size + 16), tf_record(data));
        EXPECT_TRUE(events.emplace_back().ParseFromString(data));
        at += size + 16;
      }
    }
    return events;
  }

  static std::map<std::string, float> scalars(const proto::TensorboardEvent& event) {
    std::map<std::string, float> scalars;
    for (const auto& value : event.summary().value()) {
      EXPECT_EQ(value.value_case(), proto::TensorboardSummary::Value::kSimpleValue) << value.tag();
      scalars[value.tag()] = value.simple_value();
    }
    return scalars;
  }

  testing::TemporaryFolder folder_;
  std::string name_;
};

using Scalars = std::map<std::string, float>;

TEST_F(TensorboardFileTest, HasTheScalarsOfEachStepAndEvaluation) {
  const auto events =
      written(0, {shape(), step(1, 2, 0.5), step(2, 2.5, 0.75), evaluation(2, 3.5, 2), step(3, 4, 2.25)});
  EXPECT_EQ(name_, "events.out.tfevents.1700000001.host.7");
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].session_log().status(), proto::TensorboardSession::START);
  EXPECT_EQ(events[1].step(), 0);
  EXPECT_EQ(events[2].step(), 1);
  EXPECT_EQ(events[2].wall_time(), 1'700'000'001);
  EXPECT_EQ(scalars(events[2]), (Scalars{{"training/loss", 0.5F},
                                         {"training/learning_rate", 0.125F},
                                         {"speed/samples_per_second", 32},
                                         {"speed/device_seconds_per_step", 0.5F}}));
  EXPECT_EQ(scalars(events[3]).at("speed/samples_per_second"), 128);
  EXPECT_EQ(scalars(events[4]), (Scalars{{"evaluation/loss", 0.25F}, {"evaluation/accuracy", 0.75F}}));
  EXPECT_EQ(events[4].step(), 2);
  EXPECT_EQ(scalars(events[5]).at("speed/samples_per_second"), 128) << "the evaluation's time does not count";
  EXPECT_EQ(scalars(events[5]).at("speed/device_seconds_per_step"), 0.25F);
}

TEST_F(TensorboardFileTest, PurgesTheStepsThatFollowTheCheckpoint) {
  const auto events = written(20, {shape(), step(21, 1, 7), step(22, 2, 7.5)});
  EXPECT_EQ(events[1].session_log().status(), proto::TensorboardSession::START);
  EXPECT_EQ(events[1].step(), 21);
  EXPECT_EQ(scalars(events[2]).count("speed/device_seconds_per_step"), 0U) << "unknown after a resume";
  EXPECT_EQ(scalars(events[3]).at("speed/device_seconds_per_step"), 0.5F);
}

TEST_F(TensorboardFileTest, WritesEvenANumberThatIsZero) {
  proto::ReportItem item = step(1, 1, 0);
  item.mutable_step()->set_loss(0);
  item.mutable_step()->set_accuracy(0);
  EXPECT_EQ(scalars(written(0, {item}).at(2)).size(), 5U);
}

TEST_F(TensorboardFileTest, IsNotCreatedByAJobThatNeverTrains) {
  EXPECT_TRUE(written(0, {shape()}).empty());
}

}  // namespace
}  // namespace poprun::launcher::tensorboard_test
