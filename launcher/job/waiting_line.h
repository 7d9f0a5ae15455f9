#pragma once

#include <chrono>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "launcher/screen/console.h"
#include "launcher/screen/display.h"

namespace poprun::launcher {

/// Shows in the live line of a terminal the activity, the time elapsed and the estimated time left (waiting_text),
/// after the first second. Must not outlive the loop.
class WaitingLine {
 public:
  WaitingLine(asio::io_context& loop, Console& console, Waiting waiting);
  WaitingLine(const WaitingLine&) = delete;
  WaitingLine& operator=(const WaitingLine&) = delete;
  /// Clears the live line.
  ~WaitingLine();

 private:
  void wait();

  Console& console_;
  Waiting waiting_;
  asio::steady_timer timer_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace poprun::launcher
