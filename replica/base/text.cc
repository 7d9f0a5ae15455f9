#include "replica/base/text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace poprun {
namespace {

/// Returns the optimal string alignment distance. Cost: O(a * b).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t replace = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string shortened(std::string_view name, std::size_t width) {
  if (name.size() <= width) {
    return std::string{name};
  }
  const std::size_t front = (width - 2) / 2;
  return fmt::format("{}..{}", name.substr(0, front), name.substr(name.size() - (width - 2 - front)));
}

std::string group_digits(std::string digits) {
  const std::size_t first = digits.starts_with('-') ? 1 : 0;
  for (std::size_t place = digits.size(); place > first + 3; place -= 3) {
    digits.insert(place - 3, ",");
  }
  return digits;
}

std::string without_brackets(std::string host) {
  std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
  return host;
}

std::string counted(std::uint64_t number, std::string_view one) {
  return fmt::format("{} {}{}", grouped(number), one, number == 1 ? "" : "s");
}

std::string mebibytes_text(std::uint64_t bytes) {
  constexpr std::uint64_t kKibibyte = 1024;
  if (bytes < kKibibyte) {
    return fmt::format("{} B", bytes);
  }
  const auto tenths = static_cast<std::uint64_t>(std::llrint(10 * to_mebibytes(bytes)));
  return tenths == 0 ? fmt::format("{:.1f} KiB", static_cast<double>(bytes) / kKibibyte)
                     : fmt::format("{}.{} MiB", grouped(tenths / 10), tenths % 10);
}

std::string duration_text(double seconds) {
  if (seconds >= 1) {
    return fmt::format("{:.2f} s", seconds);
  }
  return seconds >= 1e-3 ? fmt::format("{:.3f} ms", seconds * 1e3) : fmt::format("{:.1f} us", seconds * 1e6);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? std::string_view{}
                                         : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string nearest(std::string_view typed, std::span<const std::string> candidates) {
  constexpr std::size_t kTypedMax = 64;  // Longer names are not typing mistakes.
  std::string best;
  const std::size_t most = typed.size() < 4 ? 1 : std::max<std::size_t>(2, typed.size() / 3);
  std::size_t least = most + 1;
  if (typed.size() > kTypedMax) {
    return best;
  }
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(typed, candidate);
    if (distance < least && distance < candidate.size()) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string suggestion(std::string_view typed, std::span<const std::string> candidates) {
  const std::string close = nearest(typed, candidates);
  return close.empty() ? fmt::format("available: {}", fmt::join(candidates, ", "))
                       : fmt::format("did you mean {}?", close);
}

}  // namespace poprun
