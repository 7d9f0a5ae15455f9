#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "launcher/screen/console.h"

namespace poprun::launcher {

/// What a wait is for, and its expected duration.
struct Waiting {
  std::string doing = {};  ///< "compiling"; empty: not shown.
  double seconds = 0;      ///< Expected duration of this wait and all that follow it; 0: unknown.
};

/// Shows in the live line of a terminal what the launcher waits for, how long it has waited, and how long it probably
/// still will: `compiling  0:12  ETA 1:05`. Shows nothing during the first second. Must not outlive the
/// loop.
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

/// Returns how long the remaining ones of `total` equal pieces of work will probably take, if `done` of them took
/// `elapsed` seconds. Returns 0 if this is unknown because none is done.
double seconds_left(double elapsed, std::size_t done, std::size_t total);

/// Returns the text of the line after `elapsed` seconds.
std::string waiting_text(const Waiting& waiting, double elapsed);

}  // namespace poprun::launcher
