#include <future>
#include <limits>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <asio/buffer.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/ssl.hpp>
#include <asio/write.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "launcher/metrics/job_metrics.h"
#include "launcher/metrics/metrics_server.h"

namespace poprun::launcher {
namespace {

using asio::ip::tcp;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::chrono_literals;

TEST(Exposition, HasHelpTypeAndSamplesOfEachMetric) {
  Exposition page;
  page.gauge("loss", "Of the last step.");
  page.sample(0.25);
  page.counter("restarts_total", "By the launcher.");
  page.sample(3);
  EXPECT_EQ(page.text(),
            "# HELP loss Of the last step.\n# TYPE loss gauge\nloss 0.25\n"
            "# HELP restarts_total By the launcher.\n# TYPE restarts_total counter\n"
            "restarts_total 3\n");
}

TEST(Exposition, EscapesLabelsAndHelp) {
  Exposition page;
  page.gauge("a", "one \\ \"two\"\nlines");
  page.sample(1, {{"host", "a\"b\\c\nd"}, {"phase", "é"}});
  EXPECT_EQ(page.text(),
            "# HELP a one \\\\ \"two\"\\nlines\n# TYPE a gauge\n"
            "a{host=\"a\\\"b\\\\c\\nd\",phase=\"é\"} 1\n");
}

TEST(Exposition, WritesEveryNumber) {
  Exposition page;
  page.gauge("a", "");
  const std::size_t head = page.text().size();
  for (const double value : {0.1, 1e300, -0.0, 16777217.0, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    page.sample(value);
  }
  EXPECT_EQ(page.text().substr(head), "a 0.1\na 1e+300\na -0\na 16777217\na NaN\na +Inf\na -Inf\n");
}

proto::Goodput some_goodput() {
  proto::Goodput goodput;
  goodput.set_ratio(0.75);
  goodput.set_total_seconds(20);
  goodput.set_redone_steps(10);
  goodput.set_step_seconds(14);
  goodput.set_evaluation_seconds(1);
  goodput.set_start_seconds(2);
  goodput.set_data_seconds(0.5);
  goodput.set_saving_seconds(0.25);
  goodput.set_redone_seconds(1.25);
  goodput.set_down_seconds(1.5);
  return goodput;
}

JobMetrics everything() {
  return {.version = "1.2.3",
          .start_time_seconds = 1.7e9,
          .phase = JobPhase::kRunning,
          .replicas = 16,
          .instances = 8,
          .instances_joined = 7,
          .heartbeat_age_seconds = 0.5,
          .step = 340,
          .last_step = 1404,
          .epoch = 2,
          .loss = 0.3125,
          .accuracy = 0.875,
          .evaluation = JobMetrics::Evaluation{.loss = 0.5, .accuracy = 0.75},
          .steps_executed = 350,
          .samples = 44800,
          .items = 12,
          .samples_per_second = 5120,
          .slowest = JobMetrics::SlowestReplica{3, 0.2, 0.1},
          .restarts = 2,
          .checkpoints = 6,
          .checkpoint = JobMetrics::Checkpoint{.step = 300, .age_seconds = 41.5},
          .goodput = some_goodput()};
}

TEST(JobMetrics, AreEachOnThePage) {
  const std::string page = exposition_of(everything());
  for (const char* sample : {"poprun_emu_build_info{version=\"1.2.3\"} 1",
                             "poprun_emu_start_time_seconds 1700000000",
                             "poprun_emu_phase{phase=\"running\"} 1",
                             "poprun_emu_phase{phase=\"draining\"} 0",
                             "poprun_emu_replicas 16",
                             "poprun_emu_instances 8",
                             "poprun_emu_instances_joined 7",
                             "poprun_emu_heartbeat_age_seconds 0.5",
                             "poprun_emu_step 340",
                             "poprun_emu_last_step 1404",
                             "poprun_emu_epoch 2",
                             "poprun_emu_loss 0.3125",
                             "poprun_emu_accuracy_ratio 0.875",
                             "poprun_emu_evaluation_loss 0.5",
                             "poprun_emu_evaluation_accuracy_ratio 0.75",
                             "poprun_emu_steps_total 350",
                             "poprun_emu_samples_total 44800",
                             "poprun_emu_items_total 12",
                             "poprun_emu_samples_per_second 5120",
                             "poprun_emu_slowest_replica 3",
                             "poprun_emu_slowest_replica_step_seconds 0.2",
                             "poprun_emu_other_replicas_step_seconds 0.1",
                             "poprun_emu_restarts_total 2",
                             "poprun_emu_checkpoints_total 6",
                             "poprun_emu_wall_seconds_total{part=\"step\"} 14",
                             "poprun_emu_wall_seconds_total{part=\"evaluation\"} 1",
                             "poprun_emu_wall_seconds_total{part=\"start\"} 2",
                             "poprun_emu_wall_seconds_total{part=\"data\"} 0.5",
                             "poprun_emu_wall_seconds_total{part=\"saving\"} 0.25",
                             "poprun_emu_wall_seconds_total{part=\"redone\"} 1.25",
                             "poprun_emu_wall_seconds_total{part=\"down\"} 1.5",
                             "poprun_emu_redone_steps_total 10",
                             "poprun_emu_goodput_ratio 0.75",
                             "poprun_emu_checkpoint_step 300",
                             "poprun_emu_checkpoint_age_seconds 41.5"}) {
    EXPECT_THAT(page, HasSubstr(std::string("\n") + sample + "\n"));
  }
}

TEST(JobMetrics, ThatAreNotKnownAreLeftOut) {
  const std::string page = exposition_of({.version = "1", .replicas = 2, .instances = 2});
  EXPECT_THAT(page, HasSubstr("\npoprun_emu_phase{phase=\"starting\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("\npoprun_emu_instances_joined 0\n"));
  for (const char* name : {"step", "epoch", "loss", "accuracy", "evaluation", "items", "samples", "slowest", "restarts",
                           "checkpoint", "heartbeat", "wall", "redone", "goodput"}) {
    EXPECT_THAT(page, Not(HasSubstr(std::string("poprun_emu_") + name)));
  }
}

/// Checks the rules of the format that a wrong name or a missing line would break.
TEST(JobMetrics, AreAPageInTheFormat) {
  std::istringstream lines(exposition_of(everything()));
  const std::regex help("# HELP ([a-z_]+) [A-Z0-9].*\\.");
  const std::regex type("# TYPE ([a-z_]+) (gauge|counter)");
  const std::regex sample("([a-z_]+)(\\{[a-z]+=\"[a-z0-9.]+\"\\})? [-+.e0-9]+");
  std::set<std::string> seen;
  std::string line;
  std::string name;
  while (std::getline(lines, line)) {
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      name = match[1];
      EXPECT_TRUE(seen.insert(name).second) << name << " is there twice";
      EXPECT_THAT(name, StartsWith("poprun_emu_"));
      ASSERT_TRUE(std::getline(lines, line));
      ASSERT_TRUE(std::regex_match(line, match, type)) << line;
      EXPECT_EQ(match[1], name);
      EXPECT_EQ(match[2] == "counter", name.ends_with("_total")) << name;
    } else {
      ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
      EXPECT_EQ(match[1], name) << "a sample below another metric's head";
    }
  }
  EXPECT_EQ(seen.size(), 28U);
}

TEST(HttpHead, NamesThePageOrTheReasonWhyNot) {
  const auto code = [](std::string_view line) {
    const auto request = parse_head(std::string(line) + "\r\nHost: x\r\n\r\n");
    return request ? 200 : request.error();
  };
  EXPECT_EQ(code("GET /metrics HTTP/1.1"), 200);
  EXPECT_EQ(code("HEAD / HTTP/1.0"), 200);
  EXPECT_EQ(code("POST /metrics HTTP/1.1"), 405);
  EXPECT_EQ(code("GET /metrics HTTP/2.0"), 505);
  for (const char* line :
       {"", " ", "GET", "GET /metrics", "GET  HTTP/1.1", "get /metrics HTTP/1.1", "GET metrics HTTP/1.1",
        "GET /a b HTTP/1.1", "GET /\x01 HTTP/1.1", "GET /\xff HTTP/1.1", "\x16\x03\x01 / HTTP/1.1", "GET / FTP/1.1"}) {
    EXPECT_EQ(code(line), 400) << line;
  }
  EXPECT_EQ(parse_head("GET /metrics?name=a HTTP/1.1\n\n")->path, "/metrics");
  EXPECT_FALSE(parse_head("HEAD /metrics HTTP/1.1\n\n")->wants_body);
  EXPECT_TRUE(parse_head("GET /metrics HTTP/1.1\n\n")->wants_body);
}

TEST(HttpHead, EndsWithAnEmptyLine) {
  EXPECT_FALSE(ends_head(""));
  EXPECT_FALSE(ends_head("GET / HTTP/1.1\r\nHost: x\r\n"));
  EXPECT_TRUE(ends_head("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_TRUE(ends_head("GET / HTTP/1.1\n\n"));
}

/// A server whose loop runs in a separate thread, and blocking clients.
class MetricsServerTest : public ::testing::Test {
 protected:
  static constexpr MetricsServer::Limits kShort{.request_bytes = 2048, .connections = 4, .time = 400ms};

  void start(MetricsServer::Limits limits = kShort, std::string page = "page\n") {
    auto server = MetricsServer::start(
        loop_, "127.0.0.1", 0,
        {.metrics = [page = std::move(page)] { return page; }, .status = [] { return std::string("{}\n"); }}, identity_,
        limits);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    EXPECT_EQ(server_->url(), fmt::format("{}://127.0.0.1:{}/", identity_ ? "https" : "http", server_->port()));
    thread_ = std::thread([this] { loop_.run(); });
  }

  void TearDown() override {
    loop_.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  tcp::socket connect() {
    tcp::socket socket(clients_);
    socket.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
    return socket;
  }

  /// Returns what arrives until the server closes the connection, with `RESET` appended if the close is not orderly.
  static std::string rest_of(tcp::socket& socket) {
    std::string text;
    asio::error_code error;
    asio::read(socket, asio::dynamic_buffer(text), error);
    return error == asio::error::eof ? text : text + "RESET";
  }

  std::string answer(const std::string& request) {
    tcp::socket socket = connect();
    asio::write(socket, asio::buffer(request));
    return rest_of(socket);
  }

  static double seconds_of(const std::function<void()>& action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  std::optional<TlsIdentity> identity_;
  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{loop_.get_executor()};
  asio::io_context clients_;
  std::unique_ptr<MetricsServer> server_;
  std::thread thread_;
};

constexpr const char* kGet = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(MetricsServerTest, ServesThePages) {
  start();
  EXPECT_EQ(answer(kGet),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 5\r\nConnection: close\r\n\r\npage\n");
  EXPECT_EQ(answer("HEAD /metrics HTTP/1.1\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 5\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer("GET /healthz HTTP/1.0\r\n\r\n"), EndsWith("\r\n\r\nok\n"));
}

TEST_F(MetricsServerTest, ServesTheLivePageWithRulesForTheBrowser) {
  start();
  const std::string page = answer("GET / HTTP/1.1\r\nAuthorization: Bearer wrong\r\n\r\n");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\nContent-Security-Policy: default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(page, EndsWith("</html>\n"));
  const std::string status = answer("GET /status.json?x=1 HTTP/1.1\r\n\r\n");
  EXPECT_THAT(status, HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(status, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(status, EndsWith("\r\n\r\n{}\n"));
}

/// Returns what an HTTPS client gets that trusts the authorities of `identity`.
std::string answer_over_tls(tcp::socket socket, const TlsIdentity& identity, const std::string& request) {
  asio::ssl::context context(asio::ssl::context::tls_client);
  context.add_certificate_authority(asio::buffer(identity.authorities));
  context.set_verify_mode(asio::ssl::verify_peer);
  asio::ssl::stream<tcp::socket> stream(std::move(socket), context);
  asio::error_code error;
  stream.handshake(asio::ssl::stream_base::client, error);
  if (error) {
    return error.message();
  }
  asio::write(stream, asio::buffer(request));
  std::string text;
  asio::read(stream, asio::dynamic_buffer(text), error);
  return error == asio::error::eof ? text : text + error.message();
}

TEST_F(MetricsServerTest, ServesThePagesOverTls) {
  identity_ = identity_of_token("7c1b0a5f8d2e49366af01d9b5c3e8f72");
  start();
  EXPECT_THAT(answer_over_tls(connect(), *identity_, kGet), EndsWith("\r\n\r\npage\n"));
  EXPECT_THAT(answer_over_tls(connect(), identity_of_token("another"), kGet), Not(HasSubstr("page")));
  EXPECT_THAT(answer(kGet), Not(HasSubstr("page"))) << "in plain text";
  EXPECT_THAT(answer_over_tls(connect(), *identity_, kGet), EndsWith("\r\n\r\npage\n")) << "and it goes on";
}

TEST_F(MetricsServerTest, EndsClientsThatDoNotFinishTheHandshake) {
  identity_ = identity_of_token("7c1b0a5f8d2e49366af01d9b5c3e8f72");
  start();
  tcp::socket silent = connect();
  EXPECT_LT(seconds_of([&] { rest_of(silent); }), 5);
  EXPECT_THAT(answer_over_tls(connect(), *identity_, kGet), HasSubstr("page"));
}

TEST_F(MetricsServerTest, RefusesEverythingElse) {
  start();
  EXPECT_THAT(answer("GET /page.js HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(answer("GET /metrics/../x HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  const std::string post = answer("POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nab");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
  EXPECT_THAT(post, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
  EXPECT_THAT(answer("\x16\x03\x01 hello\n\n"), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(answer("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
}

TEST_F(MetricsServerTest, AnswersOneRequestThatComesInPieces) {
  start({.request_bytes = 2048, .connections = 4, .time = 10s});
  tcp::socket socket = connect();
  socket.set_option(tcp::no_delay(true));
  for (const char c : std::string_view(kGet)) {
    asio::write(socket, asio::buffer(&c, 1));
  }
  asio::error_code ignored;
  asio::write(socket, asio::buffer(std::string_view(kGet)), ignored);
  std::string text(300, '\0');
  text.resize(socket.read_some(asio::buffer(text)));
  EXPECT_THAT(text, EndsWith("\r\n\r\npage\n"));
  std::array<char, 1> more{};
  EXPECT_EQ(socket.read_some(asio::buffer(more), ignored), 0U);
  EXPECT_EQ(ignored, asio::error::eof);
}

TEST_F(MetricsServerTest, KeepsNoMoreOfARequestThanItMay) {
  start({.request_bytes = 2048, .connections = 4, .time = 10s});
  tcp::socket socket = connect();
  // The request far exceeds the socket buffers. If it were not read to its end, a reset would discard the answer.
  const std::string huge = "GET /metrics HTTP/1.1\r\nX: " + std::string(8 << 20, 'x');
  asio::error_code error;
  asio::write(socket, asio::buffer(huge), error);
  EXPECT_FALSE(error) << error.message();
  std::string text(300, '\0');
  text.resize(socket.read_some(asio::buffer(text), error));
  EXPECT_THAT(text, StartsWith("HTTP/1.1 431 Request Header Fields Too Large\r\n"));
}

TEST_F(MetricsServerTest, EndsSlowClientsAndServesOthersMeanwhile) {
  start();
  tcp::socket silent = connect();
  tcp::socket slow = connect();
  asio::write(slow, asio::buffer(std::string_view("GET /met")));
  EXPECT_THAT(seconds_of([&] { EXPECT_THAT(answer(kGet), EndsWith("page\n")); }), Lt(0.3));
  const double seconds = seconds_of([&] {
    EXPECT_EQ(rest_of(silent), "");
    EXPECT_EQ(rest_of(slow), "");
  });
  EXPECT_THAT(seconds, Lt(2));
}

TEST_F(MetricsServerTest, DripsDoNotProlongAConnection) {
  start();
  tcp::socket socket = connect();
  asio::error_code error;
  const double seconds = seconds_of([&] {
    while (!error) {
      asio::write(socket, asio::buffer(std::string_view("a")), error);
      std::this_thread::sleep_for(20ms);
    }
  });
  EXPECT_THAT(seconds, Lt(3));
}

TEST_F(MetricsServerTest, DoesNotWaitForAClientThatReadsNothing) {
  start({.request_bytes = 2048, .connections = 4, .time = 30s}, std::string(32 << 20, 'p'));
  tcp::socket deaf = connect();
  asio::write(deaf, asio::buffer(std::string_view(kGet)));
  EXPECT_THAT(seconds_of([&] { EXPECT_THAT(answer("GET /healthz HTTP/1.1\r\n\r\n"), EndsWith("ok\n")); }), Lt(20));
}

TEST_F(MetricsServerTest, TheOldestConnectionMakesRoom) {
  start({.request_bytes = 2048, .connections = 4, .time = 20s});
  std::vector<tcp::socket> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(connect());
  }
  EXPECT_THAT(answer(kGet), EndsWith("page\n"));
  for (std::size_t i = 0; i < 197; ++i) {
    EXPECT_EQ(rest_of(idle[i]), "") << i;
  }
  asio::write(idle.back(), asio::buffer(std::string_view(kGet)));
  EXPECT_THAT(rest_of(idle.back()), EndsWith("page\n"));
}

TEST_F(MetricsServerTest, AClientThatLeavesHarmsNobody) {
  start();
  for (int i = 0; i < 50; ++i) {
    tcp::socket socket = connect();
    asio::write(socket, asio::buffer(std::string_view(kGet)));
    socket.set_option(asio::socket_base::linger(true, 0));  // Closing the socket sends a reset.
  }
  EXPECT_THAT(answer(kGet), EndsWith("page\n"));
}

TEST_F(MetricsServerTest, HasNoSocketThatChildrenInherit) {
  start();
  tcp::socket open = connect();
  EXPECT_THAT(answer("GET /healthz HTTP/1.1\r\n\r\n"), EndsWith("ok\n"));
  int sockets = 0;
  for (int descriptor = 3; descriptor < 64; ++descriptor) {
    sockaddr_in own{};
    socklen_t size = sizeof own;
    const bool is_ours = getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                         own.sin_family == AF_INET && ntohs(own.sin_port) == server_->port();
    if (is_ours) {
      ++sockets;
      EXPECT_NE(fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0) << descriptor;
    }
  }
  EXPECT_GE(sockets, 2) << "the one that listens, and that of `open`";
}

TEST_F(MetricsServerTest, SaysWhyItCannotListen) {
  start();
  const auto taken = MetricsServer::start(loop_, "127.0.0.1", server_->port(), {});
  ASSERT_FALSE(taken);
  EXPECT_EQ(exit_code_of(taken.error().code), 69);
  EXPECT_EQ(taken.error().message, "cannot serve metrics: port " + std::to_string(server_->port()) +
                                       " on 127.0.0.1 is in use; choose a different port with --metrics-port");
  const auto elsewhere = MetricsServer::start(loop_, "192.0.2.1", 0, {});
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().code, ErrorCode::kUsage);
  EXPECT_THAT(elsewhere.error().message, StartsWith("cannot serve metrics on port 0 on 192.0.2.1: "));
  EXPECT_FALSE(MetricsServer::start(loop_, "nowhere", 0, {}));
}

TEST_F(MetricsServerTest, EndsWithOpenConnections) {
  start();
  std::vector<tcp::socket> open;
  for (int i = 0; i < 3; ++i) {
    open.push_back(connect());
  }
  EXPECT_THAT(answer(kGet), EndsWith("page\n"));
  loop_.stop();
  thread_.join();
  server_.reset();
  for (tcp::socket& socket : open) {
    EXPECT_EQ(rest_of(socket), "");
  }
}

}  // namespace
}  // namespace poprun::launcher
