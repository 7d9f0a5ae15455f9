#include "launcher/job/silent_hosts.h"

#include <chrono>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> silent_of(const std::vector<std::string>& hosts) {
  asio::io_context loop;
  std::vector<std::string> silent = {"never told"};
  find_silent_hosts(loop, hosts, std::chrono::milliseconds(500),
                    [&](std::vector<std::string> found) { silent = std::move(found); });
  loop.run();
  return silent;
}

TEST(SilentHosts, AreThoseThatNeitherTakeNorRefuseAConnection) {
  const std::string nobody = "255.255.255.255";  // No TCP connection is ever made to it.
  EXPECT_THAT(silent_of({"127.0.0.1", nobody, "localhost"}), ElementsAre(nobody));
}

TEST(SilentHosts, AreAlsoThoseWhoseNameHasNoAddress) {
  EXPECT_THAT(silent_of({"no-such-host.invalid"}), ElementsAre("no-such-host.invalid"));
}

TEST(SilentHosts, AreNoneWhereAllAnswerOrNobodyIsAsked) {
  EXPECT_THAT(silent_of({"127.0.0.1"}), IsEmpty());
  EXPECT_THAT(silent_of({}), IsEmpty());
}

}  // namespace
}  // namespace poprun::launcher
