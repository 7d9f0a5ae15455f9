#include "replica/compiler/outlining/pieces.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "replica/compiler/liveness/liveness.h"
#include "replica/compiler/mapping/plans.h"
#include "replica/compiler/tiles/demand.h"

namespace poprun {
namespace {

/// More pieces than that save little: what one operation reads is always copied.
constexpr std::size_t kMostPieces = 8;

/// How one run uses a tensor.
struct Used {
  struct Use {
    std::size_t operation = 0;  ///< Counted from the run's first.
    bool reads = false;
  };
  std::vector<Use> uses;
  Bytes bytes;
  bool is_read_after = false;  ///< What the run leaves in it.

  /// Whether a piece [begin, end) reads what was there before, and somebody reads it after that.
  [[nodiscard]] bool is_there_twice(std::size_t begin, std::size_t end) const {
    const auto from = [this](std::size_t operation) {
      return std::ranges::find_if(uses, [&](const Use& use) { return use.operation >= operation; });
    };
    const auto first = from(begin);
    const auto next = from(end);
    const bool comes_in = first != uses.end() && first->operation < end && first->reads;
    return comes_in && (next == uses.end() ? is_read_after : next->reads);
  }
};

class Cutting {
 public:
  Cutting(const Graph& graph, const EqualRuns& equal, const Reads& reads, const StepBytes& bytes,
          const Device& device)
      : graph_(graph), equal_(equal), bytes_(bytes), device_(device) {
    const Run& first = equal.runs.front();
    ipu_ = graph.tensor(graph.at(first.place).operations[first.begin].outputs.at(0)).ipu;
    find_uses(reads);
    find_needs();
  }

  /// Where pieces end, the last with the run.
  std::vector<std::size_t> ends() const {
    const std::size_t size = equal_.runs.front().size();
    // The lowest peak of the first `end` operations in some pieces, and where the last one begins.
    struct Best {
      std::optional<Bytes> peak;
      std::size_t begin = 0;
    };
    std::vector<std::vector<Best>> best(1, std::vector<Best>(size + 1));
    best[0][0].peak = Bytes{};
    std::size_t fewest = 1;
    Bytes least{std::numeric_limits<std::int64_t>::max()};
    for (std::size_t pieces = 1; pieces <= kMostPieces; ++pieces) {
      std::vector<Best>& now = best.emplace_back(size + 1);
      for (std::size_t end = kLeastRun; end <= size; ++end) {
        for (std::size_t begin = 0; begin + kLeastRun <= end; ++begin) {
          const std::optional<Bytes>& before = best[pieces - 1][begin].peak;
          const Bytes peak = before ? std::max(*before, need_[begin][end]) : Bytes{};
          if (before && (!now[end].peak || peak < *now[end].peak)) {
            now[end] = {peak, begin};
          }
        }
      }
      if (now[size].peak && taken(pieces, *now[size].peak) < least) {
        least = taken(pieces, *now[size].peak);
        fewest = pieces;
      }
    }
    std::vector<std::size_t> all;
    for (std::size_t end = size, pieces = fewest; pieces > 0; --pieces) {
      all.insert(all.begin(), end);
      end = best[pieces][end].begin;
    }
    return all;
  }

 private:
  void find_uses(const Reads& reads) {
    std::vector<std::vector<TensorId>> same;  // By tensor of a run: what it is in each run.
    for (const Run& run : equal_.runs) {
      const std::vector<TensorId> tensors = tensors_of(graph_, run);
      same.resize(tensors.size());
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        same[t].push_back(tensors[t]);
      }
    }
    const Run& run = equal_.runs.front();
    std::map<TensorId, Used> all;
    for (std::size_t o = 0; o < run.size(); ++o) {
      const Operation& operation = graph_.at(run.place).operations[run.begin + o];
      for (const TensorId id : operation.inputs) {
        all[id].uses.push_back({o, true});
      }
      for (const TensorId id : operation.outputs) {
        all[id].uses.push_back({o, false});
      }
    }
    for (const std::vector<TensorId>& names : same) {
      const bool is_shared =
          std::ranges::all_of(names, [&](TensorId id) { return id == names.front(); });
      // What only the region uses, pieces leave to each other.
      if (is_shared ||
          reads.only_in(run.place, 0, graph_.at(run.place).operations.size(), names.front())) {
        continue;
      }
      Used& used = used_.emplace_back(std::move(all[names.front()]));
      used.bytes = graph_.tensor(names.front()).type.bytes();
      used.is_read_after = reads.after(run, names.front());
    }
  }

  /// What is there at most while each possible piece runs.
  void find_needs() {
    const std::size_t size = equal_.runs.front().size();
    need_.assign(size, std::vector<Bytes>(size + 1));
    for (std::size_t begin = 0; begin < size; ++begin) {
      Bytes there;
      for (std::size_t end = begin + 1; end <= size; ++end) {
        for (const Run& run : equal_.runs) {
          there = std::max(there, bytes_.at(run.place, run.begin + end - 1, ipu_));
        }
        Bytes twice;
        for (const Used& used : used_) {
          twice += used.is_there_twice(begin, end) ? used.bytes : Bytes{};
        }
        need_[begin][end] = there + twice;
      }
    }
  }

  /// On a tile.
  [[nodiscard]] Bytes taken(std::size_t pieces, Bytes peak) const {
    const std::int64_t raised = (peak - bytes_.peak(ipu_)).count();
    const auto copies = static_cast<std::int64_t>((pieces + 1) * equal_.runs.size());
    return kControlCode * copies + Bytes{raised <= 0 ? 0 : ceil_div(raised, device_.tiles)};
  }

  const Graph& graph_;
  const EqualRuns& equal_;
  const StepBytes& bytes_;
  const Device& device_;
  std::uint32_t ipu_ = 0;
  std::vector<Used> used_;                ///< Those that have copies.
  std::vector<std::vector<Bytes>> need_;  ///< By begin and end of a piece.
};

}  // namespace

StepBytes::StepBytes(const Graph& graph, const Device& device, std::int64_t ipus) {
  const Liveness liveness = compute_liveness(graph);
  std::uint32_t step = 0;
  for (const Function& function : graph.functions) {
    std::vector<std::uint32_t>& regions = first_step_.emplace_back();
    for (const Region& region : function.regions) {
      regions.push_back(step);
      step += static_cast<std::uint32_t>(region.operations.size()) + (region.repeat > 1 ? 1U : 0U);
    }
  }
  by_step_.assign(static_cast<std::size_t>(ipus),
                  std::vector<Bytes>(liveness.step_count + std::size_t{1}));
  for (std::size_t t = 0; t < liveness.lives.size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    if (tensor.is_remote()) {
      continue;
    }
    for (const Span& span : liveness.lives[t].spans) {
      by_step_.at(tensor.ipu)[span.first] += tensor.type.bytes();
      by_step_.at(tensor.ipu)[span.last + 1] += tensor.type.bytes() * -1;
    }
  }
  for (std::vector<Bytes>& steps : by_step_) {
    for (std::size_t s = 1; s < steps.size(); ++s) {
      steps[s] += steps[s - 1];
    }
  }
  for_each_step(graph, [&](const Operation& operation, std::uint32_t at) {
    const std::optional<PlannedProduct> planned = plan_operation(graph, operation, device);
    if (planned) {
      by_step_.at(graph.tensor(operation.outputs[0]).ipu)[at] +=
          planned->plan->temporary_bytes() * device.tiles;
    }
  });
}

Bytes StepBytes::at(Place place, std::size_t operation, std::uint32_t ipu) const {
  return by_step_.at(ipu).at(first_step_.at(place.function).at(place.region) + operation);
}

Bytes StepBytes::peak(std::uint32_t ipu) const {
  return *std::ranges::max_element(by_step_.at(ipu));
}

std::vector<EqualRuns> in_pieces(const Graph& graph, const EqualRuns& equal, const Reads& reads,
                                 const StepBytes& bytes, const Device& device) {
  std::vector<EqualRuns> pieces;
  std::size_t begin = 0;
  for (const std::size_t end : Cutting(graph, equal, reads, bytes, device).ends()) {
    EqualRuns& piece = pieces.emplace_back();
    piece.root = equal.root;
    for (const Run& run : equal.runs) {
      piece.runs.push_back({run.place, run.begin + begin, run.begin + end});
    }
    begin = end;
  }
  return pieces;
}

}  // namespace poprun
