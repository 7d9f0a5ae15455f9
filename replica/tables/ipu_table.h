#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

/// Tables with a row for each IPU or stage of a replica, as the plan and the summary of a job print them.
namespace poprun {

/// A row of the table.
struct ListedRow {
  std::size_t index = 0;     ///< The IPU or stage.
  std::size_t left_out = 0;  ///< Those between the row before and this one.
  bool stands_out = false;   ///< It is in a shortened table because a reader looks for it.
};

/// The rows that fit a screen: all of up to eight, else the first two, the one that stands out and the last one.
/// Rising.
std::vector<ListedRow> listed_rows(std::size_t count, std::size_t stands_out);

/// The same, where the one with the largest `key` stands out.
template <typename Range, typename Key>
std::vector<ListedRow> listed_by(const Range& range, Key key) {
  const auto most = std::ranges::max_element(range, {}, key);
  return listed_rows(static_cast<std::size_t>(std::ranges::distance(range)),
                     static_cast<std::size_t>(std::distance(std::ranges::begin(range), most)));
}

/// A row for each.
std::vector<ListedRow> all_rows(std::size_t count);

/// `2.5 MiB peak of 897.0 MiB, 37.5 KiB always live`: the peaks of all tiles added up, and what they hold together for
/// the whole run.
std::string memory_text(std::uint64_t peak, std::uint64_t capacity, std::uint64_t always_live);

/// Behind the memory_text of the IPU whose fullest tile is the fullest of all.
inline constexpr const char* kHasFullestTile = ": the fullest";

/// `tile 952 is the fullest, 12,345 of 638,976 B; 37 kinds of tiles`; where it does not fit, also by how much. Only a
/// tile is over, since it alone decides whether a job fits.
std::string tiles_text(std::uint64_t fullest_tile, std::uint64_t peak, std::uint64_t bytes_per_tile,
                       std::uint64_t classes);

/// `1.709 ms busy, 0.716 ms idle`: in the unit that suits their sum, so that they compare.
std::string time_text(double busy_seconds, double idle_seconds);

/// The host's share of a step.
struct HostPart {
  double bytes_to_device = 0;
  double bytes_from_device = 0;
  double stream_seconds = 0;  ///< Within the device step.
  double calls = 0;
  double call_seconds = 0;  ///< Besides the device step.
};

/// `12.3 KiB in, 12 B out, 3.8 us of the step; 1 call, 1.85 ms besides (fitted)`.
std::string host_text(const HostPart& host);

/// The work of I/O tiles in a step: `5.010 ms, 3.200 ms of it beside the other tiles' work`.
std::string io_text(double seconds, double waited_seconds);

}  // namespace poprun
