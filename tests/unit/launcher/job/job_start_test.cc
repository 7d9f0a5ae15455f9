#include <gmock/gmock.h>

#include "launcher/job/job.h"

namespace poprun::launcher {
namespace {

using ::testing::ElementsAre;

/// Returns the reply to two instances on hosts a and b, for a dataset with `test_items` test items.
proto::JoinReply reply_with(std::uint64_t test_items) {
  Options options;
  options.config.mutable_training()->set_evaluate(true);
  options.hostio.timeout_seconds = 7;
  options.timeouts.heartbeat_interval_seconds = 0.5;
  options.timeouts.collective_seconds = 90;
  Placement placement;
  placement.num_replicas = 2;
  placement.num_instances = 2;
  placement.hosts = {"a", "b"};
  placement.instance_host = {0, 1};
  ServedDataset served{"a:5000", {}};
  served.dataset.set_test_items(test_items);
  return join_reply(options, placement, served, std::nullopt);
}

TEST(JoinReply, TellsWhereInstancesAndTheDataServerAre) {
  const proto::JoinReply reply = reply_with(10);
  EXPECT_THAT(reply.config().topology().instance_host(), ElementsAre("a", "b"));
  EXPECT_EQ(reply.hostio_address(), "a:5000");
  EXPECT_EQ(reply.dataset().test_items(), 10U);
}

TEST(JoinReply, TellsTimesInTheirUnits) {
  const proto::JoinReply reply = reply_with(10);
  EXPECT_EQ(reply.hostio_timeout_seconds(), 7U);
  EXPECT_EQ(reply.heartbeat_interval_ms(), 500U);
  EXPECT_EQ(reply.collective_timeout_seconds(), 90U);
}

TEST(JoinReply, EvaluatesNothingWithoutTestData) {
  EXPECT_TRUE(reply_with(10).config().training().evaluate());
  EXPECT_FALSE(reply_with(0).config().training().evaluate());
}

}  // namespace
}  // namespace poprun::launcher
