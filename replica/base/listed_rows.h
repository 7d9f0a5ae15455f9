#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

/// Selects the same rows of a table (with a row per IPU or stage of a replica) for the screen, errors and notes.
namespace poprun {

struct ListedRow {
  std::size_t index = 0;     ///< The IPU or stage.
  std::size_t left_out = 0;  ///< Rows left out between the previous one and this one.
  bool stands_out = false;   ///< Kept even in a shortened table, because readers look for this row.
};

/// Returns the rows that fit on a screen, in ascending order: all rows if there are at most eight, otherwise the first
/// two, the one that stands out and the last.
std::vector<ListedRow> listed_rows(std::size_t count, std::size_t stands_out);

/// Returns the listed rows of `range`; the row with the largest `key` stands out.
template <typename Range, typename Key>
std::vector<ListedRow> listed_by(const Range& range, Key key) {
  const auto most = std::ranges::max_element(range, {}, key);
  return listed_rows(static_cast<std::size_t>(std::ranges::distance(range)),
                     static_cast<std::size_t>(std::distance(std::ranges::begin(range), most)));
}

std::vector<ListedRow> all_rows(std::size_t count);

}  // namespace poprun
