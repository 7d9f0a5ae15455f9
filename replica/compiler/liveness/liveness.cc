#include "replica/compiler/liveness/liveness.h"

#include <algorithm>

namespace poprun {
namespace {

constexpr std::size_t kNone = ~std::size_t{0};

class Analysis {
 public:
  explicit Analysis(const Graph& graph) : functions_(graph.tensors().size(), kNone) {
    liveness_.lives.resize(graph.tensors().size());
  }

  void visit(std::size_t function, const Region& region) {
    const std::uint32_t begin = step_;
    const auto end = begin + static_cast<std::uint32_t>(region.operations.size());
    for (const Operation& operation : region.operations) {
      for (const TensorId id : operation.inputs) {
        // Made before a region that repeats, and read in it: every round reads it again.
        const bool again = region.repeat > 1 && life(id).used && life(id).first < begin;
        use(function, id, true, again ? end : step_);
      }
      for (const TensorId id : operation.outputs) {
        use(function, id, false, step_);
      }
      ++step_;
    }
    step_ += region.repeat > 1 ? 1 : 0;
  }

  Liveness finish() {
    liveness_.step_count = step_;
    for (Life& life : liveness_.lives) {
      if (life.always_live) {
        life.first = 0;
        life.last = step_ == 0 ? 0 : step_ - 1;
      }
    }
    return std::move(liveness_);
  }

 private:
  Life& life(TensorId id) { return liveness_.lives[index_of(id)]; }

  void use(std::size_t function, TensorId id, bool reads, std::uint32_t until) {
    Life& l = life(id);
    std::size_t& home = functions_[index_of(id)];
    if (!l.used) {
      l = {.first = step_, .last = until, .always_live = reads, .used = true};
      home = function;
      return;
    }
    l.always_live = l.always_live || home != function;
    l.last = std::max(l.last, until);
  }

  Liveness liveness_;
  std::vector<std::size_t> functions_;  ///< The first function to name each tensor.
  std::uint32_t step_ = 0;
};

}  // namespace

Liveness compute_liveness(const Graph& graph) {
  Analysis analysis(graph);
  for (std::size_t f = 0; f < graph.functions.size(); ++f) {
    for (const Region& region : graph.functions[f].regions) {
      analysis.visit(f, region);
    }
  }
  return analysis.finish();
}

}  // namespace poprun
