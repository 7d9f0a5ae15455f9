#include "collectives/session/session.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

namespace poprun::collectives {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A host with a folder for temporary files and one of shared memory.
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

  /// What a daemon of family 2 and its rank leave.
  fs::path daemons_session(const std::string& mark) {
    const fs::path session = place_.base / fmt::format("ompi.node7.{}", geteuid()) / "jf.2";
    file(session / "pmix_dstor" / "lock");
    file(place_.shared_memory / fmt::format("vader_segment.node7.{}.20001.0", geteuid()));
    if (!mark.empty()) {
      file(session / "poprun-emu", mark);
    }
    return session;
  }

  /// Session and shared memory of an mpirun, its job 0 having the number 65536.
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

/// A process that has ended and was reaped.
pid_t dead_process() {
  const pid_t child = fork();
  if (child == 0) {
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  return child;
}

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
  mpiruns_session(JobFolder::make(place_)->path());  // Ends here, and with it the lock.
  remove_leftovers(place_);
  EXPECT_THAT(names(place_.base), ElementsAre("mine"));
  EXPECT_THAT(names(place_.shared_memory), ElementsAre(other));
}

TEST_F(SessionTest, FolderOfADeadJobKeepsWhatIsAnotherHosts) {
  const fs::path job = JobFolder::make(place_)->path();
  const fs::path other = job / fmt::format("ompi.node8.{}", geteuid()) / "pid.17";
  file(other / "contact.txt");
  remove_leftovers(place_);
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(SessionTest, FolderOfADeadJobIsRemovedWithTheSessionOfADaemonThatHadNoReplicaYet) {
  const fs::path job = JobFolder::make(place_)->path();
  const std::string top = fmt::format("ompi.node7.{}", geteuid());
  file(job / top / "jf.4" / "hwloc.sm");
  file(job / top / "jf.5" / "poprun-emu", fmt::format("{} {}\n", getpid(), 1));
  remove_leftovers(place_);
  EXPECT_THAT(names(place_.base), IsEmpty());
}

TEST_F(SessionTest, SymbolicLinksAreNotFollowed) {
  const fs::path treasure = file(folder_ / "treasure" / "gold");
  const fs::path job = JobFolder::make(place_)->path();
  mpiruns_session(job);
  fs::create_directory_symlink(treasure.parent_path(),
                               job / fmt::format("ompi.node7.{}", geteuid()) / "pid.17" / "link");
  fs::create_directory_symlink(treasure.parent_path(),
                               place_.base / fmt::format("poprun-emu.{}.abcdef", geteuid()));
  remove_leftovers(place_);
  EXPECT_TRUE(fs::exists(treasure));
  EXPECT_THAT(names(place_.base), ElementsAre(fmt::format("poprun-emu.{}.abcdef", geteuid())));
}

TEST_F(SessionTest, SessionOfADaemonIsRemovedOnceTheDaemonIsDead) {
  daemons_session(fmt::format("{} 12345\n", dead_process()));
  remove_leftovers(place_);
  EXPECT_THAT(names(place_.base), IsEmpty());
  EXPECT_THAT(names(place_.shared_memory), IsEmpty());
}

TEST_F(SessionTest, SessionOfADaemonThatNobodyReapsIsRemoved) {
  const fs::path session = daemons_session("");
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const pid_t daemon = fork();
  if (daemon == 0) {
    char byte = 0;
    _exit(read(pipe_ends[0], &byte, 1) == 1 ? 0 : 1);
  }
  const pid_t marker = fork();
  if (marker == 0) {
    mark_session(session, daemon);
    _exit(0);
  }
  waitpid(marker, nullptr, 0);
  remove_leftovers(place_);
  EXPECT_TRUE(fs::exists(session));
  ASSERT_EQ(write(pipe_ends[1], "x", 1), 1);
  siginfo_t end{};
  waitid(P_PID, static_cast<id_t>(daemon), &end, WEXITED | WNOWAIT);
  remove_leftovers(place_);
  EXPECT_FALSE(fs::exists(session));
  waitpid(daemon, nullptr, 0);
}

TEST_F(SessionTest, SessionWhoseDaemonsNumberAnotherProcessHasIsRemoved) {
  daemons_session(fmt::format("{} 1\n", getpid()));
  remove_leftovers(place_);
  EXPECT_THAT(names(place_.base), IsEmpty());
}

TEST_F(SessionTest, SessionWithoutOurMarkIsNobodysButItsOwners) {
  const fs::path session = daemons_session("");
  remove_leftovers(place_);
  EXPECT_TRUE(fs::exists(session));
}

TEST_F(SessionTest, SessionWhoseMarkIsLockedStays) {
  const fs::path session = daemons_session(fmt::format("{} 1\n", dead_process()));
  const int mark = open((session / "poprun-emu").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(mark, LOCK_EX | LOCK_NB), 0);
  remove_leftovers(place_);
  EXPECT_TRUE(fs::exists(session));
  close(mark);
}

TEST_F(SessionTest, MarkedSessionOfALivingDaemonStaysAlsoWhenWhoMarkedItIsGone) {
  const fs::path session = daemons_session("");
  const pid_t marker = fork();
  if (marker == 0) {
    mark_session(session, getppid());
    _exit(0);
  }
  waitpid(marker, nullptr, 0);
  ASSERT_TRUE(fs::exists(session / "poprun-emu"));
  remove_leftovers(place_);
  EXPECT_TRUE(fs::exists(session));
}

TEST_F(SessionTest, SharedMemoryStaysWhereAnotherSessionHasItsNumber) {
  daemons_session(fmt::format("{} 1\n", dead_process()));
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
