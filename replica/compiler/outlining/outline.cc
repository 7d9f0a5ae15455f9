#include "replica/compiler/outlining/outline.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "replica/machine/operations.h"
#include "replica/ops/random_name.h"

namespace poprun {
namespace {

/// The operations that a run has.
std::vector<Operation> operations_of(const Graph& graph, const Run& run) {
  const std::vector<Operation>& all = graph.at(run.place).operations;
  return {all.begin() + static_cast<std::ptrdiff_t>(run.begin),
          all.begin() + static_cast<std::ptrdiff_t>(run.end)};
}

/// One run's tensors; `is_shared` is for all of them together to say.
std::vector<RunTensor> tensors_of_one(const Graph& graph, const ReadCounts& reads, const Run& run) {
  std::map<TensorId, std::uint32_t> own_reads;
  std::set<TensorId> written;
  std::set<TensorId> come_in;
  for (const Operation& operation : operations_of(graph, run)) {
    for (const TensorId id : operation.inputs) {
      ++own_reads[id];
      if (!written.contains(id)) {
        come_in.insert(id);
      }
    }
    written.insert(operation.outputs.begin(), operation.outputs.end());
  }
  std::vector<RunTensor> all;
  for (const TensorId id : tensors_of(graph, run)) {
    const bool comes_in = come_in.contains(id);
    const bool is_read = reads.of(id) > own_reads[id];
    all.push_back({id, false, comes_in, written.contains(id) && (comes_in || is_read)});
  }
  return all;
}

/// Takes the names of random numbers out of a run's operations. Those that differ between runs
/// become salts of the calls.
class Salts {
 public:
  explicit Salts(std::size_t runs) : salts_(runs) {}

  /// `same`: operation k of each run. Changes the first.
  void take(const std::vector<const Operation*>& same, Operation& first) {
    for (const auto& [name, value] : same[0]->attributes.values()) {
      const bool alike = std::ranges::all_of(same, [&](const Operation* operation) {
        return operation->attributes.values().at(name) == value;
      });
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
  std::vector<std::vector<std::string>> salts_;  ///< By run.
};

/// What takes the place of a run.
struct Replacement {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<Operation> operations;
};

class Outlining {
 public:
  explicit Outlining(Graph& graph) : graph_(graph), reads_(graph) {}

  void add(const EqualRuns& equal) {
    while (find_function(graph_, name_of(next_)) != nullptr) {
      ++next_;
    }
    const std::string name = name_of(next_++);
    const std::vector<std::vector<RunTensor>> tensors = tensors_of(graph_, reads_, equal);
    std::vector<std::vector<Operation>> runs;
    for (const Run& run : equal.runs) {
      runs.push_back(operations_of(graph_, run));
    }
    std::vector<TensorId> own;
    std::map<TensorId, TensorId> own_of;
    for (const RunTensor& one : tensors[0]) {
      own.push_back(one.is_shared ? one.tensor : add_own(name, one.tensor));
      own_of.emplace(one.tensor, own.back());
    }
    Salts salts(runs.size());
    std::vector<Operation> body = runs[0];
    for (std::size_t k = 0; k < body.size(); ++k) {
      std::vector<const Operation*> same;
      std::ranges::transform(runs, std::back_inserter(same),
                             [k](const std::vector<Operation>& run) { return &run[k]; });
      salts.take(same, body[k]);
      for (auto* ids : {&body[k].inputs, &body[k].outputs}) {
        std::ranges::transform(*ids, ids->begin(), [&](TensorId id) { return own_of.at(id); });
      }
    }
    graph_.at(graph_.add_function(name, {1})[0]).operations = std::move(body);
    for (std::size_t run = 0; run < runs.size(); ++run) {
      const Place place = equal.runs[run].place;
      replacements_[{place.function, place.region}].push_back(
          {equal.runs[run].begin, equal.runs[run].end,
           call(Call{.function = name, .salts = salts.of(run)}, runs[run], tensors[run], own)});
    }
  }

  /// Puts the calls in.
  void finish() {
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
      for (Replacement& replacement : replacements) {
        keep_until(replacement.begin);
        std::ranges::move(replacement.operations, std::back_inserter(operations));
        at = replacement.end;
      }
      keep_until(region.operations.size());
      region.operations = std::move(operations);
    }
  }

 private:
  static std::string name_of(std::size_t number) {
    return fmt::format("{}{}", kOutlinedPrefix, number);
  }

  TensorId add_own(const std::string& function, TensorId like) {
    Tensor own = graph_.tensor(like);
    own.copy_of = own.copy_of.value_or(like);
    own.residence = std::nullopt;
    own.name = fmt::format("{}/{}", function, own.name);
    // Parameters and state are saved and trained by their own names alone.
    if (own.role != Role::kStream && own.role != Role::kGradient) {
      own.role = Role::kActivation;
    }
    return graph_.add_tensor(std::move(own));
  }

  /// The copies belong to the ends of the run.
  static std::vector<Operation> call(const Call& call, const std::vector<Operation>& run,
                                     const std::vector<RunTensor>& tensors,
                                     const std::vector<TensorId>& own) {
    Copy in;
    Copy out;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].comes_in && !tensors[t].is_shared) {
        in.from_tensors.push_back(tensors[t].tensor);
        in.to_tensors.push_back(own[t]);
      }
      if (tensors[t].goes_out && !tensors[t].is_shared) {
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
  ReadCounts reads_;
  std::size_t next_ = 0;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Replacement>>
      replacements_;  ///< By function and region.
};

}  // namespace

ReadCounts::ReadCounts(const Graph& graph) : counts_(graph.tensors().size()) {
  for (const Function& function : graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        for (const TensorId id : operation.inputs) {
          ++counts_[index_of(id)];
        }
      }
    }
  }
}

std::vector<std::vector<RunTensor>> tensors_of(const Graph& graph, const ReadCounts& reads,
                                               const EqualRuns& equal) {
  std::vector<std::vector<RunTensor>> all;
  for (const Run& run : equal.runs) {
    all.push_back(tensors_of_one(graph, reads, run));
  }
  for (std::size_t t = 0; t < all[0].size(); ++t) {
    const bool shared = std::ranges::all_of(
        all, [&](const std::vector<RunTensor>& run) { return run[t].tensor == all[0][t].tensor; });
    for (std::vector<RunTensor>& run : all) {
      run[t].is_shared = shared;
    }
  }
  return all;
}

void outline(Graph& graph, const std::vector<EqualRuns>& all) {
  Outlining outlining(graph);
  for (const EqualRuns& equal : all) {
    outlining.add(equal);
  }
  outlining.finish();
}

}  // namespace poprun
