#include "replica/instance/process.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(HostMemory, ASharedFolderThatIsNotThereIsNotOurs) {
  EXPECT_TRUE(check_shared_folder("/nowhere/at/all", "node1", 64));
}

// So many processes need more space than any file system has.
TEST(HostMemory, RefusesAFolderThatIsTooSmall) {
  const Status refused = check_shared_folder("/", "node1", 1'000'000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kHostResources);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("processes on host node1 need"), HasSubstr(" in / for Open MPI, ")));
  EXPECT_TRUE(check_shared_folder("/", "node1", 1));
}

TEST(HostMemory, RefusesWhatDoesNotFitWithBothSizesAndARemedy) {
  const FreeMemory memory{Bytes{4 * kGiB}, "memory.max of control group /job"};

  EXPECT_TRUE(check_host_memory(memory, "node1", 4, Bytes{kGiB}, Bytes{0}));
  const Status refused = check_host_memory(memory, "node1", 5, Bytes{kGiB}, Bytes{0});

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kHostResources);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("5 replicas on host node1 need"), HasSubstr("5,368,709,120 B"),
                    HasSubstr("4,294,967,296 B"), HasSubstr("memory.max of control group /job"), HasSubstr("-H")));
  EXPECT_EQ(refused.error().facts.shortage, (Shortage{.needed = Bytes{5 * kGiB}, .had = Bytes{4 * kGiB}}));
}

TEST(HostMemory, CountsTheCopyOfACheckpoint) {
  const FreeMemory memory{Bytes{4 * kGiB}, "memory.max of control group /job"};

  EXPECT_TRUE(check_host_memory(memory, "node1", 3, Bytes{kGiB}, Bytes{kGiB}));
  const Status refused = check_host_memory(memory, "node1", 4, Bytes{kGiB}, Bytes{1});

  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("their tensors and a checkpoint"));
  EXPECT_EQ(refused.error().facts.shortage->needed, Bytes{4 * kGiB + 1});
}

}  // namespace
}  // namespace poprun
