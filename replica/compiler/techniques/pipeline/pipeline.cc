#include "replica/compiler/techniques/pipeline/pipeline.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"
#include "replica/compiler/techniques/pipeline/parts.h"
#include "replica/compiler/techniques/pipeline/phases.h"
#include "replica/machine/machine.h"

namespace poprun {
namespace {

/// Prefix of the names of functions that copy tensors to another IPU.
constexpr std::string_view kBring = "bring.";

std::size_t part_of(const Slot& slot, std::size_t stages) {
  return slot.part == Part::kForward ? slot.stage : 2 * stages - 1 - slot.stage;
}

/// Copies at the end of a cycle. Transfers between IPUs share the links, so they form one copy. Transfers within an IPU
/// form a separate copy, for which no other IPU waits.
class Copies {
 public:
  explicit Copies(const Graph& graph) : graph_(graph) {}

  /// Adds a transfer. Requires: no earlier transfer writes `from`.
  void add(TensorId from, TensorId to) {
    const std::uint32_t ipu = graph_.tensor(to).ipu;
    const std::optional<std::uint32_t> within = graph_.tensor(from).ipu == ipu ? std::optional{ipu} : std::nullopt;
    const auto reader = read_in_.find(to);  // The copy that reads `to` must not come after this one.
    std::size_t k = reader == read_in_.end() ? 0 : reader->second;
    while (k < copies_.size() && copies_[k].within != within) {
      ++k;
    }
    if (k == copies_.size()) {
      copies_.push_back({within, {}});
    }
    copies_[k].copy.from_tensors.push_back(from);
    copies_[k].copy.to_tensors.push_back(to);
    std::size_t& last = read_in_[from];
    last = std::max(last, k);
  }

  void append_to(std::vector<Operation>& operations) const {
    for (const Entry& entry : copies_) {
      operations.push_back(entry.copy.operation());
    }
  }

 private:
  struct Entry {
    std::optional<std::uint32_t> within;  ///< The IPU; nothing for transfers between IPUs.
    Copy copy;
  };

  const Graph& graph_;
  std::vector<Entry> copies_;
  std::map<TensorId, std::size_t> read_in_;  ///< Index of the last copy that reads a tensor.
};

/// Appends a cycle's calls, then its copies. Later parts' copies come first, so that no copy overwrites a tensor that
/// has not been moved yet.
void add_cycle(const Graph& graph, const Cycle& cycle, const Parts& parts, const std::vector<std::string>& names,
               std::size_t stages, std::vector<Operation>& operations) {
  std::set<std::size_t, std::greater<>> ran;
  for (const Slot& slot : cycle.slots) {
    const std::size_t part = part_of(slot, stages);
    if (!names[part].empty()) {
      operations.push_back(Call{names[part], slot.micro_batch}.operation());
    }
    ran.insert(part);
  }
  Copies copies(graph);
  for (const std::size_t part : ran) {
    const Copy& crossing = parts.crossing(part);
    for (std::size_t k = 0; k < crossing.from_tensors.size(); ++k) {
      copies.add(crossing.from_tensors[k], crossing.to_tensors[k]);
    }
  }
  copies.append_to(operations);
}

/// Returns the regions before a phase: if needed, one that copies from other IPUs per micro-batch; then an empty one.
std::vector<Region> regions_before(Graph& graph, const Parts& parts, const Repeat& phase, std::size_t stages) {
  std::vector<Operation> brings;
  for (const Slot& slot : phase.cycles[0].slots) {
    const std::vector<Operation> more = parts.bringing(part_of(slot, stages));
    brings.insert(brings.end(), more.begin(), more.end());
  }
  if (brings.empty()) {
    return {{1, {}}};
  }
  if (phase.rounds == 1) {
    return {{1, std::move(brings)}, {1, {}}};
  }
  const Slot& first = phase.cycles[0].slots[0];
  const std::string name =
      fmt::format("{}{}.{}", kBring, first.part == Part::kForward ? "forward" : "backward", first.stage);
  const Place place = graph.add_function(name, {1})[0];
  graph.at(place).operations = std::move(brings);
  return {{phase.rounds, {Call{name, 0}.operation()}}, {1, {}}};
}

/// Adds a function for each part. Returns regions that call them in the timetable's order.
std::vector<Region> add_parts(Job& job, const Parts& parts, const Timetable& timetable, std::string_view forward) {
  Graph& graph = job.graph;
  const std::size_t stages = timetable.ipu_of_stage.size();
  std::vector<std::string> names;
  for (std::size_t part = 0; part < stages * (timetable.training ? 2 : 1); ++part) {
    names.emplace_back();
    std::vector<Operation> operations = parts.operations_of(part);
    if (operations.empty()) {
      continue;  // This is the backward part of a stage with nothing to train.
    }
    const bool is_backward = part >= stages;
    const std::size_t stage = is_backward ? 2 * stages - 1 - part : part;
    names.back() = fmt::format("{}.{}", is_backward ? "backward" : forward, stage);
    job.parts[names.back()] = {.stage = static_cast<std::uint32_t>(stage),
                               .ipu = timetable.ipu_of_stage[stage],
                               .is_backward = is_backward,
                               .recomputes = std::ranges::any_of(operations, [](const Operation& operation) {
                                 return operation.origin.direction == Direction::kRecomputed;
                               })};
    const Place place = graph.add_function(names.back(), {1})[0];
    graph.at(place).operations = std::move(operations);
  }
  std::vector<Region> regions;
  for (const Repeat& repeat : timetable.repeats) {
    if (timetable.schedule == Schedule::kPhased && !regions.empty()) {
      std::ranges::move(regions_before(graph, parts, repeat, stages), std::back_inserter(regions));
    }
    Region& region = regions.emplace_back();
    region.repeat = repeat.rounds;
    for (const Cycle& cycle : repeat.cycles) {
      add_cycle(graph, cycle, parts, names, stages, region.operations);
    }
  }
  return regions;
}

std::set<TensorId> written_in(const Region& region) {
  std::set<TensorId> written;
  for (const Operation& operation : region.operations) {
    written.insert(operation.outputs.begin(), operation.outputs.end());
  }
  return written;
}

bool computes(const Operation& operation) {
  return find_machine_operation(operation.kind) == nullptr;
}

/// Gives homes to tensors of operations outside the parts, and makes each of these operations read tensors on its own
/// IPU. Tensors that no stage uses, such as the learning rate from the host, are on the first stage's IPU.
class Rest {
 public:
  Rest(Graph& graph, Homes& homes, std::uint32_t first_ipu) : graph_(graph), homes_(homes), first_ipu_(first_ipu) {}

  /// Gives tensors without a home the home of the operation that computes them.
  void settle(const Region& region) {
    for (const Operation& operation : region.operations) {
      const std::uint32_t ipu = ipu_of(operation);
      std::ranges::for_each(operation.outputs, [&](TensorId id) { homes_.settle(id, ipu); });
    }
  }

  /// Makes each computing operation read tensors on its own IPU, and splits all-reduces into one per IPU. Tensors that
  /// this region or `body` writes are copied where the region first needs them; other variables have replicas.
  void localise(Region& region, const std::set<TensorId>& body) {
    std::set<TensorId> changes = written_in(region);
    changes.insert(body.begin(), body.end());
    brought_.clear();
    std::vector<Operation> operations;
    for (Operation& operation : region.operations) {
      if (const std::optional<AllReduce> reduction = AllReduce::from(operation);
          reduction && !reduction->in_background) {
        split(*reduction, operations);
        continue;
      }
      if (computes(operation)) {
        gather(region, changes, operation, operations);
      }
      operations.push_back(operation);
    }
    region.operations = std::move(operations);
  }

 private:
  [[nodiscard]] std::uint32_t ipu_of(const Operation& operation) const {
    for (const auto* tensors : {&operation.outputs, &operation.inputs}) {
      for (const TensorId id : *tensors) {
        if (const std::optional<std::uint32_t> home = homes_.of(id)) {
          return *home;
        }
      }
    }
    return first_ipu_;
  }

  void split(const AllReduce& reduction, std::vector<Operation>& operations) {
    std::map<std::uint32_t, AllReduce> by_ipu;
    for (const TensorId id : reduction.tensors) {
      AllReduce& part = by_ipu[homes_.of(id).value_or(first_ipu_)];
      part.reduction = reduction.reduction;
      part.group = reduction.group;
      part.tensors.push_back(id);
    }
    for (const auto& [ipu, part] : by_ipu) {
      operations.push_back(part.operation());
    }
  }

  /// Makes an operation read its own IPU's tensors, after one copy of all inputs from other IPUs.
  void gather(const Region& region, const std::set<TensorId>& changes, Operation& operation,
              std::vector<Operation>& operations) {
    const std::uint32_t ipu = ipu_of(operation);
    Copy copy;
    for (TensorId& input : operation.inputs) {
      if (!changes.contains(input)) {
        input = homes_.on(input, ipu);
      } else if (homes_.of(input) != ipu) {
        bring(region, input, copy);
        input = brought_.at({input, ipu});
      }
    }
    if (!copy.from_tensors.empty()) {
      operations.push_back(copy.operation());
    }
  }

  /// Adds copies of a tensor to every IPU that reads it in the region.
  void bring(const Region& region, TensorId tensor, Copy& copy) {
    for (const Operation& reader : region.operations) {
      const std::uint32_t ipu = ipu_of(reader);
      const bool reads = std::ranges::find(reader.inputs, tensor) != reader.inputs.end();
      if (!reads || !computes(reader) || homes_.of(tensor) == ipu || brought_.contains({tensor, ipu})) {
        continue;
      }
      const TensorId copied =
          homes_.add(fmt::format("{}@ipu{}", graph_.tensor(tensor).name, ipu), graph_.tensor(tensor).type, tensor, ipu);
      brought_[{tensor, ipu}] = copied;
      copy.from_tensors.push_back(tensor);
      copy.to_tensors.push_back(copied);
    }
  }

  Graph& graph_;
  Homes& homes_;
  std::uint32_t first_ipu_;
  std::map<std::pair<TensorId, std::uint32_t>, TensorId> brought_;  ///< Keyed by tensor and IPU.
};

/// Puts the copies that connect IPUs, and the operations that depend on these copies, after all work that each IPU can
/// do on its own. No IPU then waits for another while it still has work of its own.
void put_own_work_first(Region& region) {
  std::vector<Operation> own;
  std::vector<Operation> others;
  std::set<TensorId> read;  // Tensors that `others` read.
  std::set<TensorId> written;
  for (Operation& operation : region.operations) {
    const bool waits =
        Copy::is(operation) ||
        std::ranges::any_of(operation.inputs, [&](TensorId id) { return written.contains(id); }) ||
        std::ranges::any_of(operation.outputs, [&](TensorId id) { return written.contains(id) || read.contains(id); });
    if (waits) {
      read.insert(operation.inputs.begin(), operation.inputs.end());
      written.insert(operation.outputs.begin(), operation.outputs.end());
    }
    (waits ? others : own).push_back(std::move(operation));
  }
  own.insert(own.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  region.operations = std::move(own);
}

/// Appends to a region the copies that update the replicas of the variables that the region writes.
void refresh(const std::vector<Homes::Replica>& replicas, Region& region) {
  const std::set<TensorId> written = written_in(region);
  Copy copy;
  for (const auto& [variable, replica] : replicas) {
    if (written.contains(variable)) {
      copy.from_tensors.push_back(variable);
      copy.to_tensors.push_back(replica);
    }
  }
  if (!copy.from_tensors.empty()) {
    region.operations.push_back(copy.operation());
  }
}

/// Adds a note for each large parameter that stages on several IPUs use, because such parameters are copied every step.
void note_shared_parameters(const std::vector<Homes::Replica>& replicas, Job& job) {
  constexpr Bytes kWorthANote{1 << 20};
  const std::set<TensorId> written = written_in(job.graph.at(job.training->update));
  std::map<TensorId, std::vector<std::uint32_t>> users;
  for (const auto& [variable, replica] : replicas) {
    if (written.contains(variable) && job.graph.tensor(variable).role == Role::kParameter) {
      users[variable].push_back(job.graph.tensor(replica).ipu);
    }
  }
  for (const auto& [variable, ipus] : users) {
    const Tensor& tensor = job.graph.tensor(variable);
    const Bytes bytes = job.graph.bytes({variable});
    if (bytes >= kWorthANote) {
      job.notes.push_back(
          {"pipeline.shared-weight",
           fmt::format(
               "IPUs {} and {} use {}: each step copies these {} from IPU {} and gradients of that size back; to "
               "avoid this, put the stages that use it on one IPU with pipeline.device-mapping",
               tensor.ipu, fmt::join(ipus, " and "), tensor.name,
               mebibytes_text(static_cast<std::uint64_t>(bytes.count())), tensor.ipu),
           {{"tensor", tensor.name}, {"bytes", bytes}, {"ipu", tensor.ipu}}});
    }
  }
}

bool is_phase(const Region& region) {
  return std::ranges::any_of(region.operations, [](const Operation& operation) {
    const std::optional<Call> call = Call::from(operation);
    return call && !call->function.starts_with(kBring);
  });
}

/// Cuts the training step's micro-batch into parts. Returns the tensors that the micro-batch writes.
Result<std::set<TensorId>> cut_training(Job& job, Schedule schedule, Homes& homes) {
  TrainingStep& step = *job.training;
  const Region body = job.graph.at(step.micro_batch);
  const auto stages = static_cast<std::uint32_t>(job.ipu_of_stage.size());
  std::vector<std::int64_t> lengths;
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    lengths.push_back(stash_length(schedule, stages, stage, body.repeat));
  }
  Parts parts(job.graph, homes, job.ipu_of_stage, lengths, schedule == Schedule::kPhased ? body.repeat : 0);
  POPRUN_TRY(parts.take(body.operations));
  const std::vector<Region> cycles =
      add_parts(job, parts, make_timetable(schedule, job.ipu_of_stage, body.repeat, true), "forward");
  std::vector<Region>& train = job.graph.functions.at(step.micro_batch.function).regions;
  train.erase(train.begin() + 1);
  train.insert(train.begin() + 1, cycles.begin(), cycles.end());
  step.update.region = train.size() - 1;
  for (std::size_t r = 1; schedule == Schedule::kPhased && r + 1 < train.size(); ++r) {
    if (is_phase(train[r])) {
      step.phases.push_back({step.micro_batch.function, r});
    }
  }
  for (const ParameterGradient& pair : step.gradients) {
    homes.settle(pair.parameter, job.ipu_of_stage.front());
    homes.settle(pair.gradient, *homes.of(pair.parameter));
  }
  return written_in(body);
}

Status cut_evaluation(Job& job, Schedule schedule, Homes& homes) {
  const Region body = job.graph.at(*job.evaluation);
  Parts parts(job.graph, homes, job.ipu_of_stage, {});
  POPRUN_TRY(parts.take(body.operations));
  const bool alone = schedule == Schedule::kSequential || schedule == Schedule::kPhased;
  const Schedule forward = alone ? Schedule::kSequential : Schedule::kGrouped;
  std::vector<Region> cycles =
      add_parts(job, parts, make_timetable(forward, job.ipu_of_stage, body.repeat, false), "evaluate");
  job.graph.functions.at(job.evaluation->function).regions = std::move(cycles);
  return {};
}

}  // namespace

Status make_pipeline(Job& job, Schedule schedule) {
  Graph& graph = job.graph;
  Homes homes(graph);
  std::set<TensorId> body;
  if (job.training) {
    POPRUN_ASSIGN(body, cut_training(job, schedule, homes));
  }
  if (job.evaluation) {
    POPRUN_TRY(cut_evaluation(job, schedule, homes));
  }
  const std::set<std::string> called = called_functions(graph);
  std::vector<Region*> regions;
  for (Function& function : graph.functions) {
    if (!called.contains(function.name)) {
      std::ranges::transform(function.regions, std::back_inserter(regions), [](Region& region) { return &region; });
    }
  }
  // Regions are visited in reverse, so that state is placed on the IPU on which the update changes its parameter.
  Rest rest(graph, homes, job.ipu_of_stage.front());
  std::for_each(regions.rbegin(), regions.rend(), [&](Region* region) { rest.settle(*region); });
  for (Region* region : regions) {
    rest.localise(*region, body);
  }
  if (job.training) {
    put_own_work_first(graph.at(job.training->update));
  }
  for (const auto& [variable, replica] : homes.replicas()) {
    if (body.contains(variable)) {
      return fail(ErrorCode::kUsage, fmt::format("'{}' changes in every micro-batch, but stages on two IPUs read it; "
                                                 "put all operations that read it into one stage",
                                                 graph.tensor(variable).name));
    }
  }
  for (Region* region : regions) {
    refresh(homes.replicas(), *region);
  }
  if (job.training) {
    note_shared_parameters(homes.replicas(), job);
  }
  if (job.training && schedule == Schedule::kPhased) {
    order_phases(graph, *job.training);
  }
  return {};
}

}  // namespace poprun
