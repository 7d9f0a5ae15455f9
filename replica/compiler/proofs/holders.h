#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace poprun {

/// A map from the bytes of a memory to their holders, stored as runs of bytes that have the same holders.
class Holders {
 public:
  void add(std::uint64_t begin, std::uint64_t end, std::uint32_t holder) {
    cut(begin);
    cut(end);
    for (std::uint64_t at = begin; at < end;) {
      const auto next = runs_.lower_bound(at);
      if (next != runs_.end() && next->first == at) {
        next->second.holders.push_back(holder);
        at = next->second.end;
        continue;
      }
      const std::uint64_t stop = next == runs_.end() ? end : std::min(end, next->first);
      runs_.emplace_hint(next, at, Run{stop, {holder}});
      at = stop;
    }
  }

  /// Removes a holder. Requires: `holder` holds exactly these bytes.
  void remove(std::uint64_t begin, std::uint64_t end, std::uint32_t holder) {
    for (auto run = runs_.find(begin); run != runs_.end() && run->first < end;) {
      std::erase(run->second.holders, holder);
      run = run->second.holders.empty() ? runs_.erase(run) : std::next(run);
    }
  }

  /// Returns, in ascending order, the holders that hold at least one of these bytes.
  [[nodiscard]] std::vector<std::uint32_t> in(std::uint64_t begin, std::uint64_t end) const {
    std::vector<std::uint32_t> found;
    auto run = runs_.upper_bound(begin);
    if (run != runs_.begin() && std::prev(run)->second.end > begin) {
      --run;
    }
    for (; run != runs_.end() && run->first < end; ++run) {
      found.insert(found.end(), run->second.holders.begin(), run->second.holders.end());
    }
    std::ranges::sort(found);
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

 private:
  struct Run {
    std::uint64_t end = 0;
    std::vector<std::uint32_t> holders = {};
  };

  /// Splits the run that contains the address `at` in two, so that a run begins there.
  void cut(std::uint64_t at) {
    auto run = runs_.lower_bound(at);
    if (run == runs_.begin() || (--run)->second.end <= at) {
      return;
    }
    runs_[at] = run->second;
    run->second.end = at;
  }

  std::map<std::uint64_t, Run> runs_;  ///< Keyed by first address.
};

}  // namespace poprun
