#include "replica/compiler/techniques/residence/sharding.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "replica/compiler/techniques/pipeline/phases.h"
#include "replica/machine/operations.h"
#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

/// A tensor's temporary form (shard or full) is kept while its next use is at most this many operations away.
constexpr std::size_t kKeepFormOperations = 8;

constexpr const char* kStochastic = "stochastic";
constexpr const char* kShards = "shards";

Cut cut_of(const Operation& operation) {
  const Operator* op = find_operator(operation.kind);
  return op == nullptr ? Cut{} : op->on_shards;
}

std::span<const TensorId> cut_inputs(const Operation& operation, const Cut& cut) {
  return std::span(operation.inputs).first(cut.inputs);
}

std::set<TensorId> cut_by(const Operation& operation, const Cut& cut) {
  const auto inputs = cut_inputs(operation, cut);
  std::set<TensorId> all(inputs.begin(), inputs.end());
  const auto outputs = std::span(operation.outputs).first(cut.outputs);
  all.insert(outputs.begin(), outputs.end());
  return all;
}

std::set<TensorId> named_by(const Operation& operation) {
  std::set<TensorId> named(operation.inputs.begin(), operation.inputs.end());
  named.insert(operation.outputs.begin(), operation.outputs.end());
  return named;
}

class Shards {
 public:
  Shards(Graph& graph, const std::set<TensorId>& variables, std::int64_t group, std::int64_t replicas)
      : graph_(graph), variables_(variables), group_(group), count_(group > 0 ? group : replicas) {
    for (const TensorId variable : variables) {
      graph.set_residence(variable, {of(variable)});
    }
  }

  [[nodiscard]] bool reside(TensorId tensor) const { return variables_.contains(tensor); }
  [[nodiscard]] std::int64_t group() const { return group_; }
  [[nodiscard]] std::int64_t count() const { return count_; }

  TensorId of(TensorId tensor) {
    const auto [found, is_new] = shards_.try_emplace(tensor);
    if (is_new) {
      const Tensor whole = graph_.tensor(tensor);
      Tensor shard{whole.name + ".shard", shard_type(whole.type, count_), whole.role, whole.keeps_f32, whole.ipu};
      shard.shard_of = whole.type;
      found->second = graph_.add_tensor(std::move(shard));
    }
    return found->second;
  }

 private:
  Graph& graph_;
  const std::set<TensorId>& variables_;
  std::int64_t group_;
  std::int64_t count_;
  std::map<TensorId, TensorId> shards_;
};

class RegionSharding {
 public:
  /// `gathered`: variables that are also held in full throughout the region. `left_whole`: variables that the preceding
  /// phase has gathered; their shards are cut from the full tensors, as the original shards may be off-chip by now.
  RegionSharding(Graph& graph, Shards& shards, Place place, bool is_update, std::set<TensorId> gathered,
                 std::set<TensorId> left_whole)
      : graph_(graph),
        shards_(shards),
        place_(place),
        is_update_(is_update),
        gathered_(std::move(gathered)),
        left_whole_(std::move(left_whole)) {}

  void run() {
    const std::vector<Operation> all = graph_.at(place_).operations;
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (const TensorId id : named_by(all[i])) {
        uses_[id].push_back(i);
      }
    }
    find_scattered(all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      origin_ = all[i].origin;
      add_up_parts(all[i]);
      if (Call::from(all[i])) {
        settle_all();
        operations_.push_back(all[i]);
      } else if (const auto reduced = AllReduce::from(all[i]); reduced && !reduced->in_background) {
        reduce(*reduced);
      } else if (works_on_shards(all[i])) {
        run_on_shards(all[i]);
      } else {
        run_on_wholes(all[i]);
      }
      for (const TensorId id : named_by(all[i])) {
        settle(id, i);
      }
    }
    add_up_parts();  // Another region may read the sums.
    settle_all();
    graph_.at(place_).operations = std::move(operations_);
  }

 private:
  /// Forms of a tensor that hold its value.
  struct Forms {
    bool whole = false;
    bool shard = false;
  };

  Forms& forms(TensorId id) {
    const auto [found, is_new] = forms_.try_emplace(id);
    if (is_new) {
      found->second = left_whole_.erase(id) > 0 ? Forms{true, false} : resident(id);
    }
    return found->second;
  }

  [[nodiscard]] Forms resident(TensorId id) const {
    return {!shards_.reside(id) || gathered_.contains(id), shards_.reside(id)};
  }

  /// Returns whether an operator updates or accumulates sharded variables. This is the case if some tensor that it cuts
  /// is sharded, and so is all optimiser state among these tensors.
  [[nodiscard]] bool updates_shards(const Operation& operation) const {
    const Cut cut = cut_of(operation);
    const std::set<TensorId> named = cut_by(operation, cut);
    return std::ranges::any_of(named, [this](TensorId id) { return shards_.reside(id); }) &&
           std::ranges::all_of(named, [this](TensorId id) {
             return graph_.tensor(id).role != Role::kOptimizerState || shards_.reside(id);
           });
  }

  /// Finds the gradients that operators on shards read. Their all-reduces become reduce-scatters.
  void find_scattered(const std::vector<Operation>& all) {
    for (const Operation& operation : all) {
      if (!updates_shards(operation)) {
        continue;
      }
      for (const TensorId id : cut_inputs(operation, cut_of(operation))) {
        if (graph_.tensor(id).role == Role::kGradient || graph_.tensor(id).role == Role::kActivation) {
          scattered_.insert(id);
        }
      }
    }
  }

  /// Returns whether an operation works on shards: updates do, and so do sums of squares of scattered gradients.
  bool works_on_shards(const Operation& operation) {
    if (updates_shards(operation)) {
      return true;
    }
    const Cut cut = cut_of(operation);
    return cut && std::ranges::any_of(cut_inputs(operation, cut), [this](TensorId id) {
             const auto found = forms_.find(id);
             return found != forms_.end() && found->second.shard && !found->second.whole && !shards_.reside(id);
           });
  }

  /// Adds up the replicas' partial sums over their shards, if `reader` reads one of these sums.
  void add_up_parts(const Operation& reader) {
    const bool reads = std::ranges::any_of(reader.inputs, [this](TensorId id) { return names(parts_, id); });
    if (reads) {
      add_up_parts();
    }
  }

  void add_up_parts() {
    std::map<std::uint32_t, AllReduce> by_ipu;
    for (const TensorId id : parts_) {
      AllReduce& sums = by_ipu[graph_.tensor(id).ipu];
      sums.group = shards_.group();
      sums.tensors.push_back(id);
    }
    for (const auto& [ipu, sums] : by_ipu) {
      append(sums.operation());
    }
    parts_.clear();
  }

  void reduce(const AllReduce& reduced) {
    AllReduce rest{reduced.reduction, false, {}, reduced.group};
    ReduceScatter scatter{reduced.reduction, {}, {}, shards_.group()};
    for (const TensorId id : reduced.tensors) {
      if (scattered_.contains(id) && !shards_.reside(id)) {
        need_whole({id});
        scatter.tensors.push_back(id);
        scatter.shards.push_back(shards_.of(id));
        forms(id) = {false, true};
      } else {
        rest.tensors.push_back(id);
      }
    }
    if (!rest.tensors.empty()) {
      need_whole(rest.tensors);
      append(rest.operation());
    }
    if (!scatter.tensors.empty()) {
      append(scatter.operation());
    }
  }

  void run_on_shards(Operation operation) {
    const Cut by = cut_of(operation);
    Shard cut{{}, {}, shards_.group()};
    for (const TensorId id : cut_inputs(operation, by)) {
      if (!forms(id).shard) {
        cut.tensors.push_back(id);
        cut.shards.push_back(shards_.of(id));
        forms(id).shard = true;
      }
    }
    if (!cut.tensors.empty()) {
      append(cut.operation());
    }
    need_whole({operation.inputs.begin() + static_cast<std::ptrdiff_t>(by.inputs), operation.inputs.end()});
    const std::set<TensorId> shards = cut_by(operation, by);
    for (const TensorId id : operation.outputs) {
      if (shards.contains(id)) {
        forms(id) = {false, true};
      } else {
        parts_.push_back(id);
      }
    }
    for (auto* tensors : {&operation.inputs, &operation.outputs}) {
      for (TensorId& id : *tensors) {
        id = shards.contains(id) ? shards_.of(id) : id;
      }
    }
    if (operation.attributes.has(kStochastic)) {
      operation.attributes.set(kShards, shards_.count());
    }
    operations_.push_back(std::move(operation));
  }

  void run_on_wholes(const Operation& operation) {
    need_whole(operation.inputs);
    for (const TensorId id : operation.outputs) {
      forms(id) = {true, false};
    }
    operations_.push_back(operation);
  }

  void need_whole(const std::vector<TensorId>& tensors) {
    std::map<std::uint32_t, AllGather> by_ipu;
    for (const TensorId id : tensors) {
      if (!forms(id).whole) {
        AllGather& gather = by_ipu[graph_.tensor(id).ipu];
        gather.group = shards_.group();
        gather.shards.push_back(shards_.of(id));
        gather.tensors.push_back(id);
        forms(id).whole = true;
      }
    }
    for (const auto& [ipu, gather] : by_ipu) {
      append(gather.operation());
    }
  }

  /// After operation `i`, puts a tensor back into the form in which it resides, unless it is used again soon.
  void settle(TensorId id, std::size_t i) {
    const std::vector<std::size_t>& uses = uses_[id];
    const auto next = std::ranges::upper_bound(uses, i);
    if (next == uses.end() || *next - i > kKeepFormOperations) {
      settle(id);
    }
  }

  void settle(TensorId id) {
    if (!keeps(id)) {
      return;
    }
    Forms& now = forms(id);
    if (shards_.reside(id) && !now.shard) {
      append(Shard{{id}, {shards_.of(id)}, shards_.group()}.operation());
    } else if (!shards_.reside(id) && !now.whole) {
      append(AllGather{{shards_.of(id)}, {id}, shards_.group()}.operation());
    }
    now = resident(id);
  }

  /// Returns whether a tensor outlives the region. Variables do; gradients and accumulators do not outlive the update.
  [[nodiscard]] bool keeps(TensorId id) const {
    const Role role = graph_.tensor(id).role;
    if (role == Role::kGradient && is_update_) {
      return false;
    }
    return shards_.reside(id) || role == Role::kParameter || role == Role::kOptimizerState;
  }

  void settle_all() {
    std::vector<TensorId> known;
    for (const auto& [id, forms] : forms_) {
      known.push_back(id);
    }
    std::ranges::for_each(known, [this](TensorId id) { settle(id); });
    forms_.clear();
  }

  void append(Operation operation) {
    operation.origin = origin_;
    operations_.push_back(std::move(operation));
  }

  Graph& graph_;
  Shards& shards_;
  Place place_;
  bool is_update_;
  std::set<TensorId> gathered_;
  std::set<TensorId> left_whole_;  ///< Only variables that have not been used yet.
  Origin origin_;
  std::vector<Operation> operations_;
  std::map<TensorId, std::vector<std::size_t>> uses_;
  std::map<TensorId, Forms> forms_;
  std::set<TensorId> scattered_;
  std::vector<TensorId> parts_;  ///< Partial sums that are not added up yet.
};

struct Gathered {
  PhaseUse use;
  std::set<TensorId> parameters;
};

std::vector<Gathered> gathered_by(const Graph& graph, const std::vector<Place>& phases,
                                  const std::set<TensorId>& variables) {
  std::vector<Gathered> all;
  for (const Place phase : phases) {
    Gathered& one = all.emplace_back(Gathered{use_in_phase(graph, graph.at(phase), variables), {}});
    for (const TensorId id : one.use.reads) {
      if (graph.tensor(id).role == Role::kParameter && !one.use.writes.contains(id)) {
        one.parameters.insert(id);
      }
    }
  }
  return all;
}

}  // namespace

void shard_variables(Graph& graph, const std::set<TensorId>& variables, std::int64_t group, std::int64_t replicas,
                     const std::optional<Place>& update, const std::vector<Place>& phases) {
  const std::vector<Gathered> gathered = gathered_by(graph, phases, variables);
  std::map<std::string, std::set<TensorId>> whole_in;  // Keyed by function that a phase calls.
  for (const Gathered& one : gathered) {
    for (const std::string& function : one.use.functions) {
      whole_in[function] = one.parameters;
    }
  }
  std::map<std::size_t, std::set<TensorId>> left_whole;  // Keyed by region after a phase.
  for (std::size_t p = 0; p < phases.size(); ++p) {
    left_whole[behind(phases, p).region] = gathered[p].parameters;
  }
  Shards shards(graph, variables, group, replicas);
  for (std::size_t f = 0; f < graph.functions.size(); ++f) {
    for (std::size_t r = 0; r < graph.functions[f].regions.size(); ++r) {
      const bool is_update = update && update->function == f && update->region == r;
      const bool has_phases = !phases.empty() && phases[0].function == f;
      RegionSharding(graph, shards, {f, r}, is_update, whole_in[graph.functions[f].name],
                     has_phases ? left_whole[r] : std::set<TensorId>{})
          .run();
    }
  }
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const bool ahead = p > 0 && gathered[p - 1].use.ipu != gathered[p].use.ipu;
    AllGather gather{{}, {}, group};
    for (const TensorId id : gathered[p].parameters) {
      gather.shards.push_back(shards.of(id));
      gather.tensors.push_back(id);
    }
    if (!gather.tensors.empty()) {
      graph.at(beside(phases[ahead ? p - 1 : p], -1)).operations.push_back(gather.operation());
    }
  }
}

}  // namespace poprun
