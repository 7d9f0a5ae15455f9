#include "replica/compiler/recomputation/narrow_places.h"

#include <algorithm>
#include <deque>

namespace poprun {

CutPlaces cut_at_narrow_places(const std::vector<std::int64_t>& bytes,
                               const std::vector<std::int64_t>& cost, std::int64_t limit) {
  const auto size = static_cast<std::uint32_t>(bytes.size());
  std::vector<std::int64_t> least(size + 1, 0);  ///< Cost of the cuts before a place, its own too.
  std::vector<std::uint32_t> previous(size + 1, 0);
  std::deque<std::uint32_t> window = {0};  ///< Places to cut before, of rising cost.
  std::uint32_t first = 0;                 ///< The first of them.
  std::int64_t segment = 0;                ///< Bytes from `first` on.
  for (std::uint32_t place = 1; place <= size; ++place) {
    segment += bytes[place - 1];
    while (segment > limit && first + 1 < place) {
      segment -= bytes[first++];
    }
    while (window.front() < first) {
      window.pop_front();
    }
    previous[place] = window.front();
    least[place] = least[window.front()] + (place == size ? 0 : cost[place - 1]);
    while (!window.empty() && least[window.back()] > least[place]) {
      window.pop_back();
    }
    window.push_back(place);
  }
  CutPlaces cuts;
  for (std::uint32_t place = size == 0 ? 0 : previous[size]; place > 0; place = previous[place]) {
    cuts.push_back(place);
  }
  std::ranges::reverse(cuts);
  return cuts;
}

}  // namespace poprun
