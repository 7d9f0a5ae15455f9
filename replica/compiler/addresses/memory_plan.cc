#include "replica/compiler/addresses/memory_plan.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <memory_resource>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace poprun {
namespace {

/// A set of addresses, stored as a vector of ranges that neither overlap nor touch; there are only a few ranges.
class Ranges {
 public:
  explicit Ranges(std::pmr::memory_resource* arena) : ranges_(arena) {}

  void add(Bytes begin, Bytes end) {
    // `first` is the first range that touches [begin, end), and `last` the first after it that does not.
    auto first = std::ranges::lower_bound(ranges_, begin, {}, &Range::end);
    const auto last = std::ranges::upper_bound(first, ranges_.end(), end, {}, &Range::begin);
    if (first == last) {
      ranges_.insert(first, {begin, end});
      return;
    }
    *first = {std::min(begin, first->begin), std::max(end, std::prev(last)->end)};
    ranges_.erase(std::next(first), last);
  }

  [[nodiscard]] bool empty() const { return ranges_.empty(); }

  /// Returns the end of the last range that overlaps [begin, begin + size), or `begin` if none does. Every block of
  /// this size that begins between `begin` and the returned end overlaps that range.
  [[nodiscard]] Bytes behind(Bytes begin, Bytes size) const {
    const auto next = std::ranges::lower_bound(ranges_, begin + size, {}, &Range::begin);
    return next == ranges_.begin() ? begin : std::max(begin, std::prev(next)->end);
  }

 private:
  struct Range {
    Bytes begin;
    Bytes end;
  };
  std::pmr::vector<Range> ranges_;  ///< In ascending order.
};

/// A part of a block, all of whose bytes are claimed at the same steps.
struct BlockPart {
  std::vector<Span> spans;
  Bytes begin;  ///< Offset in the block.
  Bytes end;
};

struct Block {
  std::vector<std::size_t> claims;  ///< In ascending order.
  std::vector<BlockPart> pieces;    ///< In ascending order, without overlaps.
  Bytes size;
  std::uint32_t steps = 0;  ///< Number of steps at which at least one byte is claimed.
};

std::vector<BlockPart> pieces_of(std::span<const Claim> claims, const std::vector<std::size_t>& block) {
  if (block.size() == 1) {
    const Claim& only = claims[block[0]];
    return {{united(only.spans), only.in_block, only.in_block + only.size}};
  }
  std::set<Bytes> cuts;
  for (const std::size_t i : block) {
    cuts.insert(claims[i].in_block);
    cuts.insert(claims[i].in_block + claims[i].size);
  }
  std::vector<BlockPart> pieces;
  for (auto begin = cuts.begin(); std::next(begin) != cuts.end(); ++begin) {
    BlockPart piece{{}, *begin, *std::next(begin)};
    for (const std::size_t i : block) {
      const Claim& claim = claims[i];
      if (claim.in_block < piece.end && piece.begin < claim.in_block + claim.size) {
        piece.spans.insert(piece.spans.end(), claim.spans.begin(), claim.spans.end());
      }
    }
    piece.spans = united(std::move(piece.spans));
    if (!piece.spans.empty()) {
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

/// Returns the number of steps at which any of the pieces is claimed.
std::uint32_t steps_of(const std::vector<BlockPart>& pieces) {
  std::uint32_t steps = 0;
  const auto count = [&steps](const std::vector<Span>& spans) {
    for (const Span& span : spans) {
      steps += span.last - span.first + 1;
    }
  };
  if (pieces.size() == 1) {
    count(pieces[0].spans);
    return steps;
  }
  std::vector<Span> spans;
  for (const BlockPart& piece : pieces) {
    spans.insert(spans.end(), piece.spans.begin(), piece.spans.end());
  }
  count(united(std::move(spans)));
  return steps;
}

/// Groups claims into blocks, in the order of their first claims.
std::vector<Block> blocks_of(std::span<const Claim> claims) {
  std::vector<Block> blocks;
  std::map<std::uint32_t, std::size_t> known;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const auto found = claims[i].block ? known.find(*claims[i].block) : known.end();
    if (found != known.end()) {
      blocks[found->second].claims.push_back(i);
      continue;
    }
    if (claims[i].block) {
      known.emplace(*claims[i].block, blocks.size());
    }
    blocks.emplace_back().claims = {i};
  }
  for (Block& block : blocks) {
    block.pieces = pieces_of(claims, block.claims);
    block.size = block.pieces.back().end;
    block.steps = steps_of(block.pieces);
  }
  return blocks;
}

/// Keeps only the steps at which a live range begins or has just ended, to shrink the segment tree. Returns the number
/// of steps kept.
std::uint32_t leave_out_steps(std::vector<Block>& blocks) {
  std::vector<std::uint32_t> changes;
  const auto for_each_span = [&blocks](auto call) {
    for (Block& block : blocks) {
      for (BlockPart& piece : block.pieces) {
        std::ranges::for_each(piece.spans, call);
      }
    }
  };
  for_each_span([&](const Span& span) {
    changes.push_back(span.first);
    changes.push_back(span.last + 1);
  });
  std::ranges::sort(changes);
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
  const auto place_of = [&](std::uint32_t step) {
    return static_cast<std::uint32_t>(std::ranges::lower_bound(changes, step) - changes.begin());
  };
  for_each_span([&](Span& span) { span = {place_of(span.first), place_of(span.last + 1) - 1}; });
  return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(changes.size()));
}

/// A segment tree over steps that stores taken addresses. A span is stored at the few nodes that together cover its
/// steps. Ranges of adjacent addresses merge in a node. A query visits O(log steps) nodes, each with few ranges.
class TakenAddresses {
 public:
  TakenAddresses(std::uint32_t steps, Bytes alignment) : leaves_(std::bit_ceil(steps)), alignment_(alignment) {
    nodes_.reserve(2 * std::size_t{leaves_});
    while (nodes_.size() < nodes_.capacity()) {
      nodes_.push_back({Ranges(&arena_), Ranges(&arena_)});
    }
  }

  void take(const Block& block, Bytes offset) {
    for (const BlockPart& piece : block.pieces) {
      const Bytes begin = offset + align_down(piece.begin);
      const Bytes end = offset + align_up(piece.end, alignment_);
      visit(piece, [&](Node& node, bool inside) {
        node.sometimes.add(begin, end);
        if (inside) {
          node.always.add(begin, end);
        }
      });
    }
  }

  /// Returns the lowest offset at which all the block's pieces are free for their whole live ranges.
  [[nodiscard]] Bytes lowest_gap(const Block& block) {
    obstacles_.clear();
    for (const BlockPart& piece : block.pieces) {
      const Bytes begin = align_down(piece.begin);
      const Bytes size = align_up(piece.end, alignment_) - begin;
      visit(piece, [&](Node& node, bool inside) {
        const Ranges& taken = inside ? node.sometimes : node.always;
        if (!taken.empty()) {
          obstacles_.push_back({&taken, begin, size});
        }
      });
    }
    Bytes candidate{0};
    for (bool moved = true; moved;) {
      moved = false;
      for (const Obstacle& o : obstacles_) {
        const Bytes next = o.taken->behind(candidate + o.begin, o.size) - o.begin;
        moved = moved || next != candidate;
        candidate = next;
      }
    }
    return candidate;
  }

 private:
  struct Node {
    Ranges always;     ///< Taken by spans that cover all steps of the node, but not all steps of its parent.
    Ranges sometimes;  ///< Taken by spans stored at the node or below.
  };

  /// Taken addresses that some bytes of the block must avoid.
  struct Obstacle {
    const Ranges* taken;
    Bytes begin;  ///< Offset of the bytes in the block.
    Bytes size;
  };

  [[nodiscard]] Bytes align_down(Bytes offset) const {
    return Bytes{offset.count() / alignment_.count() * alignment_.count()};
  }

  /// Calls call(node, covered) for each of the piece's spans and each node that shares a step with the span, except for
  /// nodes below a covered one. `covered` is whether the span covers the node.
  template <typename Call>
  void visit(const BlockPart& piece, Call call) {
    for (const Span& span : piece.spans) {
      visit(span, 1, 0, leaves_, call);
    }
  }
  template <typename Call>
  void visit(const Span& span, std::size_t node, std::uint32_t first, std::uint32_t steps, Call& call) {
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
  Bytes alignment_;
  std::vector<Obstacle> obstacles_;            ///< Obstacles to the block that is being placed.
  std::pmr::monotonic_buffer_resource arena_;  ///< Holds the ranges of all nodes.
  std::vector<Node> nodes_;                    ///< nodes_[1] is the root; the halves of nodes_[n] are at 2n and 2n + 1.
};

void sort_for_placement(std::vector<Block>& blocks) {
  std::uint32_t run = 0;
  for (const Block& block : blocks) {
    run = std::max(run, block.steps);
  }
  std::ranges::sort(blocks, {}, [run](const Block& block) {
    // Blocks with the longest live range come first, at the bottom; the others follow in order of decreasing size.
    return std::tuple{block.steps != run, -block.size.count(), block.pieces[0].spans[0].first, block.claims[0]};
  });
}

void bound_plan(const std::vector<Block>& blocks, MemoryPlan& plan) {
  std::vector<std::pair<std::uint32_t, Bytes>> changes;
  for (const Block& block : blocks) {
    for (const BlockPart& piece : block.pieces) {
      for (const Span& span : piece.spans) {
        changes.emplace_back(span.first, piece.end - piece.begin);
        changes.emplace_back(span.last + 1, piece.begin - piece.end);
      }
    }
  }
  std::ranges::sort(changes);
  Bytes live;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const std::uint32_t step = changes[i].first;
    live += changes[i].second;
    const bool is_last = i + 1 == changes.size() || changes[i + 1].first != step;
    if (is_last && live > plan.lower_bound) {
      plan.lower_bound = live;
      plan.worst_step = step;
    }
  }
}

}  // namespace

MemoryPlan plan_memory(std::span<const Claim> claims, Bytes alignment) {
  MemoryPlan plan;
  plan.offsets.resize(claims.size());
  std::vector<Block> blocks = blocks_of(claims);
  bound_plan(blocks, plan);
  sort_for_placement(blocks);
  TakenAddresses taken(leave_out_steps(blocks), alignment);
  for (const Block& block : blocks) {
    const Bytes offset = taken.lowest_gap(block);
    taken.take(block, offset);
    for (const std::size_t i : block.claims) {
      plan.offsets[i] = offset + claims[i].in_block;
      plan.peak = std::max(plan.peak, plan.offsets[i] + claims[i].size);
    }
  }
  return plan;
}

namespace {

tl::unexpected<Error> plan_bug(std::string what) {
  return fail(ErrorCode::kBug, "memory plan: " + std::move(what));
}

class LiveNow {
 public:
  /// Adds a claim to these bytes. Returns false if one of the bytes belongs to a different owner.
  bool add(std::int64_t begin, std::int64_t end, std::size_t owner) {
    cut(begin);
    cut(end);
    bool free = true;
    for (std::int64_t at = begin; at < end;) {
      const auto next = runs_.lower_bound(at);
      if (next == runs_.end() || next->first > at) {
        const std::int64_t stop = next == runs_.end() ? end : std::min(end, next->first);
        runs_[at] = {stop, owner, 1};
        bytes_ += stop - at;
        at = stop;
        continue;
      }
      free = free && next->second.owner == owner;
      ++next->second.claims;
      at = next->second.end;
    }
    return free;
  }

  void remove(std::int64_t begin, std::int64_t end) {
    for (auto run = runs_.find(begin); run != runs_.end() && run->first < end;) {
      if (--run->second.claims > 0) {
        ++run;
        continue;
      }
      bytes_ -= run->second.end - run->first;
      run = runs_.erase(run);
    }
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  struct Run {
    std::int64_t end = 0;
    std::size_t owner = 0;
    int claims = 0;  ///< Number of live claims that include the run.
  };

  /// Splits the run that contains the address `at`, if any, so that a run begins there.
  void cut(std::int64_t at) {
    auto run = runs_.lower_bound(at);
    if (run == runs_.begin() || (--run)->second.end <= at) {
      return;
    }
    runs_[at] = run->second;
    run->second.end = at;
  }

  std::pmr::unsynchronized_pool_resource pool_;
  std::pmr::map<std::int64_t, Run> runs_{&pool_};  ///< Keyed by first address.
  std::int64_t bytes_ = 0;
};

struct Event {
  std::uint32_t step;
  bool birth;  ///< False sorts first: deaths come before births at the same step.
  std::size_t claim;
  friend auto operator<=>(const Event&, const Event&) = default;
};

}  // namespace

Status verify_plan(std::span<const Claim> claims, const MemoryPlan& plan, Bytes alignment) {
  if (plan.offsets.size() != claims.size()) {
    return plan_bug("the number of offsets differs from the number of claims");
  }
  std::vector<Event> events;
  std::vector<std::size_t> owners;
  std::map<std::uint32_t, std::size_t> first_of_block;
  std::int64_t peak = 0;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const std::int64_t offset = plan.offsets[i].count();
    if (offset < 0 || offset % alignment.count() != 0) {
      return plan_bug(fmt::format("offset {} of claim {} is not aligned", offset, i));
    }
    owners.push_back(claims[i].block ? first_of_block.try_emplace(*claims[i].block, i).first->second : i);
    if (plan.offsets[i] - claims[i].in_block != plan.offsets[owners[i]] - claims[owners[i]].in_block) {
      return plan_bug(fmt::format("claims {} and {} of one block are the wrong distance apart", owners[i], i));
    }
    peak = std::max(peak, offset + claims[i].size.count());
    for (const Span& span : claims[i].spans) {
      events.push_back({span.first, true, i});
      events.push_back({span.last + 1, false, i});
    }
  }
  std::ranges::sort(events);
  LiveNow live;
  std::int64_t most = 0;
  for (const Event& event : events) {
    const std::int64_t begin = plan.offsets[event.claim].count();
    const std::int64_t end = begin + claims[event.claim].size.count();
    if (!event.birth) {
      live.remove(begin, end);
    } else if (!live.add(begin, end, owners[event.claim])) {
      return plan_bug(fmt::format("claim {} shares bytes with another claim at step {}", event.claim, event.step));
    }
    most = std::max(most, live.bytes());
  }
  if (peak != plan.peak.count() || most != plan.lower_bound.count()) {
    return plan_bug(fmt::format("the peak is {} B and the bound is {} B, but the plan states {} B and {} B", peak, most,
                                plan.peak.count(), plan.lower_bound.count()));
  }
  return {};
}

}  // namespace poprun
