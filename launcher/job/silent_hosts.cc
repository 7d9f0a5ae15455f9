#include "launcher/job/silent_hosts.h"

#include <list>
#include <memory>
#include <utility>

#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

namespace poprun::launcher {
namespace {

using asio::ip::tcp;

constexpr const char* kPortOfSsh = "22";

/// Connects to all hosts at once; lives until the last of its connections has ended.
class Knocks : public std::enable_shared_from_this<Knocks> {
 public:
  Knocks(asio::io_context& loop, std::vector<std::string> hosts, std::function<void(std::vector<std::string>)> then)
      : loop_(loop), timer_(loop), resolver_(loop), silent_(std::move(hosts)), then_(std::move(then)) {}

  void start(std::chrono::milliseconds patience) {
    timer_.expires_after(silent_.empty() ? std::chrono::milliseconds(0) : patience);
    timer_.async_wait([self = shared_from_this()](const asio::error_code&) { self->end(); });
    for (const std::string& host : silent_) {
      resolver_.async_resolve(
          tcp::v4(), host, kPortOfSsh,
          [self = shared_from_this(), host](const asio::error_code& error, const tcp::resolver::results_type& found) {
            if (!error && !self->silent_.empty()) {
              self->connect(host, *found.begin());
            }
          });
    }
  }

 private:
  void connect(const std::string& host, const tcp::endpoint& endpoint) {
    sockets_.emplace_back(loop_).async_connect(endpoint,
                                               [self = shared_from_this(), host](const asio::error_code& error) {
                                                 if (!error || error == asio::error::connection_refused) {
                                                   self->heard(host);
                                                 }
                                               });
  }

  void heard(const std::string& host) {
    std::erase(silent_, host);
    if (silent_.empty()) {
      timer_.cancel();
    }
  }

  void end() {
    resolver_.cancel();
    sockets_.clear();
    then_(std::exchange(silent_, {}));
  }

  asio::io_context& loop_;
  asio::steady_timer timer_;
  tcp::resolver resolver_;
  std::list<tcp::socket> sockets_;
  std::vector<std::string> silent_;  ///< Hosts silent so far; empty once this is over.
  std::function<void(std::vector<std::string>)> then_;
};

}  // namespace

void find_silent_hosts(asio::io_context& loop, std::vector<std::string> hosts, std::chrono::milliseconds patience,
                       std::function<void(std::vector<std::string> silent)> then) {
  std::make_shared<Knocks>(loop, std::move(hosts), std::move(then))->start(patience);
}

}  // namespace poprun::launcher
