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
#include "replica/compiler/outlining/outline.h"
#include "replica/compiler/outlining/runs.h"
#include "replica/compiler/outlining/saving.h"
#include "replica/compiler/passes/pass.h"
#include "replica/compiler/planner/options.h"
#include "replica/machine/operations.h"
#include "replica/ops/operator.h"

/// Lets equal runs of operations, such as transformer layers, share the code of one function. It is
/// the last pass, and relies on nothing but the graph.
namespace poprun {
namespace {

constexpr std::string_view kName = "outlining";

bool applies(const CompileOptions& options) {
  return options.outlining != Outlining::kOff;
}

/// How much of an IPU's device time copies may take where nobody asks for outlining, in percent.
constexpr std::int64_t kTimeForCopies = 1;

/// Equal runs with what they save.
struct Candidate {
  EqualRuns equal;
  Saving saving;
};

/// On each tile of an IPU.
struct Balance {
  Bytes code;   ///< Saved.
  Bytes taken;  ///< By copies: their code, and by how much more is live at once.
};

/// What all candidates together save and take, by IPU.
std::vector<Balance> balance_of(const std::vector<Candidate>& candidates,
                                const std::vector<Bytes>& before, const std::vector<Bytes>& after,
                                std::int64_t tiles) {
  std::vector<Balance> all(before.size());
  for (const Candidate& candidate : candidates) {
    all.at(candidate.saving.ipu).code += candidate.saving.code;
    all.at(candidate.saving.ipu).taken += candidate.saving.copies;
  }
  for (std::size_t ipu = 0; ipu < all.size(); ++ipu) {
    const std::int64_t more = (after[ipu] - before[ipu]).count();
    all[ipu].taken += Bytes{more <= 0 ? 0 : ceil_div(more, tiles)};
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

/// Whether the first saves more bytes for each cycle of copying.
bool is_cheaper(const Candidate& a, const Candidate& b) {
  return a.saving.net().count() * b.saving.copying.count() >
         b.saving.net().count() * a.saving.copying.count();
}

/// The cheapest candidates that save bytes, as long as all copies together take no more than
/// kTimeForCopies of what their IPU does in one call of their root.
std::vector<Candidate> cheap_ones(std::vector<Candidate> candidates, const Workload& workload) {
  std::ranges::stable_sort(candidates, is_cheaper);
  std::map<std::pair<std::size_t, std::uint32_t>, Cycles> copying;
  std::erase_if(candidates, [&](const Candidate& candidate) {
    const auto [ipu, root] = std::pair{candidate.saving.ipu, candidate.equal.root};
    Cycles& here = copying[{root, ipu}];
    const Cycles more = here + candidate.saving.copying;
    const bool is_dear =
        candidate.saving.net() <= Bytes{} || more * 100 > workload.busy(root, ipu) * kTimeForCopies;
    here = is_dear ? here : more;
    return is_dear;
  });
  return candidates;
}

/// Leaves out the half of an IPU's candidates that saves least for the time of its copies.
void drop_half(std::uint32_t ipu, std::vector<Candidate>& candidates) {
  const auto here = std::ranges::stable_partition(
      candidates, [ipu](const Candidate& candidate) { return candidate.saving.ipu != ipu; });
  std::ranges::stable_sort(here, is_cheaper);
  candidates.erase(here.begin() + std::ranges::ssize(here) / 2, here.end());
}

/// Line for each IPU with outlined runs.
void add_notes(const std::vector<Candidate>& candidates, const std::vector<Balance>& balance,
               Job& job) {
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
      job.notes.push_back(fmt::format(
          "outlining on IPU {}: {} with {} operations share {}; each tile saves about {} of code "
          "and takes {} for copies",
          ipu, counted(static_cast<std::uint64_t>(runs), "run"), grouped(operations),
          counted(functions, "function"),
          mebibytes_text(static_cast<std::uint64_t>(balance[ipu].code.count())),
          mebibytes_text(static_cast<std::uint64_t>(balance[ipu].taken.count()))));
    }
  }
}

std::vector<Candidate> candidates_of(const CompileOptions& options, const Graph& graph,
                                     bool forced) {
  std::vector<EqualRuns> all = find_equal_runs(graph);
  if (all.empty()) {
    return {};
  }
  const ReadCounts reads(graph);
  const Workload workload(graph, options.device, {options.replicas, options.ipus_per_replica});
  std::vector<Candidate> candidates;
  for (EqualRuns& equal : all) {
    const Saving saving = saving_of(graph, equal, reads, workload, options.device);
    candidates.push_back({std::move(equal), saving});
  }
  return forced ? candidates : cheap_ones(std::move(candidates), workload);
}

std::int64_t runs_in(const std::vector<EqualRuns>& all) {
  std::int64_t runs = 0;
  for (const EqualRuns& equal : all) {
    runs += std::ssize(equal.runs);
  }
  return runs;
}

/// Says how many runs would be equal if all products had the same proportion of memory.
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
    job.notes.push_back(
        fmt::format("{} of operations more could share code if their convolutions and matmuls had "
                    "equal memory.available-memory-proportion",
                    counted(static_cast<std::uint64_t>(apart), "run")));
  }
}

/// The IPUs whose tiles would need more than without.
std::set<std::uint32_t> losing(const std::vector<Candidate>& candidates,
                               const std::vector<Balance>& balance) {
  std::set<std::uint32_t> ipus;
  for (const Candidate& candidate : candidates) {
    const Balance& here = balance[candidate.saving.ipu];
    if (here.code <= here.taken) {
      ipus.insert(candidate.saving.ipu);
    }
  }
  return ipus;
}

/// Outlines all candidates; unless `forced`, those with which every IPU saves bytes.
void outline_what_pays(const CompileOptions& options, bool forced,
                       std::vector<Candidate> candidates, Job& job) {
  if (candidates.empty()) {
    return;
  }
  const std::vector<Bytes> before = live_peaks(job.graph, options.ipus_per_replica);
  while (!candidates.empty()) {
    Graph outlined = with(job.graph, candidates);
    const std::vector<Bytes> after = live_peaks(outlined, options.ipus_per_replica);
    const std::vector<Balance> balance =
        balance_of(candidates, before, after, options.device.tiles);
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

Status run(const CompileOptions& options, Job& job) {
  const bool forced = options.outlining == Outlining::kOn;
  note_unequal_proportions(job);
  std::vector<Candidate> candidates = candidates_of(options, job.graph, forced);
  if (forced && candidates.empty()) {
    job.notes.push_back(fmt::format(
        "memory.outlining = on has no effect: no runs of {} or more operations are equal",
        kLeastRun));
  }
  outline_what_pays(options, forced, std::move(candidates), job);
  return {};
}

bool is_outlined(const Function& function) {
  return function.name.starts_with(kOutlinedPrefix);
}

tl::unexpected<Error> outlining_bug(const Function& function, std::string_view what) {
  return fail(ErrorCode::kBug, fmt::format("pass {}: {}: {}", kName, function.name, what));
}

/// Reads a region of the job after the pass as if its calls of outlined functions were not there,
/// and compares it with the region before.
class Inlining {
 public:
  Inlining(const Graph& before, const Graph& after, const Function& function)
      : before_(before), after_(after), function_(function) {}

  Status compare(const Region& was, const Region& is) {
    was_ = &was.operations;
    at_ = 0;
    for (std::size_t o = 0; o < is.operations.size(); ++o) {
      const Operation& operation = is.operations[o];
      const std::optional<Call> call = Call::from(operation);
      const Function* callee = call ? find_function(after_, call->function) : nullptr;
      if (callee != nullptr && is_outlined(*callee)) {
        POPRUN_TRY(inlined(*call, *callee, o > 0 ? &is.operations[o - 1] : nullptr,
                           o + 1 < is.operations.size() ? &is.operations[o + 1] : nullptr));
      } else if (!touches_own(operation)) {
        std::map<TensorId, TensorId> none;
        POPRUN_TRY(same(operation, {}, none));
      } else if (!is_next_to_call(is, o)) {
        return outlining_bug(function_, "a copy for a function that is not called there");
      }
    }
    return at_ == was_->size() ? Status{} : outlining_bug(function_, "loses operations");
  }

 private:
  /// Whether an operation copies to or from a tensor of an outlined function.
  [[nodiscard]] bool touches_own(const Operation& operation) const {
    const auto own = [this](TensorId id) { return is_own(id); };
    return Copy::is(operation) && (std::ranges::any_of(operation.inputs, own) ||
                                   std::ranges::any_of(operation.outputs, own));
  }

  [[nodiscard]] bool is_own(TensorId id) const { return index_of(id) >= before_.tensors().size(); }

  [[nodiscard]] bool calls_outlined(const Region& region, std::size_t at) const {
    const std::optional<Call> call =
        at < region.operations.size() ? Call::from(region.operations[at]) : std::nullopt;
    return call && call->function.starts_with(kOutlinedPrefix);
  }

  [[nodiscard]] bool is_next_to_call(const Region& region, std::size_t at) const {
    return calls_outlined(region, at + 1) || (at > 0 && calls_outlined(region, at - 1));
  }

  /// The function's operations are those that were there, on the tensors that its own are copies
  /// of in this call.
  Status inlined(const Call& call, const Function& callee, const Operation* in,
                 const Operation* out) {
    std::map<TensorId, TensorId> stands_for;
    std::set<TensorId> brought;
    if (in != nullptr && Copy::is(*in)) {
      for (std::size_t k = 0; k < in->inputs.size(); ++k) {
        stands_for[in->outputs[k]] = in->inputs[k];
        brought.insert(in->outputs[k]);
      }
    }
    std::set<TensorId> written;
    for (const Region& region : callee.regions) {
      for (const Operation& operation : region.operations) {
        for (const TensorId id : operation.inputs) {
          if (is_own(id) && !brought.contains(id) && !written.contains(id)) {
            return pass_bug(kName, after_, id, "is read without having been copied in");
          }
        }
        POPRUN_TRY(same(operation, call.salts, stands_for));
        written.insert(operation.outputs.begin(), operation.outputs.end());
      }
    }
    if (out != nullptr && Copy::is(*out)) {
      for (std::size_t k = 0; k < out->inputs.size(); ++k) {
        const auto original = stands_for.find(out->inputs[k]);
        if (is_own(out->inputs[k]) &&
            (original == stands_for.end() || original->second != out->outputs[k])) {
          return pass_bug(
              kName, after_, out->outputs[k],
              fmt::format("is not what '{}' stands for", after_.tensor(out->inputs[k]).name));
        }
      }
    }
    return {};
  }

  /// Whether an operation is the next of those before, with each of its own tensors standing for
  /// one and the same tensor.
  Status same(const Operation& is, const std::vector<std::string>& salts,
              std::map<TensorId, TensorId>& stands_for) {
    if (at_ == was_->size()) {
      return outlining_bug(function_, fmt::format("adds {}", is.kind));
    }
    const Operation& was = (*was_)[at_++];
    if (is.kind != was.kind || is.origin.direction != was.origin.direction ||
        is.inputs.size() != was.inputs.size() || is.outputs.size() != was.outputs.size() ||
        salted(is.attributes, salts) != was.attributes) {
      return outlining_bug(
          function_, fmt::format("{} {} takes the place of {} {}", is.kind, to_text(is.attributes),
                                 was.kind, to_text(was.attributes)));
    }
    for (const auto ids : {&Operation::inputs, &Operation::outputs}) {
      for (std::size_t k = 0; k < (is.*ids).size(); ++k) {
        POPRUN_TRY(stands((is.*ids)[k], (was.*ids)[k], stands_for));
      }
    }
    return {};
  }

  [[nodiscard]] Status stands(TensorId is, TensorId was,
                              std::map<TensorId, TensorId>& stands_for) const {
    const TensorId meant = is_own(is) ? stands_for.emplace(is, was).first->second : is;
    if (meant != was || after_.tensor(is).type != before_.tensor(was).type ||
        after_.tensor(is).ipu != before_.tensor(was).ipu) {
      return pass_bug(kName, after_, is,
                      fmt::format("takes the place of '{}'", before_.tensor(was).name));
    }
    return {};
  }

  /// Attributes with the call's salts in their places.
  static Attributes salted(const Attributes& attributes, const std::vector<std::string>& salts) {
    Attributes all = attributes;
    for (const std::string& name : {std::string("key"), std::string("stochastic")}) {
      const auto found = attributes.values().find(name);
      if (found == attributes.values().end()) {
        continue;
      }
      if (const auto* k = std::get_if<std::int64_t>(&found->second);
          k != nullptr && static_cast<std::size_t>(*k) < salts.size()) {
        all.set(name, salts[static_cast<std::size_t>(*k)]);
      }
    }
    return all;
  }

  const Graph& before_;
  const Graph& after_;
  const Function& function_;
  const std::vector<Operation>* was_ = nullptr;
  std::size_t at_ = 0;  ///< The next of those before.
};

/// With every call of an outlined function replaced by its operations, the job is what it was.
Status verify(const CompileOptions& /*options*/, const Job& before, const Job& after) {
  const std::size_t count = before.graph.functions.size();
  for (std::size_t f = 0; f < after.graph.functions.size(); ++f) {
    const Function& is = after.graph.functions[f];
    if (f >= count) {
      if (!is_outlined(is)) {
        return outlining_bug(is, "is new");
      }
      continue;
    }
    const Function& was = before.graph.functions[f];
    if (is.name != was.name || is.regions.size() != was.regions.size()) {
      return outlining_bug(is, fmt::format("takes the place of {}", was.name));
    }
    for (std::size_t r = 0; r < is.regions.size(); ++r) {
      if (is.regions[r].repeat != was.regions[r].repeat) {
        return outlining_bug(is, "repeats a region at another rate");
      }
      POPRUN_TRY(Inlining(before.graph, after.graph, is).compare(was.regions[r], is.regions[r]));
    }
  }
  if (after.graph.functions.size() < count) {
    return fail(ErrorCode::kBug, fmt::format("pass {}: functions are gone", kName));
  }
  return {};
}

}  // namespace

Pass outlining_pass() {
  return {kName, applies, run, verify};
}

}  // namespace poprun
