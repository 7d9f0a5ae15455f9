#include "launcher/wire/bounds.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>

namespace poprun::launcher {
namespace {

using ::testing::HasSubstr;

TEST(Bounds, OfABeatAreThoseOfItsInstance) {
  const JobSize job{.instances = 4, .replicas_per_instance = 2};
  proto::Beat beat;
  beat.set_instance(1);
  beat.add_replicas()->set_replica(3);
  EXPECT_TRUE(check_bounds(beat, job));
  beat.mutable_replicas(0)->set_activity_seconds(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(check_bounds(beat, job));
  beat.mutable_replicas(0)->set_activity_seconds(-1);
  EXPECT_FALSE(check_bounds(beat, job));
  beat.mutable_replicas(0)->set_activity_seconds(0);
  beat.mutable_replicas(0)->set_activity(std::string(5000, 'x'));
  EXPECT_FALSE(check_bounds(beat, job));
  beat.mutable_replicas(0)->set_activity("");
  beat.mutable_replicas(0)->set_replica(4);
  EXPECT_THAT(check_bounds(beat, job).error().message, HasSubstr("does not belong to instance 1"));
  beat.clear_replicas();
  beat.set_instance(4);
  EXPECT_FALSE(check_bounds(beat, job));
}

TEST(Bounds, OfATensorAreElementsThatCanBeCounted) {
  proto::ReportItem item;
  item.mutable_output()->add_shape(std::int64_t{1} << 56);
  item.mutable_output()->add_shape(0);
  EXPECT_TRUE(check_bounds(item));
  item.mutable_output()->add_shape(256);  // 2^64 bytes overflow a 64-bit counter to 0.
  EXPECT_THAT(check_bounds(item).error().message, HasSubstr("a tensor [72057594037927936, 0, 256] has more than"));
}

TEST(Bounds, OfAPartOfACheckpointAre65536VariablesAndSlices) {
  const JobSize job{.instances = 1, .replicas_per_instance = 1};
  proto::StatePart part;
  for (int k = 0; k < 65'536; ++k) {
    part.add_variables();
    part.add_slices();
  }
  EXPECT_TRUE(check_bounds(part, job));
  part.add_slices();
  EXPECT_THAT(check_bounds(part, job).error().message,
              HasSubstr("slices of a part of a checkpoint: the limit is 65536, but the message contains 65537"));
  part.mutable_slices()->RemoveLast();
  part.add_variables();
  EXPECT_THAT(check_bounds(part, job).error().message,
              HasSubstr("variables of a checkpoint: the limit is 65536, but the message contains 65537"));
  part.mutable_variables()->RemoveLast();
  part.mutable_variables(0)->set_name(std::string(5000, 'x'));
  EXPECT_THAT(check_bounds(part, job).error().message, HasSubstr("bytes of a variable's name"));
}

}  // namespace
}  // namespace poprun::launcher
