#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/planner/product_options.h"
#include "replica/compiler/techniques/outlining/outline.h"
#include "replica/compiler/techniques/outlining/runs.h"
#include "replica/compiler/techniques/outlining/saving.h"
#include "replica/machine/operations.h"
#include "replica/ops/face/operator.h"

/// Lets equal runs of operations, such as transformer layers, share the code of one function. This is the last pass; it
/// depends only on the graph.
namespace poprun::passes::outlining {
namespace {

constexpr std::string_view kName = "outlining";

bool applies(const CompileOptions& options) {
  return options.outlining != Outlining::kOff;
}

/// Limits on the share of an IPU's device time that copies take, in thousandths. The first limit applies to all
/// functions together, unless the user requests outlining. The second always applies, but only to a function whose
/// copies take more than half as long as its operations, such as an update of weights on the chip.
constexpr std::int64_t kTimeForCopies = 10;
constexpr std::int64_t kTimeForDearCopies = 1;

bool takes_more(Cycles copying, Cycles busy, std::int64_t thousandths) {
  return copying * 1000 > busy * thousandths;
}

/// Equal runs and what they save.
struct Candidate {
  EqualRuns equal;
  Saving saving;
};

/// Bytes per tile of an IPU.
struct Balance {
  Bytes code;   ///< Saved by outlining.
  Bytes taken;  ///< Used by copies: their code, and the increase in peak memory.
};

/// Returns, for each IPU, the bytes that all candidates together save and use.
std::vector<Balance> balance_of(const std::vector<Candidate>& candidates, const StepBytes& before,
                                const StepBytes& after, const CompileOptions& options) {
  std::vector<Balance> all(static_cast<std::size_t>(options.ipus_per_replica));
  for (const Candidate& candidate : candidates) {
    all.at(candidate.saving.ipu).code += candidate.saving.code;
    all.at(candidate.saving.ipu).taken += candidate.saving.copies;
  }
  for (std::uint32_t ipu = 0; ipu < all.size(); ++ipu) {
    const std::int64_t more = (after.peak(ipu) - before.peak(ipu)).count();
    all[ipu].taken += Bytes{more <= 0 ? 0 : ceil_div(more, options.device.tiles)};
  }
  return all;
}

Graph with(const Graph& graph, const std::vector<Candidate>& candidates) {
  std::vector<EqualRuns> all;
  std::ranges::transform(candidates, std::back_inserter(all), &Candidate::equal);
  std::ranges::sort(all, {}, [](const EqualRuns& equal) {
    const Run& first = equal.runs.front();
    return std::tuple{first.place.function, first.place.region, first.begin};
  });
  Graph outlined = graph;
  outline(outlined, all);
  return outlined;
}

bool is_cheaper(const Candidate& a, const Candidate& b) {
  return a.saving.net().count() * b.saving.copying.count() > b.saving.net().count() * a.saving.copying.count();
}

/// Returns the cheapest candidates that save bytes and whose copies together take no more than kTimeForCopies of their
/// IPU's device time per call of the root.
std::vector<Candidate> cheap_ones(std::vector<Candidate> candidates, const Workload& workload) {
  std::ranges::stable_sort(candidates, is_cheaper);
  std::map<std::pair<std::size_t, std::uint32_t>, Cycles> copying;
  std::erase_if(candidates, [&](const Candidate& candidate) {
    const auto [ipu, root] = std::pair{candidate.saving.ipu, candidate.equal.root};
    Cycles& here = copying[{root, ipu}];
    const Cycles more = here + candidate.saving.copying;
    const bool is_dear =
        candidate.saving.net() <= Bytes{} || takes_more(more, workload.busy(root, ipu), kTimeForCopies);
    here = is_dear ? here : more;
    return is_dear;
  });
  return candidates;
}

/// Drops the half of an IPU's candidates that saves the least per cycle of copying.
void drop_half(std::uint32_t ipu, std::vector<Candidate>& candidates) {
  const auto here = std::ranges::stable_partition(
      candidates, [ipu](const Candidate& candidate) { return candidate.saving.ipu != ipu; });
  std::ranges::stable_sort(here, is_cheaper);
  candidates.erase(here.begin() + std::ranges::ssize(here) / 2, here.end());
}

void add_notes(const std::vector<Candidate>& candidates, const std::vector<Balance>& balance, Job& job) {
  for (std::uint32_t ipu = 0; ipu < balance.size(); ++ipu) {
    std::uint64_t functions = 0;
    std::int64_t runs = 0;
    std::int64_t operations = 0;
    for (const Candidate& candidate : candidates) {
      if (candidate.saving.ipu == ipu) {
        ++functions;
        runs += candidate.saving.runs;
        operations += candidate.saving.runs * candidate.saving.operations;
      }
    }
    if (functions > 0) {
      job.notes.push_back(
          {"outlining.outlined",
           fmt::format(
               "outlining on IPU {}: {} with {} operations share {}; on each tile, this saves about {} of code, "
               "but copies use {}",
               ipu, counted(static_cast<std::uint64_t>(runs), "run"), grouped(operations),
               counted(functions, "function"), mebibytes_text(static_cast<std::uint64_t>(balance[ipu].code.count())),
               mebibytes_text(static_cast<std::uint64_t>(balance[ipu].taken.count()))),
           {{"ipu", ipu},
            {"runs", runs},
            {"operations", operations},
            {"functions", functions},
            {"code-saved", balance[ipu].code},
            {"copies", balance[ipu].taken}}});
    }
  }
}

/// Returns the pieces of all runs, except those whose copies take too long.
std::vector<Candidate> candidates_of(const CompileOptions& options, const Graph& graph,
                                     const std::vector<EqualRuns>& all, const StepBytes& bytes,
                                     const Workload& workload) {
  const Reads reads(graph);
  std::vector<Candidate> candidates;
  for (const EqualRuns& equal : all) {
    for (EqualRuns& piece : in_pieces(graph, equal, reads, bytes, options.device)) {
      const Saving saving = saving_of(graph, piece, reads, workload, options.device);
      const bool is_dear = saving.copying * 2 > saving.working &&
                           takes_more(saving.copying, workload.busy(equal.root, saving.ipu), kTimeForDearCopies);
      if (!is_dear) {
        candidates.push_back({std::move(piece), saving});
      }
    }
  }
  return candidates;
}

std::int64_t runs_in(const std::vector<EqualRuns>& all) {
  std::int64_t runs = 0;
  for (const EqualRuns& equal : all) {
    runs += std::ssize(equal.runs);
  }
  return runs;
}

/// Adds a note on how many more equal runs there would be if all products had the same available-memory proportion.
void note_unequal_proportions(Job& job) {
  Graph alike = job.graph;
  std::set<std::int64_t> proportions;
  for (Function& function : alike.functions) {
    for (Region& region : function.regions) {
      for (Operation& operation : region.operations) {
        const Operator* op = find_operator(operation.kind);
        if (op != nullptr && op->product != nullptr) {
          proportions.insert(permille_of(operation.attributes));
          operation.attributes.set(kAvailableMemoryAttribute, std::int64_t{0});
        }
      }
    }
  }
  if (proportions.size() < 2) {
    return;
  }
  const std::int64_t apart = runs_in(find_equal_runs(alike)) - runs_in(find_equal_runs(job.graph));
  if (apart > 0) {
    job.notes.push_back({"outlining.unequal-proportions",
                         fmt::format("{} of operations could also share code if their convolutions and matmuls had "
                                     "the same memory.available-memory-proportion",
                                     counted(static_cast<std::uint64_t>(apart), "run")),
                         {{"runs", apart}}});
  }
}

std::set<std::uint32_t> losing(const std::vector<Candidate>& candidates, const std::vector<Balance>& balance) {
  std::set<std::uint32_t> ipus;
  for (const Candidate& candidate : candidates) {
    const Balance& here = balance[candidate.saving.ipu];
    if (here.code <= here.taken) {
      ipus.insert(candidate.saving.ipu);
    }
  }
  return ipus;
}

/// Outlines all candidates if `forced`, otherwise only candidates that save memory on every IPU.
void outline_what_pays(const CompileOptions& options, bool forced, const StepBytes& before,
                       std::vector<Candidate> candidates, Job& job) {
  while (!candidates.empty()) {
    Graph outlined = with(job.graph, candidates);
    const StepBytes after(outlined, options.device, options.ipus_per_replica);
    const std::vector<Balance> balance = balance_of(candidates, before, after, options);
    const std::set<std::uint32_t> ipus = losing(candidates, balance);
    if (forced || ipus.empty()) {
      job.graph = std::move(outlined);
      add_notes(candidates, balance, job);
      return;
    }
    for (const std::uint32_t ipu : ipus) {
      drop_half(ipu, candidates);
    }
  }
}

Note no_effect(std::string_view why) {
  return {"option.no-effect",
          fmt::format("memory.outlining = on has no effect: {}", why),
          {{"option", "memory.outlining"}}};
}

Status run(const CompileOptions& options, Job& job) {
  const bool forced = options.outlining == Outlining::kOn;
  note_unequal_proportions(job);
  const std::vector<EqualRuns> all = find_equal_runs(job.graph);
  if (all.empty()) {
    if (forced) {
      job.notes.push_back(
          no_effect(fmt::format("no two sequences of {} or more operations can share code", kLeastRun)));
    }
    return {};
  }
  const StepBytes bytes(job.graph, options.device, options.ipus_per_replica);
  const Workload workload(job.graph, options.device, {options.replicas, options.ipus_per_replica});
  std::vector<Candidate> candidates = candidates_of(options, job.graph, all, bytes, workload);
  if (forced && candidates.empty()) {
    job.notes.push_back(
        no_effect(fmt::format("in each of {}, copies of inputs and outputs would take more than half as long as the "
                              "operations themselves",
                              counted(static_cast<std::uint64_t>(runs_in(all)), "repeated sequence"))));
  }
  outline_what_pays(options, forced, bytes,
                    forced ? std::move(candidates) : cheap_ones(std::move(candidates), workload), job);
  return {};
}

bool is_outlined(const Function& function) {
  return function.name.starts_with(kOutlinedPrefix);
}

tl::unexpected<Error> outlining_bug(const Function& function, std::string_view what) {
  return fail(ErrorCode::kBug, fmt::format("pass {}: {}: {}", kName, function.name, what));
}

/// Inlines the calls of outlined functions in a region after the pass, and compares the result with the region before.
class Inlining {
 public:
  Inlining(const Graph& before, const Graph& after, const Function& function)
      : before_(before), after_(after), function_(function) {}

  Status compare(const Region& was, const Region& is) {
    was_ = &was.operations;
    at_ = 0;
    stands_for_.clear();
    for (const Operation& operation : is.operations) {
      const std::optional<Call> call = Call::from(operation);
      const Function* callee = call ? find_function(after_, call->function) : nullptr;
      if (callee != nullptr && is_outlined(*callee)) {
        for (const Region& region : callee->regions) {
          for (const Operation& inlined : region.operations) {
            POPRUN_TRY(same(inlined, *call));
          }
        }
      } else if (is_next(operation) || !is_of_call(operation)) {
        POPRUN_TRY(same(operation, {}));
      } else {
        for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
          if (is_own(operation.outputs[k])) {
            POPRUN_ASSIGN(stands_for_[operation.outputs[k]], meant_by(operation.inputs[k]));
          }
        }
      }
    }
    return at_ == was_->size() ? Status{} : outlining_bug(function_, "loses operations");
  }

 private:
  [[nodiscard]] bool is_own(TensorId id) const { return index_of(id) >= before_.tensors().size(); }

  [[nodiscard]] bool is_next(const Operation& operation) const {
    return at_ < was_->size() && (*was_)[at_].kind == operation.kind &&
           (*was_)[at_].attributes == operation.attributes && (*was_)[at_].outputs.size() == operation.outputs.size();
  }

  /// Returns whether an operation only copies tensors to outlined functions, or back from them.
  [[nodiscard]] bool is_of_call(const Operation& operation) const {
    if (!Copy::is(operation)) {
      return false;
    }
    for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
      const auto found = stands_for_.find(operation.inputs[k]);
      if (!is_own(operation.outputs[k]) && (found == stands_for_.end() || found->second != operation.outputs[k])) {
        return false;
      }
    }
    return true;
  }

  /// Returns the original tensor, from before the pass, whose value `id` holds.
  [[nodiscard]] Result<TensorId> meant_by(TensorId id) const {
    if (!is_own(id)) {
      return id;
    }
    const auto found = stands_for_.find(id);
    if (found == stands_for_.end()) {
      return pass_bug(kName, after_, id, "is read before it is written");
    }
    return found->second;
  }

  Status same(const Operation& is, const Call& call) {
    if (at_ == was_->size()) {
      return outlining_bug(function_, fmt::format("adds {}", is.kind));
    }
    const Operation& was = (*was_)[at_++];
    if (is.kind != was.kind || is.inputs.size() != was.inputs.size() || is.outputs.size() != was.outputs.size() ||
        in_call(is, call) != was.attributes) {
      return outlining_bug(function_, fmt::format("{} {} takes the place of {} {}", is.kind, to_text(is.attributes),
                                                  was.kind, to_text(was.attributes)));
    }
    for (std::size_t k = 0; k < is.inputs.size(); ++k) {
      POPRUN_ASSIGN(const TensorId meant, meant_by(is.inputs[k]));
      POPRUN_TRY(takes_place(is.inputs[k], meant, was.inputs[k]));
    }
    for (std::size_t k = 0; k < is.outputs.size(); ++k) {
      const TensorId output = is.outputs[k];
      if (is_own(output)) {
        stands_for_[output] = was.outputs[k];
      }
      POPRUN_TRY(takes_place(output, is_own(output) ? was.outputs[k] : output, was.outputs[k]));
    }
    return {};
  }

  [[nodiscard]] Status takes_place(TensorId is, TensorId meant, TensorId was) const {
    if (meant != was || after_.tensor(is).type != before_.tensor(was).type ||
        after_.tensor(is).ipu != before_.tensor(was).ipu) {
      return pass_bug(kName, after_, is, fmt::format("takes the place of '{}'", before_.tensor(was).name));
    }
    return {};
  }

  /// Returns an operation's attributes, with the call's salts filled in and the call's entry added to the entries.
  static Attributes in_call(const Operation& operation, const Call& call) {
    Attributes all = operation.attributes;
    for (const std::string& name : {std::string("key"), std::string("stochastic")}) {
      const auto found = operation.attributes.values().find(name);
      if (found == operation.attributes.values().end()) {
        continue;
      }
      if (const auto* k = std::get_if<std::int64_t>(&found->second);
          k != nullptr && static_cast<std::size_t>(*k) < call.salts.size()) {
        all.set(name, call.salts[static_cast<std::size_t>(*k)]);
      }
    }
    for (const std::string& name : {std::string("from_entries"), std::string("to_entries")}) {
      if (!all.has(name)) {
        continue;
      }
      std::vector<std::int64_t> entries = all.integers(name);
      std::ranges::transform(entries, entries.begin(), [&call](std::int64_t entry) {
        return entry == Copy::kWhole ? entry : entry + call.entry;
      });
      all.set(name, std::move(entries));
    }
    return all;
  }

  const Graph& before_;
  const Graph& after_;
  const Function& function_;
  const std::vector<Operation>* was_ = nullptr;
  std::size_t at_ = 0;                       ///< Index of the next operation from before the pass.
  std::map<TensorId, TensorId> stands_for_;  ///< The original of each tensor of an outlined function.
};

/// Checks that inlining every call of an outlined function restores the job as it was before the pass.
Status verify(const CompileOptions& /*options*/, const Job& before, const Job& after) {
  const std::size_t count = before.graph.functions.size();
  for (std::size_t f = 0; f < after.graph.functions.size(); ++f) {
    const Function& is = after.graph.functions[f];
    if (f >= count) {
      if (!is_outlined(is)) {
        return outlining_bug(is, "is not an outlined function, and did not exist before the pass");
      }
      continue;
    }
    const Function& was = before.graph.functions[f];
    if (is.name != was.name || is.regions.size() != was.regions.size()) {
      return outlining_bug(is, fmt::format("takes the place of {}", was.name));
    }
    for (std::size_t r = 0; r < is.regions.size(); ++r) {
      if (is.regions[r].repeat != was.regions[r].repeat) {
        return outlining_bug(is, "repeats a region a different number of times");
      }
      POPRUN_TRY(Inlining(before.graph, after.graph, is).compare(was.regions[r], is.regions[r]));
    }
  }
  if (after.graph.functions.size() < count) {
    return fail(ErrorCode::kBug, fmt::format("pass {}: functions are missing", kName));
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify, true};
}

}  // namespace poprun::passes::outlining
