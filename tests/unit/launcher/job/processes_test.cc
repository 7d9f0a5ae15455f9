#include "launcher/job/processes.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> silent_of(const std::vector<std::string>& hosts, std::chrono::seconds patience) {
  asio::io_context loop;
  std::vector<std::string> silent = {"never told"};
  find_silent_hosts(loop, hosts, patience, [&](std::vector<std::string> found) { silent = std::move(found); });
  loop.run();
  return silent;
}

TEST(SilentHosts, AreThoseThatNeitherAcceptNorRefuseAConnection) {
  const std::string nobody = "255.255.255.255";  // No TCP connection is ever made to it.
  EXPECT_THAT(silent_of({"127.0.0.1", nobody, "localhost"}, std::chrono::seconds(2)), ElementsAre(nobody));
}

TEST(SilentHosts, AreAlsoThoseWhoseNameHasNoAddress) {
  EXPECT_THAT(silent_of({"no-such-host.invalid"}, std::chrono::seconds(1)), ElementsAre("no-such-host.invalid"));
}

// The limit of one hour is longer than a test may run.
TEST(SilentHosts, AreNoneOnceAllHaveAnsweredOrWhereNobodyIsAsked) {
  EXPECT_THAT(silent_of({"127.0.0.1"}, std::chrono::hours(1)), IsEmpty());
  EXPECT_THAT(silent_of({}, std::chrono::hours(1)), IsEmpty());
}

}  // namespace
}  // namespace poprun::launcher
