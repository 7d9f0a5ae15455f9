#include "replica/compiler/techniques/outlining/outline.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "replica/machine/operations.h"
#include "replica/ops/face/random_name.h"

namespace poprun {
namespace {

bool are_same(Place a, Place b) {
  return a.function == b.function && a.region == b.region;
}

/// Returns the range of operations around a run in which the run's function is called for that run only. The range ends
/// at the neighbouring runs and at any other call, which might call the function, too.
std::pair<std::size_t, std::size_t> turn_of(const Graph& graph, const EqualRuns& equal, const Run& run) {
  const std::vector<Operation>& operations = graph.at(run.place).operations;
  std::size_t begin = 0;
  std::size_t end = operations.size();
  for (const Run& other : equal.runs) {
    if (!are_same(other.place, run.place)) {
      continue;
    }
    begin = other.end <= run.begin ? std::max(begin, other.end) : begin;
    end = other.begin >= run.end ? std::min(end, other.begin) : end;
  }
  for (std::size_t o = begin; o < end; ++o) {
    if (Call::from(operations[o])) {
      begin = o < run.begin ? o + 1 : begin;
      end = o < run.begin ? end : o;
    }
  }
  return {begin, end};
}

/// Returns one run's tensors. `is_shared` is not set yet, because it depends on all runs.
std::vector<RunTensor> tensors_of_one(const Graph& graph, const Reads& reads, const EqualRuns& equal, const Run& run) {
  std::set<TensorId> written;
  std::set<TensorId> come_in;
  const std::vector<Operation>& operations = graph.at(run.place).operations;
  for (std::size_t o = run.begin; o < run.end; ++o) {
    std::ranges::copy_if(operations[o].inputs, std::inserter(come_in, come_in.end()),
                         [&](TensorId id) { return !written.contains(id); });
    written.insert(operations[o].outputs.begin(), operations[o].outputs.end());
  }
  const auto [begin, end] = turn_of(graph, equal, run);
  std::vector<RunTensor> all;
  for (const TensorId id : tensors_of(graph, run)) {
    RunTensor& one = all.emplace_back(RunTensor{id});
    one.comes_in = come_in.contains(id);
    one.goes_out = written.contains(id) && (one.comes_in || reads.after(run, id));
    one.stays = reads.only_in(run.place, begin, end, id);
  }
  return all;
}

/// Clears `stays` for values that would overwrite a still-used value of the previous run, so that they are copied.
void part_neighbours(const Reads& reads, const EqualRuns& equal, std::vector<std::vector<RunTensor>>& all) {
  for (std::size_t run = 1; run < all.size(); ++run) {
    if (!are_same(equal.runs[run - 1].place, equal.runs[run].place)) {
      continue;
    }
    for (std::size_t t = 0; t < all[run].size(); ++t) {
      const RunTensor& before = all[run - 1][t];
      RunTensor& one = all[run][t];
      one.stays = one.stays && !(before.stays && reads.meet(before.tensor, one.tensor));
    }
  }
}

void mark_shared(std::vector<std::vector<RunTensor>>& all) {
  for (std::size_t t = 0; t < all[0].size(); ++t) {
    const bool shared =
        std::ranges::all_of(all, [&](const std::vector<RunTensor>& run) { return run[t].tensor == all[0][t].tensor; });
    for (std::vector<RunTensor>& run : all) {
      run[t].is_shared = shared;
    }
  }
}

/// The random-number keys that differ between runs. They move out of the operations and become salts of the calls.
class Salts {
 public:
  explicit Salts(std::size_t runs) : salts_(runs) {}

  /// Records the keys that differ among `same`, one operation per run, and replaces them in `first` with salt numbers.
  void take(const std::vector<const Operation*>& same, Operation& first) {
    for (const auto& [name, value] : same[0]->attributes.values()) {
      const bool alike = std::ranges::all_of(
          same, [&](const Operation* operation) { return operation->attributes.values().at(name) == value; });
      if (alike) {
        continue;
      }
      first.attributes.set(name, static_cast<std::int64_t>(salts_[0].size()));
      for (std::size_t run = 0; run < same.size(); ++run) {
        salts_[run].push_back(same[run]->attributes.text(name));
      }
    }
  }

  [[nodiscard]] const std::vector<std::string>& of(std::size_t run) const { return salts_[run]; }

 private:
  std::vector<std::vector<std::string>> salts_;  ///< The salts of each run.
};

struct Replacement {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<Operation> operations;
};

/// Appends a copy to another copy on the same IPU, if neither reads or writes what the other writes.
bool join(const Graph& graph, const Operation& copy, Operation& to) {
  const auto names = [](const std::vector<TensorId>& tensors, TensorId id) {
    return std::ranges::find(tensors, id) != tensors.end();
  };
  const auto is_written = [&](TensorId id) { return names(to.outputs, id); };
  const auto is_used = [&](TensorId id) { return is_written(id) || names(to.inputs, id); };
  if (!Copy::is(copy) || !Copy::is(to) || graph.tensor(copy.outputs[0]).ipu != graph.tensor(to.outputs[0]).ipu ||
      std::ranges::any_of(copy.inputs, is_written) || std::ranges::any_of(copy.outputs, is_used)) {
    return false;
  }
  to.inputs.insert(to.inputs.end(), copy.inputs.begin(), copy.inputs.end());
  to.outputs.insert(to.outputs.end(), copy.outputs.begin(), copy.outputs.end());
  return true;
}

class Outliner {
 public:
  explicit Outliner(Graph& graph) : graph_(graph), reads_(graph) {}

  void add(const EqualRuns& equal) {
    while (find_function(graph_, name_of(next_)) != nullptr) {
      ++next_;
    }
    const std::string name = name_of(next_++);
    std::vector<std::vector<RunTensor>> tensors = tensors_of(graph_, reads_, equal);
    const std::vector<RunTensor> named = tensors[0];
    std::vector<RunOperations> runs;
    for (std::size_t run = 0; run < equal.runs.size(); ++run) {
      runs.push_back(operations_of(graph_, equal.runs[run]));
      for (RunTensor& one : tensors[run]) {
        one.stays = one.stays && !renamed_.contains(one.tensor);
        one.tensor = renamed(one.tensor);
      }
    }
    mark_shared(tensors);
    std::vector<TensorId> own;
    for (std::size_t t = 0; t < named.size(); ++t) {
      const RunTensor& one = tensors[0][t];
      own.push_back(one.is_shared ? one.tensor : add_own(name, named[t].tensor));
      for (const std::vector<RunTensor>& run : tensors) {
        if (run[t].stays) {
          renamed_.emplace(run[t].tensor, own.back());
        }
      }
    }
    Salts salts(runs.size());
    std::vector<Operation> body = body_of(runs, named, own, salts);
    bodies_.push_back(graph_.add_function(name, {1})[0]);
    graph_.at(bodies_.back()).operations = std::move(body);
    for (std::size_t run = 0; run < runs.size(); ++run) {
      const Place place = equal.runs[run].place;
      replacements_[{place.function, place.region}].push_back(
          {equal.runs[run].begin, equal.runs[run].end,
           call(Call{.function = name, .entry = runs[run].entry, .salts = salts.of(run)}, runs[run].operations,
                tensors[run], own)});
    }
  }

  /// Replaces the runs with calls. Renaming comes last: a function may rename tensors that earlier functions share.
  void finish() {
    for (const Place body : bodies_) {
      std::ranges::for_each(graph_.at(body).operations, [this](Operation& o) { rename(o); });
    }
    for (auto& [place, replacements] : replacements_) {
      std::ranges::sort(replacements, {}, &Replacement::begin);
      Region& region = graph_.at({place.first, place.second});
      std::vector<Operation> operations;
      std::size_t at = 0;
      const auto keep_until = [&](std::size_t end) {
        for (; at < end; ++at) {
          operations.push_back(std::move(region.operations[at]));
        }
      };
      std::ranges::for_each(region.operations, [this](Operation& o) { rename(o); });
      for (Replacement& replacement : replacements) {
        std::ranges::for_each(replacement.operations, [this](Operation& o) { rename(o); });
        const bool follows = at > 0 && at == replacement.begin;
        keep_until(replacement.begin);
        auto first = replacement.operations.begin();
        first += follows && join(graph_, *first, operations.back()) ? 1 : 0;
        operations.insert(operations.end(), std::move_iterator(first),
                          std::move_iterator(replacement.operations.end()));
        at = replacement.end;
      }
      keep_until(region.operations.size());
      region.operations = std::move(operations);
    }
  }

 private:
  static std::string name_of(std::size_t number) { return fmt::format("{}{}", kOutlinedPrefix, number); }

  /// Returns the function's tensor that holds the value of `id` if the value stays there, otherwise `id`.
  [[nodiscard]] TensorId renamed(TensorId id) const {
    const auto found = renamed_.find(id);
    return found == renamed_.end() ? id : found->second;
  }

  void rename(Operation& operation) const {
    for (std::vector<TensorId>* ids : {&operation.inputs, &operation.outputs}) {
      std::ranges::transform(*ids, ids->begin(), [this](TensorId id) { return renamed(id); });
    }
  }

  /// Returns the function's operations. `first`: the first run's tensors before renaming, which may merge two of them.
  static std::vector<Operation> body_of(const std::vector<RunOperations>& runs, const std::vector<RunTensor>& first,
                                        const std::vector<TensorId>& own, Salts& salts) {
    std::map<TensorId, TensorId> own_of;
    for (std::size_t t = 0; t < first.size(); ++t) {
      own_of.emplace(first[t].tensor, own[t]);
    }
    std::vector<Operation> body = runs[0].operations;
    for (std::size_t k = 0; k < body.size(); ++k) {
      std::vector<const Operation*> same;
      std::ranges::transform(runs, std::back_inserter(same),
                             [k](const RunOperations& run) { return &run.operations[k]; });
      salts.take(same, body[k]);
      for (auto* ids : {&body[k].inputs, &body[k].outputs}) {
        std::ranges::transform(*ids, ids->begin(), [&](TensorId id) { return own_of.at(id); });
      }
    }
    return body;
  }

  TensorId add_own(const std::string& function, TensorId like) {
    Tensor own = graph_.tensor(like);
    own.copy_of = own.copy_of.value_or(like);
    own.residence = std::nullopt;
    own.name = fmt::format("{}/{}", function, own.name);
    // Only the original parameters and state are saved and trained.
    if (own.role != Role::kStream && own.role != Role::kGradient) {
      own.role = Role::kActivation;
    }
    return graph_.add_tensor(std::move(own));
  }

  /// Returns the call with its copies. The call and the copies before it have the origin of the run's first operation,
  /// the copies after it that of the last.
  static std::vector<Operation> call(const Call& call, const std::vector<Operation>& run,
                                     const std::vector<RunTensor>& tensors, const std::vector<TensorId>& own) {
    Copy in;
    Copy out;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].is_shared || tensors[t].stays) {
        continue;
      }
      if (tensors[t].comes_in) {
        in.from_tensors.push_back(tensors[t].tensor);
        in.to_tensors.push_back(own[t]);
      }
      if (tensors[t].goes_out) {
        out.from_tensors.push_back(own[t]);
        out.to_tensors.push_back(tensors[t].tensor);
      }
    }
    std::vector<Operation> operations;
    const auto append = [&operations](Operation operation, const Origin& origin) {
      operation.origin = origin;
      operations.push_back(std::move(operation));
    };
    if (!in.from_tensors.empty()) {
      append(in.operation(), run.front().origin);
    }
    append(call.operation(), run.front().origin);
    if (!out.from_tensors.empty()) {
      append(out.operation(), run.back().origin);
    }
    return operations;
  }

  Graph& graph_;
  Reads reads_;
  std::size_t next_ = 0;
  std::map<TensorId, TensorId> renamed_;
  std::vector<Place> bodies_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Replacement>> replacements_;  ///< Keyed by place.
};

}  // namespace

Reads::Reads(const Graph& graph) : is_read_before_written_(graph.tensors().size()), uses_(graph.tensors().size()) {
  for (std::size_t f = 0; f < graph.functions.size(); ++f) {
    for (std::size_t r = 0; r < graph.functions[f].regions.size(); ++r) {
      const std::vector<Operation>& operations = graph.at({f, r}).operations;
      for (std::size_t o = 0; o < operations.size(); ++o) {
        add({{f, r}, o, true}, operations[o].inputs);
        add({{f, r}, o, false}, operations[o].outputs);
        if (StreamIn::is(operations[o]) || StreamOut::is(operations[o]) || Initialise::is(operations[o])) {
          are_named_.insert(operations[o].inputs.begin(), operations[o].inputs.end());
          are_named_.insert(operations[o].outputs.begin(), operations[o].outputs.end());
        }
      }
    }
  }
}

void Reads::add(const Use& use, const std::vector<TensorId>& tensors) {
  for (const TensorId id : tensors) {
    std::vector<Use>& uses = uses_[index_of(id)];
    const bool is_first = uses.empty() || !are_same(uses.back().place, use.place);
    if (is_first && use.reads) {
      is_read_before_written_[index_of(id)] = true;
    }
    uses.push_back(use);
  }
}

bool Reads::only_in(Place place, std::size_t begin, std::size_t end, TensorId tensor) const {
  return !is_read_before_written_[index_of(tensor)] && !are_named_.contains(tensor) &&
         std::ranges::all_of(uses_[index_of(tensor)], [&](const Use& use) {
           return are_same(use.place, place) && use.operation >= begin && use.operation < end;
         });
}

bool Reads::meet(TensorId tensor, TensorId next) const {
  return uses_[index_of(tensor)].back().operation >= uses_[index_of(next)].front().operation;
}

bool Reads::after(const Run& run, TensorId tensor) const {
  const std::vector<Use>& uses = uses_[index_of(tensor)];
  const auto next = std::ranges::find_if(
      uses, [&](const Use& use) { return are_same(use.place, run.place) && use.operation >= run.end; });
  return is_read_before_written_[index_of(tensor)] || (next != uses.end() && next->reads);
}

std::vector<std::vector<RunTensor>> tensors_of(const Graph& graph, const Reads& reads, const EqualRuns& equal) {
  std::vector<std::vector<RunTensor>> all;
  for (const Run& run : equal.runs) {
    all.push_back(tensors_of_one(graph, reads, equal, run));
  }
  part_neighbours(reads, equal, all);
  mark_shared(all);
  return all;
}

void outline(Graph& graph, const std::vector<EqualRuns>& all) {
  Outliner outlining(graph);
  for (const EqualRuns& equal : all) {
    outlining.add(equal);
  }
  outlining.finish();
}

}  // namespace poprun
