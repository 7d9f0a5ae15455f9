#include "replica/compiler/proofs/equivalence.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "replica/compiler/proofs/flat_graph.h"
#include "replica/compiler/proofs/history.h"
#include "replica/compiler/proofs/interpreter.h"

namespace poprun {
namespace {

constexpr std::string_view kLoad = "load";

/// Maximum number of micro-batches in a run that explains a difference; enough for the ramps and stashes of 8 stages.
constexpr std::int64_t kExplainedMicroBatches = 48;

struct Difference {
  std::string what;  ///< "'w' differs after train (run 2)"
  std::optional<Value> wanted;
  std::optional<Value> got;
};

class Comparison {
 public:
  Comparison(const FlatGraph& plain, const FlatGraph& rewritten, History* plain_history = nullptr,
             History* rewritten_history = nullptr)
      : plain_(plain),
        rewritten_(rewritten),
        plain_run_(plain, plain_history),
        rewritten_run_(rewritten, rewritten_history) {}

  /// Returns the first difference, if any. Errors: kBug if an operation reads a tensor that nothing has written.
  Result<std::optional<Difference>> run() {
    for (const bool first : {true, false}) {
      for (std::uint32_t f = 0; f < plain_.functions.size(); ++f) {
        const FlatFunction& function = plain_.functions[f];
        if (function.called || (!first && function.name == kLoad)) {
          continue;
        }
        POPRUN_ASSIGN(std::optional<Difference> difference, run(f));
        ++runs_;
        if (difference) {
          return difference;
        }
      }
    }
    return std::optional<Difference>{};
  }

 private:
  Result<std::optional<Difference>> run(std::uint32_t f) {
    const FlatFunction& function = plain_.functions[f];
    const auto same = std::ranges::find(rewritten_.functions, function.name, &FlatFunction::name);
    const std::string where = fmt::format("{} (run {})", function.name, runs_);
    if (same == rewritten_.functions.end() || same->called) {
      return std::optional(Difference{fmt::format("function {} is missing", function.name), {}, {}});
    }
    const bool counts =
        std::ranges::any_of(function.regions, [](const FlatRegion& region) { return region.repeat > 1; });
    const Holders holders = holders_of_values();
    POPRUN_TRY(plain_run_.run(f, counts));
    POPRUN_TRY(rewritten_run_.run(static_cast<std::uint32_t>(same - rewritten_.functions.begin()), counts));
    std::optional<Difference> difference = sent(where);
    difference = difference ? difference : variables(where);
    return difference ? difference : carried(f, where, holders);
  }

  /// Tensors of the plain job, keyed by the number of the value that they hold between two functions.
  using Holders = std::multimap<Number, std::uint32_t>;

  [[nodiscard]] Holders holders_of_values() const {
    Holders holders;
    for (std::uint32_t t = 0; t < plain_.stash_of.size(); ++t) {
      if (const Value& value = plain_run_.value(TensorId{t}); value.exists()) {
        holders.emplace(value.number, t);
      }
    }
    return holders;
  }

  /// Checks the values that a function of the rewritten job reads from earlier functions. A tensor of the plain job
  /// must hold each of these values, and it must be the same tensor as in earlier runs of the function.
  std::optional<Difference> carried(std::uint32_t f, const std::string& where, const Holders& holders) {
    for (const auto& [slot, value] : rewritten_run_.carried()) {
      std::set<std::uint32_t> same;
      const auto [begin, end] = holders.equal_range(value.number);
      std::transform(begin, end, std::inserter(same, same.end()), [](const auto& holder) { return holder.second; });
      const auto [before, first] = carried_.try_emplace({f, slot}, same);
      std::erase_if(before->second, [&same](std::uint32_t t) { return !same.contains(t); });
      if (before->second.empty()) {
        return Difference{fmt::format("'{}' holds {} when {} begins", rewritten_.slot_name(slot),
                                      first ? "a value that no tensor of the plain job holds"
                                            : "the value of a different plain-job tensor than before",
                                      where),
                          {},
                          value};
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Difference> sent(const std::string& where) const {
    const Interpreter::Streams& wanted = plain_run_.sent();
    const Interpreter::Streams& got = rewritten_run_.sent();
    for (const auto& [stream, records] : wanted) {
      const auto same = got.find(stream);
      if (same == got.end()) {
        return Difference{fmt::format("stream '{}' has no record in {}", stream, where), {}, {}};
      }
      if (const auto difference = sent(stream, where, records, same->second)) {
        return difference;
      }
    }
    for (const auto& [stream, records] : got) {
      if (!wanted.contains(stream)) {
        return Difference{fmt::format("stream '{}' has an unexpected record in {}", stream, where), {}, {}};
      }
    }
    return std::nullopt;
  }

  static std::optional<Difference> sent(const std::string& stream, const std::string& where,
                                        const std::vector<Sent>& wanted, const std::vector<Sent>& got) {
    const auto [a, b] = std::ranges::mismatch(wanted, got);
    if (a == wanted.end() && b == got.end()) {
      return std::nullopt;
    }
    const std::int64_t index = a != wanted.end() ? a->index : b->index;
    Difference difference{fmt::format("record {} of stream '{}' differs in {}", index, stream, where), {}, {}};
    if (a != wanted.end() && b != got.end() && a->values.size() == b->values.size()) {
      const auto [x, y] =
          std::ranges::mismatch(a->values, b->values, [](const Value& v, const Value& w) { return v.equals(w); });
      if (x != a->values.end()) {
        difference.wanted = *x;
        difference.got = *y;
      }
    }
    return difference;
  }

  [[nodiscard]] std::optional<Difference> variables(const std::string& where) const {
    const std::vector<Tensor>& tensors = plain_.graph->tensors();
    for (std::uint32_t t = 0; t < tensors.size(); ++t) {
      const Tensor& tensor = tensors[t];
      if (tensor.role != Role::kParameter && tensor.role != Role::kBuffer && tensor.role != Role::kConstant &&
          tensor.role != Role::kOptimizerState) {
        continue;
      }
      if (!rewritten_.graph->has(tensor.name)) {
        return Difference{fmt::format("'{}' is missing", tensor.name), {}, {}};
      }
      const Value& wanted = plain_run_.value(TensorId{t});
      const Value got = rewritten_run_.resident(rewritten_.graph->find(tensor.name));
      if (!wanted.equals(got)) {
        return Difference{fmt::format("'{}' differs after {}", tensor.name, where), wanted, got};
      }
    }
    return std::nullopt;
  }

  const FlatGraph& plain_;
  const FlatGraph& rewritten_;
  Interpreter plain_run_;
  Interpreter rewritten_run_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::set<std::uint32_t>>
      carried_;  ///< For each function and slot, plain-job tensors that held the same value.
  int runs_ = 0;
};

/// If exactly one region has many rounds, drops most of them in both graphs. The remaining rounds still show the
/// difference.
void shorten(FlatFunction& plain, FlatGraph& rewritten, FlatFunction& other) {
  const auto many = [](const FlatRegion& r) { return r.repeat > kExplainedMicroBatches; };
  if (std::ranges::count_if(plain.regions, many) != 1) {
    return;
  }
  FlatRegion& from = *std::ranges::find_if(plain.regions, many);
  const std::int64_t less = from.repeat - kExplainedMicroBatches;
  const auto region = std::ranges::find_if(other.regions, [less](const FlatRegion& r) { return r.repeat > less; });
  if (region == other.regions.end()) {
    return;
  }
  from.repeat -= less;
  region->repeat -= less;
  for (auto later = region + 1; later != other.regions.end(); ++later) {
    for (std::uint32_t o = later->begin; o < later->end; ++o) {
      rewritten.operations[o].micro_batch -= less;
    }
  }
}

bool is_short(const FlatGraph& graph) {
  return std::ranges::all_of(graph.functions, [](const FlatFunction& function) {
    return std::ranges::all_of(function.regions,
                               [](const FlatRegion& region) { return region.repeat <= kExplainedMicroBatches; });
  });
}

/// Explains a difference by means of a second run, which has fewer micro-batches and records everything.
Status explain(FlatGraph plain, FlatGraph rewritten, const Difference& found) {
  for (FlatFunction& function : plain.functions) {
    const auto same = std::ranges::find(rewritten.functions, function.name, &FlatFunction::name);
    if (same != rewritten.functions.end()) {
      shorten(function, rewritten, *same);
    }
  }
  if (!is_short(plain) || !is_short(rewritten)) {
    return fail(ErrorCode::kBug, "equivalence: " + found.what);
  }
  History plain_history(plain);
  History rewritten_history(rewritten);
  Comparison comparison(plain, rewritten, &plain_history, &rewritten_history);
  const auto again = comparison.run();
  const Difference& shown = again && *again ? **again : found;
  std::string why;
  if (again && *again && shown.got) {
    why = ": " + (shown.wanted ? explain_difference(plain_history, *shown.wanted, rewritten_history, *shown.got)
                               : plain_history.name(*shown.got));
  }
  return fail(ErrorCode::kBug, "equivalence: " + shown.what + why);
}

}  // namespace

Status verify_equivalence(const Graph& plain, const Graph& rewritten) {
  POPRUN_ASSIGN(const FlatGraph a, flatten(plain));
  POPRUN_ASSIGN(const FlatGraph b, flatten(rewritten));
  POPRUN_ASSIGN(const std::optional<Difference> difference, Comparison(a, b).run());
  return difference ? explain(a, b, *difference) : Status{};
}

}  // namespace poprun
