#include "replica/compiler/placement/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

namespace poprun {
namespace {

struct Block {
  Bytes begin;
  Bytes end;
};

bool live_together(const LiveInterval& a, const LiveInterval& b) {
  return a.first <= b.last && b.first <= a.last;
}

/// Lowest offset with `size` free bytes above it, given the `taken` blocks.
Bytes lowest_gap(std::vector<Block> taken, Bytes size) {
  std::ranges::sort(taken, {}, &Block::begin);
  Bytes candidate{0};
  for (const Block& block : taken) {
    if (block.begin - candidate >= size) {
      break;
    }
    candidate = std::max(candidate, block.end);
  }
  return candidate;
}

std::vector<std::size_t> placement_order(std::span<const LiveInterval> intervals) {
  std::vector<std::size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto steps = [&](std::size_t i) { return intervals[i].last - intervals[i].first; };
  const std::uint32_t run =
      intervals.empty() ? 0 : steps(*std::ranges::max_element(order, {}, steps));
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    // What lives for the whole run goes to the bottom, the rest by size.
    const auto key = [&](std::size_t i) {
      return std::tuple{steps(i) != run, -intervals[i].size.count(), intervals[i].first, i};
    };
    return key(a) < key(b);
  });
  return order;
}

/// Fills in lower_bound and worst_step.
void bound_plan(std::span<const LiveInterval> intervals, MemoryPlan& plan) {
  std::map<std::uint32_t, Bytes> change;
  for (const LiveInterval& interval : intervals) {
    change[interval.first] += interval.size;
    change[interval.last + 1] += Bytes{0} - interval.size;
  }
  Bytes live;
  for (const auto& [step, bytes] : change) {
    live += bytes;
    if (live > plan.lower_bound) {
      plan.lower_bound = live;
      plan.worst_step = step;
    }
  }
}

}  // namespace

MemoryPlan plan_memory(std::span<const LiveInterval> intervals) {
  MemoryPlan plan;
  plan.offsets.resize(intervals.size());
  bound_plan(intervals, plan);
  std::vector<std::size_t> placed;
  for (const std::size_t current : placement_order(intervals)) {
    const Bytes size = align_up(intervals[current].size, kTensorAlignment);
    std::vector<Block> taken;
    for (const std::size_t other : placed) {
      if (live_together(intervals[current], intervals[other])) {
        const Bytes begin = plan.offsets[other];
        taken.push_back({begin, begin + align_up(intervals[other].size, kTensorAlignment)});
      }
    }
    plan.offsets[current] = lowest_gap(std::move(taken), size);
    plan.peak = std::max(plan.peak, plan.offsets[current] + intervals[current].size);
    placed.push_back(current);
  }
  return plan;
}

namespace {

tl::unexpected<Error> plan_bug(std::string what) {
  return fail(ErrorCode::kBug, "memory plan: " + std::move(what));
}

/// Live intervals by address, while a sweep goes over the steps.
class LiveSet {
 public:
  /// False where the interval shares a byte with a live one.
  bool add(std::int64_t begin, std::int64_t size) {
    const auto [entry, fresh] = end_by_begin_.emplace(begin, begin + size);
    const auto next = std::next(entry);
    bytes_ += size;
    return fresh && (next == end_by_begin_.end() || entry->second <= next->first) &&
           (entry == end_by_begin_.begin() || std::prev(entry)->second <= begin);
  }
  void remove(std::int64_t begin) {
    const auto entry = end_by_begin_.find(begin);
    bytes_ -= entry->second - entry->first;
    end_by_begin_.erase(entry);
  }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::map<std::int64_t, std::int64_t> end_by_begin_;
  std::int64_t bytes_ = 0;
};

struct Event {
  std::uint32_t step;
  bool birth;  ///< Deaths of a step come before its births.
  std::size_t interval;
  friend auto operator<=>(const Event&, const Event&) = default;
};

}  // namespace

Status verify_plan(std::span<const LiveInterval> intervals, const MemoryPlan& plan) {
  if (plan.offsets.size() != intervals.size()) {
    return plan_bug("not one offset an interval");
  }
  std::vector<Event> events;
  std::int64_t peak = 0;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const std::int64_t offset = plan.offsets[i].count();
    if (offset < 0 || offset % 64 != 0) {
      return plan_bug(fmt::format("offset {} of interval {} is not aligned", offset, i));
    }
    peak = std::max(peak, offset + intervals[i].size.count());
    events.push_back({intervals[i].first, true, i});
    events.push_back({intervals[i].last + 1, false, i});
  }
  std::ranges::sort(events);
  LiveSet live;
  std::int64_t most = 0;
  for (const Event& event : events) {
    const std::int64_t offset = plan.offsets[event.interval].count();
    if (!event.birth) {
      live.remove(offset);
    } else if (!live.add(offset, intervals[event.interval].size.count())) {
      return plan_bug(fmt::format("interval {} shares bytes with another at step {}",
                                  event.interval, event.step));
    }
    most = std::max(most, live.bytes());
  }
  if (peak != plan.peak.count() || most != plan.lower_bound.count()) {
    return plan_bug(fmt::format("peak {} B and bound {} B, plan says {} B and {} B", peak, most,
                                plan.peak.count(), plan.lower_bound.count()));
  }
  return {};
}

}  // namespace poprun
