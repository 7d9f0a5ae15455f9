#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

namespace poprun::launcher {

/// Which of `hosts` are down or cut off: those whose port of ssh neither takes nor refuses a
/// connection within `patience`. All are asked at once, from `loop`, which calls `then` once, at
/// most `patience` later. A host whose name has no address counts as one that does not answer.
void find_silent_hosts(asio::io_context& loop, const std::vector<std::string>& hosts,
                       std::chrono::milliseconds patience,
                       std::function<void(std::vector<std::string> silent)> then);

}  // namespace poprun::launcher
