#include "launcher/process/child.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/session/session.h"
#include "launcher/process/process_handle.h"
#include "launcher/process/supervisor.h"

namespace poprun::launcher {
namespace {

using ::testing::ElementsAre;

constexpr std::chrono::seconds kDeadline{20};

collectives::JobFolder job_folder() {
  auto folder = collectives::JobFolder::make(
      {.base = ::testing::TempDir(), .host = "here", .shared_memory = ::testing::TempDir()});
  POPRUN_CHECK(folder.has_value());
  return std::move(*folder);
}

/// Runs a shell command in place of mpirun and records its output.
class SupervisorTest : public ::testing::Test {
 protected:
  void start(const std::string& script) { start({"/bin/sh", {"sh", "-c", script}, {{"WORD", "hello"}}, SIGKILL}); }

  void start(const Child::Program& program) {
    const Status started = supervisor_.start_mpirun(
        program, folder_, [this](std::string_view line) { out_.emplace_back(line); },
        [this](std::string_view line) { err_.emplace_back(line); },
        [this](int status) {
          status_ = status;
          loop_.stop();
        });
    ASSERT_TRUE(started) << started.error().message;
  }

  void run() {
    loop_.run_for(kDeadline);
    ASSERT_FALSE(supervisor_.anything_runs()) << "no exit in time";
  }

  void TearDown() override { folder_.remove(); }

  asio::io_context loop_;
  collectives::JobFolder folder_ = job_folder();
  Supervisor supervisor_{loop_};
  std::vector<std::string> out_;
  std::vector<std::string> err_;
  int status_ = -1;
};

TEST_F(SupervisorTest, GivesEveryLineBeforeTheExit) {
  start("echo $WORD; echo two >&2; printf half; exit 3");
  run();

  EXPECT_THAT(out_, ElementsAre("hello", "half"));
  EXPECT_THAT(err_, ElementsAre("two"));
  EXPECT_EQ(exit_text(status_), "exited with code 3");
}

TEST_F(SupervisorTest, KeepsLongLinesWhole) {
  start("head -c 300000 /dev/zero | tr '\\0' x; echo; echo end");
  run();

  ASSERT_EQ(out_.size(), 2U);
  EXPECT_EQ(out_[0].size(), 300000U);
}

TEST_F(SupervisorTest, GivesTheProgramNoInput) {
  start("read line || echo none");
  run();
  EXPECT_THAT(out_, ElementsAre("none"));
}

TEST_F(SupervisorTest, GivesAnInquiryAllOfItsInput) {
  const std::string input(300000, 'x');
  const Child::Program program{"/bin/sh", {"sh", "-c", "wc -c"}, {}, SIGKILL, input};
  const Status started = supervisor_.start_inquiry(
      program, [this](std::string_view line) { out_.emplace_back(line); }, nullptr,
      [this](int /*status*/) { loop_.stop(); });
  ASSERT_TRUE(started);
  run();
  EXPECT_THAT(out_, ElementsAre("300000"));
}

TEST_F(SupervisorTest, GivesTheOutputOfAnInquiryUnchanged) {
  const std::string output = std::string(3'000'000, '\n') + std::string("a\0b", 3);
  const Child::Program program{.path = "/bin/sh",
                               .arguments = {"sh", "-c", "cat"},
                               .environment = {},
                               .death_signal = SIGKILL,
                               .input = output,
                               .writes_lines = false};
  std::string given;
  const Status started = supervisor_.start_inquiry(
      program, [&given](std::string_view piece) { given += piece; }, nullptr, [this](int /*status*/) { loop_.stop(); });
  ASSERT_TRUE(started);
  run();
  EXPECT_EQ(given, output);
}

TEST_F(SupervisorTest, EndsMpirunByTheEndOfItsChildren) {
  start("sleep 0.1; sleep 100 & echo up; wait $!; echo bye; exit 4");
  asio::post(loop_, [this] { supervisor_.terminate(); });  // The shell has not started `sleep 100` yet.
  run();

  EXPECT_THAT(out_, ElementsAre("up", "bye"));
  EXPECT_EQ(exit_text(status_), "exited with code 4");
}

TEST_F(SupervisorTest, StartsProgramsThatHearNoRequests) {
  start(
      "trap 'echo caught' TERM INT HUP USR1 USR2; for s in TERM INT HUP USR1 USR2; do kill -$s $$; "
      "done; sh -c 'kill -USR1 $$; echo alive'");
  run();

  EXPECT_THAT(out_, ElementsAre("alive"));
  EXPECT_EQ(exit_text(status_), "exited with code 0");
}

TEST_F(SupervisorTest, StartsProgramsWithOnlyTheRequestsBlocked) {
  sigset_t before;
  sigset_t of_the_launcher;
  sigemptyset(&of_the_launcher);
  sigaddset(&of_the_launcher, SIGWINCH);
  pthread_sigmask(SIG_BLOCK, &of_the_launcher, &before);
  start({"/bin/grep", {"grep", "SigBlk", "/proc/self/status"}, {}, SIGKILL});  // A shell would unblock all signals.
  run();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  // Bit n - 1 for signal n: HUP 1, INT 2, USR1 10, USR2 12, TERM 15.
  EXPECT_THAT(out_, ElementsAre("SigBlk:\t0000000000004a03"));
}

/// Waits until every child of this process has ended, including those that earlier tests killed.
void await_all_children() {
  const auto until = std::chrono::steady_clock::now() + kDeadline;
  while (waitpid(-1, nullptr, WNOHANG) >= 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST_F(SupervisorTest, KillsEverythingBelowItself) {
  await_all_children();
  // A grandchild in a separate session, whose parent is gone, can be found only if it is adopted.
  start("setsid sleep 1000 & exit 0");
  run();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(collectives::children_of(getpid()).size(), 1U);

  supervisor_.kill_all();

  await_all_children();
  EXPECT_TRUE(collectives::children_of(getpid()).empty());
}

/// Runs a launcher whose host has room for mpirun but for no further process. Returns 0 if it behaves as it should.
int launch_without_room_for_a_guard(collectives::JobFolder& folder) {
  constexpr uid_t kNobodyElse = 64987;
  const rlimit two{.rlim_cur = 2, .rlim_max = 2};
  if (setpgid(0, 0) != 0 || setrlimit(RLIMIT_NPROC, &two) != 0 || setuid(kNobodyElse) != 0) {
    return 77;
  }
  asio::io_context loop;
  Supervisor supervisor(loop);
  const Status started = supervisor.start_mpirun(
      {"/bin/sleep", {"sleep", "100"}, {}, SIGKILL}, folder, [](auto) {}, [](auto) {},
      [&](int /*status*/) { loop.stop(); });
  if (started || started.error().code != ErrorCode::kHostResources) {
    return 1;
  }
  supervisor.terminate();
  loop.run_for(kDeadline);
  return supervisor.anything_runs() ? 2 : 0;
}

TEST(Guard, ThatCannotBeStartedCostsTheLauncherNothing) {
  collectives::JobFolder folder = job_folder();
  const pid_t launcher = fork();
  if (launcher == 0) {
    _exit(launch_without_room_for_a_guard(folder));
  }
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  folder.remove();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "needs root, to become a user without processes";
  }
  EXPECT_EQ(exit_text(status), "exited with code 0");
}

TEST(Guard, OfADeadLauncherRemovesWhatAnMpirunThatCrashedLeft) {
  collectives::JobFolder folder = job_folder();
  const std::string session = fmt::format("{}/ompi.here.{}/pid.7", folder.path().string(), geteuid());
  const pid_t launcher = fork();
  if (launcher == 0) {
    asio::io_context loop;
    Supervisor supervisor(loop);
    const std::string script =
        fmt::format("mkdir -p {0}; echo 65536 > {0}/contact.txt; sleep 0.2; kill -SEGV $$", session);
    static_cast<void>(
        supervisor.start_mpirun({"/bin/sh", {"sh", "-c", script}, {}}, folder, nullptr, nullptr, nullptr));
    raise(SIGKILL);
  }
  ASSERT_EQ(waitpid(launcher, nullptr, 0), launcher);
  const auto until = std::chrono::steady_clock::now() + kDeadline;
  while (std::filesystem::exists(folder.path()) && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path()));
}

TEST(ProcessHandle, IsNothingForNumbersThatMeanManyProcesses) {
  for (const pid_t pid : {0, -1, -getpid()}) {
    EXPECT_FALSE(ProcessHandle::open(pid)) << pid;
    signal_child_of(getppid(), pid, SIGKILL);
    EXPECT_NE(ProcessHandle::open(pid).error().message.find("no process has this id"), std::string::npos) << pid;
  }
}

TEST(ProcessHandle, ReachesNobodyOnceItsProcessHasEnded) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const auto handle = ProcessHandle::open(child);
  ASSERT_TRUE(handle);
  signal_child_of(getppid(), child, SIGKILL);  // Ignored: the child is not a child of getppid().
  handle->signal(0);
  handle->signal(SIGTERM);
  handle->reap();
  handle->signal(SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), -1) << "it was reaped";
}

TEST(Child, ThatCannotBeStartedSaysWhy) {
  asio::io_context loop;
  const auto child = Child::start(loop, {"/nowhere/program", {"program"}, {}, SIGKILL}, nullptr, nullptr);
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, ErrorCode::kHostResources);
  EXPECT_EQ(child.error().message, "/nowhere/program cannot be started: No such file or directory");
}

/// A program that creates a file to show that it ran.
class ChildWithSomethingBefore : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(trace_); }

  Child::Program program(std::function<Status(pid_t)> before) {
    return {.path = "/bin/sh",
            .arguments = {"sh", "-c", "touch " + trace_},
            .environment = {},
            .before = std::move(before)};
  }
  /// Returns whether the program ran within `wait`.
  [[nodiscard]] bool ran(std::chrono::milliseconds wait) const {
    for (const auto until = std::chrono::steady_clock::now() + wait; std::chrono::steady_clock::now() < until;
         std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      if (std::filesystem::exists(trace_)) {
        return true;
      }
    }
    return false;
  }

  static constexpr std::chrono::milliseconds kAWhile{200};
  asio::io_context loop_;
  std::string trace_ = fmt::format("{}/child_ran.{}", ::testing::TempDir(), getpid());
};

TEST_F(ChildWithSomethingBefore, RunsAfterIt) {
  bool ran_before = true;
  const auto child = Child::start(loop_, program([&](pid_t) -> Status {
                                    ran_before = ran(kAWhile);
                                    return {};
                                  }),
                                  nullptr, nullptr);
  ASSERT_TRUE(child) << child.error().message;
  EXPECT_FALSE(ran_before);
  EXPECT_TRUE(ran(kDeadline));
  waitpid((*child)->pid(), nullptr, 0);
}

TEST_F(ChildWithSomethingBefore, NeverRunsWhereThatFails) {
  pid_t pid = 0;
  const auto child = Child::start(loop_, program([&](pid_t own) -> Status {
                                    pid = own;
                                    return fail(ErrorCode::kHostResources, "no guard");
                                  }),
                                  nullptr, nullptr);
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().message, "no guard");
  waitpid(pid, nullptr, 0);
  EXPECT_FALSE(ran(kAWhile));
}

TEST_F(ChildWithSomethingBefore, NeverRunsWhereTheLauncherDiesMeanwhile) {
  const pid_t launcher = fork();
  if (launcher == 0) {
    static_cast<void>(Child::start(loop_, program([](pid_t) -> Status {
                                     raise(SIGKILL);
                                     return {};
                                   }),
                                   nullptr, nullptr));
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(ran(kAWhile));
}

TEST(Parent, IsFoundInProc) {
  EXPECT_EQ(collectives::parent_of(getpid()), getppid());
  EXPECT_EQ(collectives::parent_of(-5), 0);
}

}  // namespace
}  // namespace poprun::launcher
