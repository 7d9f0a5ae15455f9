#include "replica/tables/ipu_table.h"

#include <set>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

constexpr std::size_t kRows = 8;

}  // namespace

std::vector<ListedRow> listed_rows(std::size_t count, std::size_t stands_out) {
  if (count <= kRows) {
    return all_rows(count);
  }
  std::vector<ListedRow> listed;
  std::size_t next = 0;
  for (const std::size_t index : std::set<std::size_t>{0, 1, stands_out, count - 1}) {
    listed.push_back({index, index - next, index == stands_out});
    next = index + 1;
  }
  return listed;
}

std::vector<ListedRow> all_rows(std::size_t count) {
  std::vector<ListedRow> listed;
  for (std::size_t index = 0; index < count; ++index) {
    listed.push_back({.index = index});
  }
  return listed;
}

std::string memory_text(std::uint64_t peak, std::uint64_t capacity, std::uint64_t always_live) {
  return fmt::format("{} peak of {}, {} always live", mebibytes_text(peak), mebibytes_text(capacity),
                     mebibytes_text(always_live));
}

std::string tiles_text(std::uint64_t fullest_tile, std::uint64_t peak, std::uint64_t bytes_per_tile,
                       std::uint64_t classes) {
  return fmt::format("tile {} is the fullest, {} of {} B{}; {} of tiles", fullest_tile, grouped(peak),
                     grouped(bytes_per_tile),
                     peak > bytes_per_tile ? fmt::format(", {} B over", grouped(peak - bytes_per_tile)) : "",
                     counted(classes, "kind"));
}

std::string time_text(double busy_seconds, double idle_seconds) {
  const double sum = busy_seconds + idle_seconds;
  if (sum >= 1) {
    return fmt::format("{:.2f} s busy, {:.2f} s idle", busy_seconds, idle_seconds);
  }
  return sum >= 1e-3 ? fmt::format("{:.3f} ms busy, {:.3f} ms idle", busy_seconds * 1e3, idle_seconds * 1e3)
                     : fmt::format("{:.1f} us busy, {:.1f} us idle", busy_seconds * 1e6, idle_seconds * 1e6);
}

std::string host_text(const HostPart& host) {
  const auto size = [](double bytes) {
    return bytes < 1024      ? fmt::format("{:.0f} B", bytes)
           : bytes < 1048576 ? fmt::format("{:.1f} KiB", bytes / 1024)
                             : fmt::format("{:.1f} MiB", bytes / 1048576);
  };
  const std::string calls = host.calls == 1  ? "1 call"
                            : host.calls < 1 ? fmt::format("1 call in {:.0f}", 1 / host.calls)
                                             : fmt::format("{:.0f} calls", host.calls);
  return fmt::format("{} in, {} out, {} of it; {}, {} on top (fitted)", size(host.bytes_to_device),
                     size(host.bytes_from_device), duration_text(host.stream_seconds), calls,
                     duration_text(host.call_seconds));
}

std::string io_text(double seconds, double waited_seconds) {
  return fmt::format("{}, {} of it overlapped with the other tiles' work", duration_text(seconds),
                     duration_text(seconds - waited_seconds));
}

}  // namespace poprun
