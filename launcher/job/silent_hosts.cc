#include "launcher/job/silent_hosts.h"

#include <cstddef>
#include <memory>
#include <utility>

#include <asio/connect.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

namespace poprun::launcher {
namespace {

using asio::ip::tcp;

constexpr const char* kPortOfSsh = "22";

/// Knocks at all hosts; lives as long as somebody may answer.
class Knocks : public std::enable_shared_from_this<Knocks> {
 public:
  Knocks(asio::io_context& loop, std::function<void(std::vector<std::string>)> then)
      : loop_(loop), timer_(loop), then_(std::move(then)) {}

  void start(const std::vector<std::string>& hosts, std::chrono::milliseconds patience) {
    timer_.expires_after(patience);
    timer_.async_wait([self = shared_from_this()](const asio::error_code&) { self->end(); });
    for (const std::string& host : hosts) {
      knocks_.push_back(std::make_unique<Knock>(host, loop_));
      Knock& knock = *knocks_.back();
      knock.resolver.async_resolve(
          host, kPortOfSsh,
          [self = shared_from_this(), &knock](const asio::error_code& error,
                                              const tcp::resolver::results_type& found) {
            error || self->ended_ ? self->heard(knock, false) : self->connect(knock, found);
          });
    }
  }

 private:
  struct Knock {
    Knock(std::string name, asio::io_context& loop)
        : host(std::move(name)), resolver(loop), socket(loop) {}
    std::string host;
    tcp::resolver resolver;
    tcp::socket socket;
    bool answered = false;
  };

  void connect(Knock& knock, const tcp::resolver::results_type& found) {
    asio::async_connect(
        knock.socket, found,
        [self = shared_from_this(), &knock](const asio::error_code& error, const tcp::endpoint&) {
          self->heard(knock, !error || error == asio::error::connection_refused);
        });
  }

  void heard(Knock& knock, bool answered) {
    knock.answered = answered;
    if (++heard_ == knocks_.size()) {
      timer_.cancel();
    }
  }

  void end() {
    ended_ = true;
    std::vector<std::string> silent;
    for (const auto& knock : knocks_) {
      if (!knock->answered) {
        silent.push_back(knock->host);
      }
      asio::error_code unused;
      knock->resolver.cancel();
      knock->socket.close(unused);
    }
    then_(std::move(silent));
  }

  asio::io_context& loop_;
  asio::steady_timer timer_;
  std::function<void(std::vector<std::string>)> then_;
  std::vector<std::unique_ptr<Knock>> knocks_;
  std::size_t heard_ = 0;
  bool ended_ = false;
};

}  // namespace

void find_silent_hosts(asio::io_context& loop, const std::vector<std::string>& hosts,
                       std::chrono::milliseconds patience,
                       std::function<void(std::vector<std::string> silent)> then) {
  std::make_shared<Knocks>(loop, std::move(then))
      ->start(hosts, hosts.empty() ? std::chrono::milliseconds(0) : patience);
}

}  // namespace poprun::launcher
