#include "launcher/job/waiting_line.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "launcher/screen/display.h"

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

double seconds_left(double elapsed, std::size_t done, std::size_t total) {
  return done == 0 ? 0 : elapsed / static_cast<double>(done) * static_cast<double>(total - done);
}

std::string waiting_text(const Waiting& waiting, double elapsed) {
  const bool known = waiting.seconds > elapsed;
  return fmt::format("{}  {}{}", waiting.doing, clock_text(elapsed),
                     known ? fmt::format("  ETA {}", clock_text(std::max(1.0, waiting.seconds - elapsed))) : "");
}

}  // namespace poprun::launcher
