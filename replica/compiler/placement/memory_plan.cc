#include "replica/compiler/placement/memory_plan.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <numeric>

#include <fmt/format.h>

namespace poprun {
namespace {

/// A set of addresses, as ranges that neither overlap nor touch.
class Ranges {
 public:
  void add(Bytes begin, Bytes end) {
    auto next = end_by_begin_.upper_bound(begin);
    if (next != end_by_begin_.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
    }
    while (next != end_by_begin_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = end_by_begin_.erase(next);
    }
    end_by_begin_.emplace_hint(next, begin, end);
  }

  /// The lowest address, not below `begin`, from which no range reaches into what was
  /// [begin, begin + size): no block of that size can begin between the two.
  [[nodiscard]] Bytes behind(Bytes begin, Bytes size) const {
    const auto next = end_by_begin_.lower_bound(begin + size);
    return next == end_by_begin_.begin() ? begin : std::max(begin, std::prev(next)->second);
  }

 private:
  std::map<Bytes, Bytes> end_by_begin_;
};

/// Which addresses are taken at which steps: a tree whose leaves are the steps. A span is
/// stored at the few nodes that its steps are made of, where what lies side by side for equal times
/// becomes one range; so a query looks at O(log steps) nodes, and at few ranges of each.
class TakenAddresses {
 public:
  explicit TakenAddresses(std::uint32_t steps) : leaves_(std::bit_ceil(steps)) {
    nodes_.resize(2 * std::size_t{leaves_});
  }

  void take(const Claim& claim, Bytes begin, Bytes end) {
    visit(claim, [&](Node& node, bool inside) {
      node.sometimes.add(begin, end);
      if (inside) {
        node.always.add(begin, end);
      }
    });
  }

  /// Lowest offset with `size` bytes above it that are free for the claim's whole life.
  [[nodiscard]] Bytes lowest_gap(const Claim& claim, Bytes size) {
    std::vector<const Ranges*> taken;
    visit(claim, [&taken](Node& node, bool inside) {
      taken.push_back(inside ? &node.sometimes : &node.always);
    });
    Bytes candidate{0};
    for (bool moved = true; moved;) {
      moved = false;
      for (const Ranges* ranges : taken) {
        const Bytes next = ranges->behind(candidate, size);
        moved = moved || next != candidate;
        candidate = next;
      }
    }
    return candidate;
  }

 private:
  struct Node {
    Ranges always;     ///< Taken by spans that hold all the node's steps, and not its parent's.
    Ranges sometimes;  ///< Taken by spans stored at the node or below.
  };

  /// Calls call(node, whether all its steps are the span's) for each of the claim's spans and the
  /// nodes that share a step with it, but for those below one that is inside it.
  template <typename Call>
  void visit(const Claim& claim, Call call) {
    for (const Span& span : claim.spans) {
      visit(span, 1, 0, leaves_, call);
    }
  }
  template <typename Call>
  void visit(const Span& span, std::size_t node, std::uint32_t first, std::uint32_t steps,
             Call& call) {
    if (span.last < first || first + steps <= span.first) {
      return;
    }
    const bool inside = span.first <= first && first + steps - 1 <= span.last;
    call(nodes_[node], inside);
    if (!inside) {
      visit(span, 2 * node, first, steps / 2, call);
      visit(span, 2 * node + 1, first + steps / 2, steps / 2, call);
    }
  }

  std::uint32_t leaves_;
  std::vector<Node> nodes_;  ///< nodes_[1] is the root, the halves of nodes_[n] are at 2n, 2n + 1.
};

std::uint32_t steps_of(const Claim& claim) {
  std::uint32_t steps = 0;
  for (const Span& span : claim.spans) {
    steps += span.last - span.first + 1;
  }
  return steps;
}

std::vector<std::size_t> placement_order(std::span<const Claim> claims) {
  std::vector<std::size_t> order(claims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::uint32_t> steps;
  std::ranges::transform(claims, std::back_inserter(steps), steps_of);
  const std::uint32_t run = steps.empty() ? 0 : *std::ranges::max_element(steps);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    // What lives for the whole run goes to the bottom, the rest by size.
    const auto key = [&](std::size_t i) {
      return std::tuple{steps[i] != run, -claims[i].size.count(), claims[i].spans[0].first, i};
    };
    return key(a) < key(b);
  });
  return order;
}

/// Fills in lower_bound and worst_step.
void bound_plan(std::span<const Claim> claims, MemoryPlan& plan) {
  std::map<std::uint32_t, Bytes> change;
  for (const Claim& claim : claims) {
    for (const Span& span : claim.spans) {
      change[span.first] += claim.size;
      change[span.last + 1] += Bytes{0} - claim.size;
    }
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

MemoryPlan plan_memory(std::span<const Claim> claims) {
  MemoryPlan plan;
  plan.offsets.resize(claims.size());
  bound_plan(claims, plan);
  std::uint32_t steps = 1;
  for (const Claim& claim : claims) {
    steps = std::max(steps, claim.spans.back().last + 1);
  }
  TakenAddresses taken(steps);
  for (const std::size_t i : placement_order(claims)) {
    const Bytes size = align_up(claims[i].size, kTensorAlignment);
    const Bytes offset = taken.lowest_gap(claims[i], size);
    taken.take(claims[i], offset, offset + size);
    plan.offsets[i] = offset;
    plan.peak = std::max(plan.peak, offset + claims[i].size);
  }
  return plan;
}

namespace {

tl::unexpected<Error> plan_bug(std::string what) {
  return fail(ErrorCode::kBug, "memory plan: " + std::move(what));
}

/// Live claims by address, while a sweep goes over the steps.
class LiveSet {
 public:
  /// False if it shares a byte with a live one.
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
  std::size_t claim;
  friend auto operator<=>(const Event&, const Event&) = default;
};

}  // namespace

Status verify_plan(std::span<const Claim> claims, const MemoryPlan& plan) {
  if (plan.offsets.size() != claims.size()) {
    return plan_bug("not exactly one offset per claim");
  }
  std::vector<Event> events;
  std::int64_t peak = 0;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const std::int64_t offset = plan.offsets[i].count();
    if (offset < 0 || offset % 64 != 0) {
      return plan_bug(fmt::format("offset {} of claim {} is not aligned", offset, i));
    }
    peak = std::max(peak, offset + claims[i].size.count());
    for (const Span& span : claims[i].spans) {
      events.push_back({span.first, true, i});
      events.push_back({span.last + 1, false, i});
    }
  }
  std::ranges::sort(events);
  LiveSet live;
  std::int64_t most = 0;
  for (const Event& event : events) {
    const std::int64_t offset = plan.offsets[event.claim].count();
    if (!event.birth) {
      live.remove(offset);
    } else if (!live.add(offset, claims[event.claim].size.count())) {
      return plan_bug(
          fmt::format("claim {} shares bytes with another at step {}", event.claim, event.step));
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
