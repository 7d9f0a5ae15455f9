#include "collectives/session/session.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <latch>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace poprun::collectives {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A host with one folder for temporary files and another for shared memory.
class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "session_test.XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    place_ = {.base = folder_ / "tmp", .host = "node7", .shared_memory = folder_ / "shm"};
    fs::create_directories(place_.base);
    fs::create_directories(place_.shared_memory);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path file(const fs::path& path, const std::string& text = "") {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }

  /// Creates the session and shared memory of a daemon of family 2.
  void daemons_session(const fs::path& job) {
    file(job / fmt::format("ompi.node7.{}", geteuid()) / "jf.2" / "pmix_dstor" / "lock");
    file(place_.shared_memory / fmt::format("vader_segment.node7.{}.20001.0", geteuid()));
  }

  /// Creates the session and shared memory of an mpirun whose job 0 has the number 65536.
  void mpiruns_session(const fs::path& job) {
    const fs::path session = job / fmt::format("ompi.node7.{}", geteuid()) / "pid.17";
    file(session / "contact.txt", "65536.0;tcp://127.0.0.1:1\n17\n");
    file(place_.shared_memory / fmt::format("vader_segment.node7.{}.10001.0", geteuid()));
  }

  std::vector<std::string> names(const fs::path& folder) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder)) {
      found.push_back(entry.path().filename());
    }
    std::ranges::sort(found);
    return found;
  }

  fs::path folder_;
  SessionPlace place_;
};

TEST_F(SessionTest, FolderOfAJobStaysAsLongAsItsLockIsHeld) {
  auto job = JobFolder::make(place_);
  ASSERT_TRUE(job);
  mpiruns_session(job->path());
  remove_leftovers(place_);
  EXPECT_TRUE(fs::exists(job->path() / fmt::format("ompi.node7.{}", geteuid()) / "pid.17"));
  EXPECT_EQ(names(place_.shared_memory).size(), 1U);
}

TEST_F(SessionTest, FolderOfADeadJobIsRemovedWithItsSharedMemoryAndNothingElse) {
  const std::string other = fmt::format("vader_segment.node7.{}.30001.0", geteuid());
  file(place_.shared_memory / other);
  file(place_.base / "mine");
  mpiruns_session(JobFolder::make(place_)->path());  // The JobFolder is destroyed here, which releases the lock.
  remove_leftovers(place_);
  EXPECT_THAT(names(place_.base), ElementsAre("mine"));
  EXPECT_THAT(names(place_.shared_memory), ElementsAre(other));
}

TEST_F(SessionTest, SharedMemoryOfARunningJobIsRemovedAtItsEndAlsoIfMpirunForgotIt) {
  auto job = JobFolder::make(place_);
  ASSERT_TRUE(job);
  job->learn();  // Too early: no session exists yet.
  mpiruns_session(job->path());
  job->learn();
  fs::remove_all(job->path() / fmt::format("ompi.node7.{}", geteuid()));
  job->remove();
  EXPECT_THAT(names(place_.base), IsEmpty());
  EXPECT_THAT(names(place_.shared_memory), IsEmpty());
}

TEST_F(SessionTest, FolderOfADeadJobKeepsWhatIsAnotherHosts) {
  const fs::path job = JobFolder::make(place_)->path();
  const fs::path other = job / fmt::format("ompi.node8.{}", geteuid()) / "pid.17";
  file(other / "contact.txt");
  remove_leftovers(place_);
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(SessionTest, HostsThatShareAFolderRemoveTheirPartsOfADeadJobAtTheSameTime) {
  for (int round = 0; round < 300; ++round) {
    const fs::path job = JobFolder::make(place_)->path();
    std::vector<std::jthread> hosts;
    std::latch start(4);
    for (const char* host : {"node1", "node2", "node3", "node4"}) {
      file(job / fmt::format("ompi.{}.{}", host, geteuid()) / "pid.17" / "contact.txt");
      hosts.emplace_back([place = SessionPlace{place_.base, host, place_.shared_memory}, &start] {
        start.arrive_and_wait();
        remove_leftovers(place);
      });
    }
    hosts.clear();
    remove_leftovers(place_);  // Removes the empty folder, which the last host may have seen as not empty.
    ASSERT_THAT(names(place_.base), IsEmpty()) << "round " << round;
  }
}

TEST_F(SessionTest, JobsStartWhileOthersRemoveLeftovers) {
  std::vector<std::jthread> removers;
  for (int k = 0; k < 2; ++k) {
    removers.emplace_back([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        remove_leftovers(place_);
      }
    });
  }
  for (int k = 0; k < 3000; ++k) {
    auto job = JobFolder::make(place_);
    ASSERT_TRUE(job) << job.error().message;
    ASSERT_TRUE(fs::exists(job->path()));
    job->remove();
  }
}

TEST_F(SessionTest, FolderOfADeadDaemonIsRemovedWithItsSharedMemory) {
  daemons_session(JobFolder::make(place_)->path());
  remove_leftovers(place_);
  EXPECT_THAT(names(place_.base), IsEmpty());
  EXPECT_THAT(names(place_.shared_memory), IsEmpty());
}

TEST_F(SessionTest, SymbolicLinksAreNotFollowed) {
  const fs::path treasure = file(folder_ / "treasure" / "gold");
  const fs::path job = JobFolder::make(place_)->path();
  mpiruns_session(job);
  fs::create_directory_symlink(treasure.parent_path(),
                               job / fmt::format("ompi.node7.{}", geteuid()) / "pid.17" / "link");
  fs::create_directory_symlink(treasure.parent_path(), place_.base / fmt::format("poprun-emu.{}.abcdef", geteuid()));
  remove_leftovers(place_);
  EXPECT_TRUE(fs::exists(treasure));
  EXPECT_THAT(names(place_.base), ElementsAre(fmt::format("poprun-emu.{}.abcdef", geteuid())));
}

TEST_F(SessionTest, SessionsOfOtherProgramsStay) {
  daemons_session(place_.base);
  remove_leftovers(place_);
  EXPECT_EQ(names(place_.base).size(), 1U);
  EXPECT_EQ(names(place_.shared_memory).size(), 1U);
}

TEST_F(SessionTest, OnlyADaemonIsEndedNotAnMpirun) {
  for (const auto& [session, number] : {std::pair("ompi.node7.0/jf.2", SIGKILL), {"x/pid.7", SIGALRM}}) {
    const pid_t process = fork();
    if (process == 0) {
      alarm(6);
      pause();
      _exit(0);
    }
    end_daemon(session, process);
    int status = 0;
    waitpid(process, &status, 0);
    EXPECT_EQ(WTERMSIG(status), number) << session;
  }
}

TEST_F(SessionTest, SharedMemoryStaysWhereAnotherSessionHasItsNumber) {
  daemons_session(JobFolder::make(place_)->path());
  const fs::path other = place_.base / fmt::format("ompi.node7.{}", geteuid()) / "pid.5";
  file(other / "contact.txt", "131072.0;tcp://127.0.0.1:1\n");
  remove_leftovers(place_);
  EXPECT_THAT(names(other.parent_path()), ElementsAre("pid.5"));
  EXPECT_EQ(names(place_.shared_memory).size(), 1U);
}

TEST_F(SessionTest, JobWithoutAFolderForTemporaryFilesIsTold) {
  place_.base = file(folder_ / "file") / "tmp";
  const auto job = JobFolder::make(place_);
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code, ErrorCode::kHostResources);
  EXPECT_THAT(job.error().message, ::testing::HasSubstr("set TMPDIR"));
}

}  // namespace
}  // namespace poprun::collectives
