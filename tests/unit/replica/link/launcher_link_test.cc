#include "replica/link/launcher_link.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include <gmock/gmock.h>

#include "replica/link/progress_board.h"

namespace poprun {
namespace {

using ::testing::HasSubstr;

TEST(CoordinatorClient, SaysWhereItFoundNobody) {
  CoordinatorClient client({"127.0.0.1:1", "", 0, 0, 1}, [] {});
  const auto joined = client.join(0.2);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ErrorCode::kUnreachable);
  EXPECT_EQ(joined.error().message, "could not connect to the launcher at 127.0.0.1:1 within 0.2 s");
  EXPECT_EQ(joined.error().facts.address, "127.0.0.1:1");
}

TEST(InstanceEnvironment, IsReadFromPoprunsVariables) {
  setenv("POPRUN_EMU_COORDINATOR", "h:1/12", 1);
  setenv("POPRUN_EMU_TOKEN", "t", 1);
  setenv("POPDIST_REPLICA_INDEX_OFFSET", "6", 1);
  setenv("POPDIST_NUM_LOCAL_REPLICAS", "2", 1);
  const auto environment = read_instance_environment();
  ASSERT_TRUE(environment);
  EXPECT_EQ(environment->coordinator, "h:1");
  EXPECT_EQ(environment->epoch, 12U);
  EXPECT_EQ(environment->instance, 3U);
  EXPECT_EQ(environment->first_replica, 6U);
  EXPECT_EQ(environment->local_replicas, 2U);

  setenv("POPDIST_NUM_LOCAL_REPLICAS", "four", 1);
  EXPECT_THAT(read_instance_environment().error().message, HasSubstr("POPDIST_NUM_LOCAL_REPLICAS is 'four'"));
  setenv("POPDIST_NUM_LOCAL_REPLICAS", "4", 1);
  EXPECT_THAT(read_instance_environment().error().message, HasSubstr("not a multiple"));
  unsetenv("POPRUN_EMU_COORDINATOR");
  EXPECT_EQ(read_instance_environment().error().code, ErrorCode::kUsage);
}

/// The launcher refuses heartbeats with a negative time.
TEST(ProgressBoard, TellsNoTimeBelowZeroHoweverOftenAReplicaWrites) {
  ProgressBoard board(0, 1);
  std::atomic<bool> ends = false;
  std::thread replica([&] {
    while (!ends) {
      board.write(ReplicaId{0}, 1, "computing");
      board.waits_for_data(ReplicaId{0}, true);
    }
  });
  double least = 0;
  for (int k = 0; k < 300'000; ++k) {
    const proto::ReplicaProgress progress = board.progress(ReplicaId{0});
    least = std::min({least, progress.activity_seconds(), progress.data_wait_seconds()});
  }
  ends = true;
  replica.join();
  EXPECT_EQ(least, 0);
}

}  // namespace
}  // namespace poprun
