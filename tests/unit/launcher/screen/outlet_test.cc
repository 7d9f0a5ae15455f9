#include <array>
#include <csignal>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "launcher/screen/console.h"

namespace poprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A pipe that holds at most 4 KiB of unread bytes.
class OutletTest : public ::testing::Test {
 protected:
  OutletTest() {
    EXPECT_EQ(pipe(ends_.data()), 0);
    fcntl(ends_[1], F_SETPIPE_SZ, 4096);
  }
  ~OutletTest() override { close(ends_[0]); }

  /// Reads until the writer closes the pipe; returns everything.
  [[nodiscard]] std::string read_all() const {
    std::string all;
    std::array<char, 4096> buffer{};
    for (ssize_t bytes = 0; (bytes = read(ends_[0], buffer.data(), buffer.size())) > 0;) {
      all.append(buffer.data(), static_cast<std::size_t>(bytes));
    }
    return all;
  }

  std::array<int, 2> ends_{};
};

TEST_F(OutletTest, WritesAtOnceWhileItMayWait) {
  Outlet outlet;
  outlet.write(ends_[1], "one", Keep::kAlways);
  outlet.write(ends_[1], "two\nthree\n", Keep::kIfRoom);
  close(ends_[1]);
  EXPECT_EQ(read_all(), "one\ntwo\nthree\n");
}

TEST_F(OutletTest, NeverWaitsForAReaderAndLeavesOutWhatMayGoFirst) {
  Outlet outlet;
  outlet.never_wait();
  const std::string chatter(1023, '.');
  outlet.write(ends_[1], "first", Keep::kAlways);
  for (std::size_t k = 0; k < 2 * Outlet::kWaitingBytesMax / 1024; ++k) {
    outlet.write(ends_[1], chatter, Keep::kIfRoom);
  }
  outlet.write(ends_[1], "last", Keep::kAlways);

  std::string all;
  std::thread reader([&] { all = read_all(); });
  outlet.settle();
  close(ends_[1]);
  reader.join();

  EXPECT_THAT(all, HasSubstr("first\n"));
  EXPECT_THAT(all, ::testing::EndsWith("last\n"));
  EXPECT_THAT(all, ::testing::ContainsRegex("poprun-emu: [0-9,]+ lines left out here"));
  EXPECT_LT(all.size(), Outlet::kWaitingBytesMax + 16384);
}

TEST_F(OutletTest, BoundsAlsoWhatShouldStay) {
  Outlet outlet;
  outlet.never_wait();
  for (std::size_t k = 0; k < 2 * Outlet::kWaitingBytesMax / 1024; ++k) {
    outlet.write(ends_[1], std::string(1023, '.'), Keep::kAlways);
  }
  std::string all;
  std::thread reader([&] { all = read_all(); });
  outlet.settle();
  close(ends_[1]);
  reader.join();
  EXPECT_THAT(all, HasSubstr("lines left out here"));
}

TEST_F(OutletTest, SaysThatLinesAreMissingWhereTheyWouldHaveGone) {
  std::array<int, 2> other{};
  ASSERT_EQ(pipe(other.data()), 0);
  Outlet outlet;
  outlet.never_wait();
  for (std::size_t k = 0; k < 2 * Outlet::kWaitingBytesMax / 1024; ++k) {
    outlet.write(ends_[1], std::string(1023, '.'), Keep::kIfRoom);
  }
  outlet.write(other[1], "kept", Keep::kAlways);
  std::string all;
  std::thread reader([&] { all = read_all(); });
  outlet.settle();
  close(ends_[1]);
  close(other[1]);
  reader.join();
  std::array<char, 64> heard{};
  EXPECT_EQ(read(other[0], heard.data(), heard.size()), 5);
  EXPECT_STREQ(heard.data(), "kept\n");
  EXPECT_THAT(all, HasSubstr("lines left out here"));
  close(other[0]);
}

TEST_F(OutletTest, KeepsOneLineHoweverLongItIs) {
  Outlet outlet;
  outlet.never_wait();
  std::string all;
  std::thread reader([&] { all = read_all(); });
  outlet.write(ends_[1], std::string(2 * Outlet::kWaitingBytesMax, '.'), Keep::kIfRoom);
  outlet.settle();
  close(ends_[1]);
  reader.join();
  EXPECT_EQ(all.size(), 2 * Outlet::kWaitingBytesMax + 1);
}

TEST_F(OutletTest, KeepsTheLatestLiveLineBelowTheOthers) {
  Outlet outlet;
  outlet.live(ends_[1], "step 1");
  outlet.live(ends_[1], "step 1");
  outlet.live(ends_[1], "step 2");
  outlet.write(ends_[1], "note", Keep::kAlways);
  outlet.live(ends_[1], "step 3");
  outlet.live(ends_[1], "");
  close(ends_[1]);
  EXPECT_EQ(read_all(), "step 1\r\x1b[Kstep 2\r\x1b[Knote\nstep 2\r\x1b[Kstep 3\r\x1b[K");
}

TEST_F(OutletTest, IgnoresAReaderThatWentAwayAndTellsOtherFailures) {
  std::signal(SIGPIPE, SIG_IGN);
  Outlet outlet;
  close(ends_[0]);
  outlet.write(ends_[1], "unheard", Keep::kAlways);
  EXPECT_EQ(outlet.failure(ends_[1]), 0);
  close(ends_[1]);
  ends_[0] = open("/dev/null", O_RDONLY);
  const int full = open("/dev/full", O_WRONLY);
  outlet.write(full, "lost", Keep::kAlways);
  EXPECT_EQ(outlet.failure(full), ENOSPC);
  close(full);
}

}  // namespace
}  // namespace poprun::launcher
