#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

/// Tables with one row per IPU or stage of a replica, as the plan and the summary of a job print them.
namespace poprun {

/// A row of the table.
struct ListedRow {
  std::size_t index = 0;     ///< The IPU or stage.
  std::size_t left_out = 0;  ///< Rows left out between the previous one and this one.
  bool stands_out = false;   ///< It is in a shortened table because a reader looks for it.
};

/// Returns the rows that fit a screen, in ascending order: all of up to eight, otherwise the first two, the one that
/// stands out and the last one.
std::vector<ListedRow> listed_rows(std::size_t count, std::size_t stands_out);

/// The same; the row with the largest `key` stands out.
template <typename Range, typename Key>
std::vector<ListedRow> listed_by(const Range& range, Key key) {
  const auto most = std::ranges::max_element(range, {}, key);
  return listed_rows(static_cast<std::size_t>(std::ranges::distance(range)),
                     static_cast<std::size_t>(std::distance(std::ranges::begin(range), most)));
}

/// Returns all of `count` rows.
std::vector<ListedRow> all_rows(std::size_t count);

/// Returns `2.5 MiB peak of 897.0 MiB, 37.5 KiB always live`: the sums over all tiles of their peaks, and of the bytes
/// that they hold during the whole run.
std::string memory_text(std::uint64_t peak, std::uint64_t capacity, std::uint64_t always_live);

/// Text after the memory_text of the IPU with the fullest tile of all.
inline constexpr const char* kHasFullestTile = ": the fullest";

/// Returns `tile 952 is the fullest, 12,345 of 638,976 B; 37 kinds of tiles`; if that is too much, also by how much.
/// Only tiles are reported as over, since they alone decide whether a job fits.
std::string tiles_text(std::uint64_t fullest_tile, std::uint64_t peak, std::uint64_t bytes_per_tile,
                       std::uint64_t classes);

/// Returns `1.709 ms busy, 0.716 ms idle`, both in the unit that suits their sum.
std::string time_text(double busy_seconds, double idle_seconds);

/// The host's share of a step.
struct HostPart {
  double bytes_to_device = 0;
  double bytes_from_device = 0;
  double stream_seconds = 0;  ///< Within the device step.
  double calls = 0;
  double call_seconds = 0;  ///< In addition to the device step.
};

/// Returns `12.3 KiB in, 12 B out, 3.8 us of it; 1 call, 1.850 ms on top (fitted)`.
std::string host_text(const HostPart& host);

/// Returns the work of I/O tiles in a step: `5.010 ms, 3.200 ms of it overlapped with the other tiles' work`.
std::string io_text(double seconds, double waited_seconds);

}  // namespace poprun
