#include "replica/compiler/techniques/recomputation/standard.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/compiler/techniques/recomputation/kept.h"
#include "replica/compiler/techniques/recomputation/stage_memory.h"

namespace poprun {
namespace {

using Index = MicroBatch::Index;

constexpr double kEverything = std::numeric_limits<double>::infinity();
constexpr std::size_t kThresholds = 8;
constexpr std::int64_t kMostSegments = 32;
constexpr std::uint32_t kWhole = 128;  ///< Number of parts of a stage; activations of the last parts can be kept.

/// The rule by which a stage chooses the activations that it keeps.
struct Setting {
  double threshold = -1;        ///< Cycles per byte up to which activations are recomputed.
  std::int64_t segments = 1;    ///< A segment's limit is all recomputed bytes divided by this.
  std::uint32_t part = kWhole;  ///< Only the first `part` / kWhole of the stage is recomputed.
};

/// Cost of a choice for one IPU.
struct Price {
  Bytes memory;
  std::int64_t work = 0;
};

struct Candidate {
  Index operation = 0;
  Index last_use = 0;          ///< Position in the stage of the last forward operation that reads its results.
  std::int64_t bytes = 0;      ///< Bytes of its results.
  std::int64_t needed = 0;     ///< Number of these bytes that the backward pass reads.
  double cycles_per_byte = 0;  ///< Cost per needed byte, including operations that would run again only for it.
};

class Chooser {
 public:
  Chooser(const Graph& graph, const MicroBatch& micro_batch, const Region& update, const ChosenByName& chosen,
          const StandardGoal& goal)
      : graph_(graph),
        micro_batch_(micro_batch),
        chosen_(chosen),
        goal_(goal),
        memories_(graph, micro_batch, update, goal.ipu_of_stage, goal.stash_lengths),
        variables_(memories_.variables()),
        stages_(goal.stash_lengths.size()) {
    POPRUN_CHECK(micro_batch.last_stage() < stages_.size());
    add_candidates();
    weigh();
  }

  StandardChoice run() {
    const std::size_t ipus = *std::ranges::max_element(goal_.ipu_of_stage) + std::size_t{1};
    std::vector<Setting> best(ipus);
    std::vector<Price> prices = price(best);
    for (const double threshold : thresholds()) {
      for (std::int64_t segments = 1; segments <= kMostSegments; segments *= 2) {
        const std::vector<Setting> next(ipus, {.threshold = threshold, .segments = segments});
        take_better(next, price(next), best, prices);
      }
    }
    keep_ends(best, prices);
    StandardChoice choice{.kept = kept(best), .fullest = {}};
    for (const Price& price : prices) {
      choice.fullest = std::max(choice.fullest, price.memory);
      choice.recomputed += static_cast<double>(price.work);
    }
    choice.recomputed /= static_cast<double>(
        std::max<std::int64_t>(1, std::accumulate(goal_.work.begin(), goal_.work.end(), std::int64_t{0})));
    return choice;
  }

 private:
  [[nodiscard]] const Operation& operation(Index i) const { return micro_batch_.operations()[i]; }

  /// Adds the operations of each stage that can run again, and records when their results are last read.
  void add_candidates() {
    std::vector<Index> places(micro_batch_.backward(), MicroBatch::kNone);
    for (Index i = 0; i < micro_batch_.backward(); ++i) {
      std::vector<Candidate>& stage = stages_[operation(i).origin.stage];
      for (const TensorId id : operation(i).inputs) {
        const Index maker = micro_batch_.maker(id);
        if (maker != MicroBatch::kNone && operation(maker).origin.stage == operation(i).origin.stage) {
          stage[places[maker]].last_use = static_cast<Index>(stage.size());
        }
      }
      if (!operation(i).outputs.empty() && micro_batch_.maker(operation(i).outputs[0]) == i) {
        places[i] = static_cast<Index>(stage.size());
        stage.push_back({.operation = i, .last_use = places[i]});
        stage.back().bytes = graph_.bytes(operation(i).outputs).count();
      }
    }
    std::set<TensorId> needed;
    for (std::size_t i = micro_batch_.backward(); i < micro_batch_.operations().size(); ++i) {
      const Operation& reader = micro_batch_.operations()[i];
      for (const TensorId id : reader.inputs) {
        const Index maker = micro_batch_.maker(id);
        if (maker != MicroBatch::kNone && operation(maker).origin.stage == reader.origin.stage &&
            needed.insert(id).second) {
          stages_[reader.origin.stage][places[maker]].needed += graph_.tensor(id).type.bytes().count();
        }
      }
    }
  }

  /// Sets the cost of recomputing tensors: that of the operation and of preceding operations whose results are not
  /// needed themselves.
  void weigh() {
    std::vector<double> cycles(micro_batch_.backward(), 0);
    std::vector<bool> is_needed(micro_batch_.backward(), false);
    for (std::vector<Candidate>& stage : stages_) {
      for (Candidate& candidate : stage) {
        const Index i = candidate.operation;
        is_needed[i] = candidate.needed > 0;
        cycles[i] = static_cast<double>(goal_.work[i]);
        for (const TensorId id : operation(i).inputs) {
          const Index maker = micro_batch_.maker(id);
          const bool runs_for_it = maker != MicroBatch::kNone && !is_needed[maker] &&
                                   operation(maker).origin.stage == operation(i).origin.stage;
          cycles[i] += runs_for_it ? cycles[maker] : 0;
        }
        if (candidate.needed > 0) {
          candidate.cycles_per_byte = cycles[i] / static_cast<double>(candidate.needed);
        }
      }
    }
  }

  /// Returns thresholds that divide the needed bytes into equal shares; the last one admits all.
  [[nodiscard]] std::vector<double> thresholds() const {
    std::vector<std::pair<double, std::int64_t>> prices;
    std::int64_t total = 0;
    for (const std::vector<Candidate>& stage : stages_) {
      for (const Candidate& candidate : stage) {
        if (candidate.needed > 0) {
          prices.emplace_back(candidate.cycles_per_byte, candidate.needed);
          total += candidate.needed;
        }
      }
    }
    std::ranges::sort(prices);
    std::vector<double> found;
    std::int64_t below = 0;
    for (const auto& [threshold, bytes] : prices) {
      below += bytes;
      const auto share = static_cast<std::int64_t>(found.size() + 1);
      if (below * static_cast<std::int64_t>(kThresholds) >= total * share && found.size() + 1 < kThresholds) {
        found.push_back(threshold);
      }
    }
    found.push_back(kEverything);
    return found;
  }

  /// Returns, for each tensor, whether it is kept. `settings`: one per IPU.
  [[nodiscard]] std::vector<bool> kept(const std::vector<Setting>& settings) const {
    std::vector<bool> kept(graph_.tensors().size(), true);
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const Setting& setting = settings[goal_.ipu_of_stage[s]];
      const std::size_t end = stages_[s].size() * setting.part / kWhole;
      for (std::size_t k = 0; k < end; ++k) {
        const Candidate& candidate = stages_[s][k];
        if (candidate.needed == 0 || candidate.cycles_per_byte <= setting.threshold) {
          set(candidate, false, kept);
        }
      }
      cut(stages_[s], setting, kept);
    }
    chosen_.apply_to(kept);
    return kept;
  }

  void set(const Candidate& candidate, bool is_kept, std::vector<bool>& kept) const {
    for (const TensorId id : operation(candidate.operation).outputs) {
      kept[index_of(id)] = is_kept;
    }
  }

  [[nodiscard]] bool is_kept(const Candidate& candidate, const std::vector<bool>& kept) const {
    return kept[index_of(operation(candidate.operation).outputs[0])];
  }

  /// Cuts a stage into segments, and keeps the tensors that cross a cut.
  void cut(const std::vector<Candidate>& stage, const Setting& setting, std::vector<bool>& kept) const {
    if (setting.threshold < 0 || setting.segments == 1) {
      return;
    }
    std::vector<std::int64_t> bytes(stage.size(), 0);
    std::vector<std::int64_t> cost(stage.size() + 1, 0);
    for (std::size_t k = 0; k < stage.size(); ++k) {
      if (!is_kept(stage[k], kept)) {
        bytes[k] = stage[k].needed;
        cost[k] += stage[k].bytes;
        cost[stage[k].last_use] -= stage[k].bytes;
      }
    }
    std::partial_sum(cost.begin(), cost.end(), cost.begin());
    cost.pop_back();
    const std::int64_t total = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
    const CutPlaces cuts = cut_at_narrow_places(bytes, cost, total / setting.segments);
    auto next = cuts.begin();
    for (std::size_t k = 0; k < stage.size(); ++k) {
      next = std::find_if(next, cuts.end(), [k](Index place) { return place > k; });
      if (next != cuts.end() && *next <= stage[k].last_use) {
        set(stage[k], true, kept);
      }
    }
  }

  /// Returns each IPU's price. Stages on one IPU hold their kept tensors at the same time, but run one at a time.
  std::vector<Price> price(const std::vector<Setting>& settings) {
    const std::vector<bool> kept_tensors = kept(settings);
    const ClonePlan plan = plan_clones(micro_batch_, kept_tensors);
    const std::vector<StageMemory> memories = memories_.measure(plan, kept_tensors);
    std::vector<Price> prices(settings.size());
    std::vector<Bytes> peaks(settings.size());
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const std::uint32_t ipu = goal_.ipu_of_stage[s];
      prices[ipu].memory += variables_[s] + memories[s].stashed;
      peaks[ipu] = std::max(peaks[ipu], memories[s].peak);
    }
    for (std::size_t ipu = 0; ipu < prices.size(); ++ipu) {
      prices[ipu].memory += peaks[ipu];
    }
    for (const auto& clones : plan) {
      for (const Index i : clones) {
        prices[goal_.ipu_of_stage[operation(i).origin.stage]].work += goal_.work[i];
      }
    }
    return prices;
  }

  [[nodiscard]] bool fits(const Price& price) const { return price.memory <= goal_.memory(); }

  [[nodiscard]] bool is_better(const Price& a, const Price& b) const {
    if (fits(a) != fits(b)) {
      return fits(a);
    }
    return fits(a) ? std::pair(a.work, a.memory) < std::pair(b.work, b.memory)
                   : std::pair(a.memory, a.work) < std::pair(b.memory, b.work);
  }

  void take_better(const std::vector<Setting>& next, const std::vector<Price>& next_prices, std::vector<Setting>& best,
                   std::vector<Price>& prices) const {
    for (std::size_t ipu = 0; ipu < best.size(); ++ipu) {
      if (is_better(next_prices[ipu], prices[ipu])) {
        best[ipu] = next[ipu];
        prices[ipu] = next_prices[ipu];
      }
    }
  }

  /// Finds by bisection the smallest part of each IPU's stages that must be recomputed.
  void keep_ends(std::vector<Setting>& best, std::vector<Price>& prices) {
    std::vector<std::uint32_t> too_small(best.size(), 0);
    for (std::uint32_t step = kWhole / 2; step > 0; step /= 2) {
      std::vector<Setting> next = best;
      for (std::size_t ipu = 0; ipu < best.size(); ++ipu) {
        next[ipu].part = too_small[ipu] + step;
      }
      const std::vector<Price> next_prices = price(next);
      for (std::size_t ipu = 0; ipu < best.size(); ++ipu) {
        too_small[ipu] += fits(next_prices[ipu]) ? 0 : step;
      }
      take_better(next, next_prices, best, prices);
    }
  }

  const Graph& graph_;
  const MicroBatch& micro_batch_;
  const ChosenByName& chosen_;
  const StandardGoal& goal_;
  StageMemories memories_;
  std::vector<Bytes> variables_;  ///< Indexed by stage.
  std::vector<std::vector<Candidate>> stages_;
};

}  // namespace

CutPlaces cut_at_narrow_places(const std::vector<std::int64_t>& bytes, const std::vector<std::int64_t>& cost,
                               std::int64_t limit) {
  const auto size = static_cast<std::uint32_t>(bytes.size());
  std::vector<std::int64_t> least(size + 1, 0);  ///< Lowest cost of the cuts up to and including a place.
  std::vector<std::uint32_t> previous(size + 1, 0);
  std::deque<std::uint32_t> window = {0};  ///< Possible places of the previous cut, sorted by rising cost.
  std::uint32_t first = 0;                 ///< First place of the previous cut that the limit allows.
  std::int64_t segment = 0;                ///< Bytes since `first`.
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

StandardChoice choose_standard(const Graph& graph, const MicroBatch& micro_batch, const Region& update,
                               const ChosenByName& chosen, const StandardGoal& goal) {
  return Chooser(graph, micro_batch, update, chosen, goal).run();
}

Note note_of(const StandardChoice& choice, const StandardGoal& goal) {
  const std::string needs = mebibytes_text(static_cast<std::uint64_t>(choice.fullest.count()));
  const std::string had =
      fmt::format("{} (pipeline.recomputation-memory = {})",
                  mebibytes_text(static_cast<std::uint64_t>(goal.memory().count())), goal.proportion);
  std::vector<Fact> facts = {{"needed", choice.fullest}, {"goal", goal.memory()}};
  if (choice.fullest > goal.memory()) {
    return {"recomputation.standard",
            fmt::format("pipeline.recomputation = standard misses its goal of {}: the fullest IPU needs at least "
                        "about {}, even with {:.0f} % of the forward pass recomputed",
                        had, needs, 100 * choice.recomputed),
            std::move(facts)};
  }
  return {"recomputation.standard",
          choice.recomputed == 0
              ? fmt::format("pipeline.recomputation = standard recomputes nothing: the fullest IPU needs only about "
                            "{} of {} without recomputation",
                            needs, had)
              : fmt::format("pipeline.recomputation = standard recomputes {:.0f} % of the forward pass; the fullest "
                            "IPU needs about {} of {}",
                            100 * choice.recomputed, needs, had),
          std::move(facts)};
}

}  // namespace poprun
