#include "launcher/verdict/drain_point.h"

#include <gtest/gtest.h>

namespace poprun::launcher {
namespace {

proto::Beat beat(std::uint32_t instance, bool holds, std::initializer_list<std::uint64_t> parts) {
  proto::Beat beat;
  beat.set_instance(instance);
  beat.set_holds(holds);
  for (const std::uint64_t begun : parts) {
    beat.add_replicas()->set_parts(begun);
  }
  return beat;
}

TEST(DrainPoint, IsWhereTheReplicaThatIsFurthestIs) {
  DrainPoint point(2);
  point.beat(beat(0, true, {7, 9}));
  EXPECT_FALSE(point.last_part()) << "instance 1 may begin further parts";
  point.beat(beat(1, true, {8, 7}));
  EXPECT_EQ(point.last_part(), 9U);
}

TEST(DrainPoint, WaitsForBeatsThatHold) {
  DrainPoint point(1);
  point.beat(beat(0, false, {7}));
  EXPECT_FALSE(point.last_part());
  point.beat(beat(0, true, {8}));
  EXPECT_EQ(point.last_part(), 8U);
}

TEST(DrainPoint, DoesNotWaitForInstancesThatHaveLeft) {
  DrainPoint point(2);
  point.left(1);
  point.left(17);
  point.beat(beat(17, true, {99}));
  point.beat(beat(0, true, {3}));
  EXPECT_EQ(point.last_part(), 3U);
}

}  // namespace
}  // namespace poprun::launcher
