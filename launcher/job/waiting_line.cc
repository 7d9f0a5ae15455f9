#include "launcher/job/waiting_line.h"

#include <chrono>
#include <utility>

namespace poprun::launcher {

WaitingLine::WaitingLine(asio::io_context& loop, Console& console, Waiting waiting)
    : console_(console), waiting_(std::move(waiting)), timer_(loop), began_(std::chrono::steady_clock::now()) {
  wait();
}

WaitingLine::~WaitingLine() {
  timer_.cancel();
  console_.live("");
}

void WaitingLine::wait() {
  timer_.expires_after(std::chrono::milliseconds(500));
  timer_.async_wait([this](const asio::error_code& error) {
    if (error) {
      return;
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began_;
    if (elapsed.count() >= 1) {
      console_.live(waiting_text(waiting_, elapsed.count()).substr(0, console_.width() - 1));
    }
    wait();
  });
}

}  // namespace poprun::launcher
