#include "replica/base/listed_rows.h"

#include <set>

namespace poprun {

std::vector<ListedRow> listed_rows(std::size_t count, std::size_t stands_out) {
  constexpr std::size_t kRows = 8;
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

}  // namespace poprun
