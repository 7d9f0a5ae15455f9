#include "launcher/job/data_service.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "hostio/streams/dataset_store.h"
#include "hostio/streams/server.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::launcher {
namespace {

constexpr std::chrono::seconds kDeadline{20};
constexpr const char* kToken = "c41f6e0b9d7a258390e2b4fd61a7c835";

/// A data server in this process, and a stand-in for its program, which prints where the server listens.
class DataServiceTest : public ::testing::Test {
 protected:
  /// Returns what a launcher that other hosts reach at `own_address` learns about the server at `bind`.
  Result<ServedDataset> ask(const std::string& own_address, const std::string& bind) {
    hostio::DatasetStore store;
    auto server = hostio::Server::start({.bind = bind, .token = kToken}, store);
    POPRUN_CHECK(server.has_value());
    const std::filesystem::path program = folder_.write(
        "poprun-emu-hostio",
        fmt::format("#!/bin/sh\necho poprun-emu-hostio listening on {}:{}\nexec sleep 60\n", bind, (*server)->port()));
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    Options options;
    options.config.mutable_data()->set_source("synthetic:images=1x2x2,classes=2,items=16");
    options.hostio.timeout_seconds = 2;
    std::optional<Result<ServedDataset>> answer;
    DataService data(
        loop_, supervisor_, console_, options,
        {.program = program, .own_address = own_address, .security = {.token = kToken, .own = {}}},
        {.on_dataset = [&](const Result<ServedDataset>& served) { answer = served; }, .on_end = [](int /*status*/) {}});
    POPRUN_TRY(data.start());
    const auto until = std::chrono::steady_clock::now() + kDeadline;
    while (!answer && std::chrono::steady_clock::now() < until) {
      loop_.run_one_until(until);
    }
    data.forget();
    supervisor_.kill_all();
    POPRUN_CHECK(answer.has_value());
    return *answer;
  }

  testing::TemporaryFolder folder_;
  asio::io_context loop_;
  Supervisor supervisor_{loop_};
  Console console_;
};

TEST_F(DataServiceTest, IsSpokenToInPlainTextOnLoopback) {
  const auto served = ask("127.0.0.1", "127.0.0.1");
  ASSERT_TRUE(served) << served.error().message;
  EXPECT_FALSE(served->tls);
}

// Debian's /etc/hosts maps a machine's own name to a loopback address, 127.0.1.1.
TEST_F(DataServiceTest, ThatOthersReachIsSpokenToWithTlsThoughItsNameIsOneOfLoopbackHere) {
  const auto served = ask("localhost", "0.0.0.0");
  ASSERT_TRUE(served) << served.error().message;
  EXPECT_TRUE(served->tls);
}

}  // namespace
}  // namespace poprun::launcher
