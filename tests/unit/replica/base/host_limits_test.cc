#include "replica/base/host_limits.h"

#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include "tests/unit/temporary_folder.h"

namespace poprun {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

/// A folder with the files of /proc and /sys that a case needs.
class HostMemoryTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const { (void)folder_.write(path.substr(1), text); }

  /// Writes the files of a machine with 24 GiB of free memory.
  void machine() const {
    write("/proc/meminfo",
          "MemTotal:       33554432 kB\nMemFree:         1048576 kB\n"
          "MemAvailable:   20971520 kB\nSwapFree:        4194304 kB\n");
  }

  testing::TemporaryFolder folder_;
  std::string root_ = folder_.path();
};

TEST_F(HostMemoryTest, IsUnknownWhereNobodyTells) {
  EXPECT_FALSE(free_memory(root_));
}

TEST_F(HostMemoryTest, IsWhatTheMachineHasWithItsSwap) {
  machine();
  ASSERT_TRUE(free_memory(root_));
  EXPECT_EQ(free_memory(root_)->bytes, Bytes{24 * kGiB});
  EXPECT_THAT(free_memory(root_)->source, HasSubstr("MemAvailable"));
}

// The process's group has no limit. The parent group has 8 GiB, of which 5 GiB are used, including 2 GiB of caches.
TEST_F(HostMemoryTest, IsWhatTheTightestGroupOfVersion2Leaves) {
  machine();
  write("/proc/self/cgroup", "0::/pod/container\n");
  write("/sys/fs/cgroup/pod/container/memory.max", "max\n");
  write("/sys/fs/cgroup/pod/container/memory.current", std::to_string(kGiB) + "\n");
  write("/sys/fs/cgroup/pod/memory.max", std::to_string(8 * kGiB) + "\n");
  write("/sys/fs/cgroup/pod/memory.current", std::to_string(5 * kGiB) + "\n");
  write("/sys/fs/cgroup/pod/memory.stat", "anon 1\ninactive_file " + std::to_string(2 * kGiB) + "\n");

  EXPECT_EQ(free_memory(root_)->bytes, Bytes{5 * kGiB});
  EXPECT_EQ(free_memory(root_)->source, "memory.max of control group /pod");
}

TEST_F(HostMemoryTest, IsWhatAGroupOfVersion1Leaves) {
  machine();
  write("/proc/self/cgroup", "5:devices:/x\n4:memory:/job\n0::/\n");
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(3 * kGiB) + "\n");
  write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(kGiB) + "\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(9 * kGiB) + "\n");

  EXPECT_EQ(free_memory(root_)->bytes, Bytes{2 * kGiB});
}

TEST_F(HostMemoryTest, IsFoundInAContainerWhoseGroupIsTheRoot) {
  machine();
  write("/proc/self/cgroup", "0::/kubepods/not-visible-here\n");
  write("/sys/fs/cgroup/memory.max", std::to_string(6 * kGiB) + "\n");
  write("/sys/fs/cgroup/memory.current", std::to_string(7 * kGiB) + "\n");

  EXPECT_EQ(free_memory(root_)->bytes, Bytes{0});
}

TEST(HostMemory, IsWhatThisMachineSays) {
  const auto memory = free_memory();
  ASSERT_TRUE(memory);
  EXPECT_GT(memory->bytes, Bytes{0});
}

TEST(LongTurns, AreForMoreReplicasThanCoresAndKeepTheNiceValue) {
  const auto policy_with = [](std::uint32_t replicas) {
    int policy = -1;
    std::thread([&] {
      setpriority(PRIO_PROCESS, 0, 3);
      run_in_long_turns(replicas);
      policy = sched_getscheduler(0);
      EXPECT_EQ(getpriority(PRIO_PROCESS, 0), 3);
    }).join();
    return policy;
  };

  EXPECT_EQ(policy_with(std::thread::hardware_concurrency()), SCHED_OTHER);
  EXPECT_EQ(policy_with(std::thread::hardware_concurrency() + 1), SCHED_BATCH);
}

}  // namespace
}  // namespace poprun
