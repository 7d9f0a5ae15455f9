#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

namespace poprun::launcher {

/// Finds out which of `hosts` are down or cut off: those whose ssh port neither accepts nor refuses a connection within
/// `patience`, and those whose name has no IPv4 address. Connects to all of them at once. `loop` calls `then` once:
/// when all have answered, or after `patience`.
void find_silent_hosts(asio::io_context& loop, std::vector<std::string> hosts, std::chrono::milliseconds patience,
                       std::function<void(std::vector<std::string> silent)> then);

}  // namespace poprun::launcher
