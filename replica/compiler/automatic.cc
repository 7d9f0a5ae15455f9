#include "replica/compiler/automatic.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/compiler/compile.h"
#include "replica/compiler/passes.h"
#include "replica/compiler/search.h"
#include "replica/compiler/techniques/stages/balance.h"
#include "replica/compiler/techniques/stages/stage_cuts.h"

namespace poprun {
namespace {

/// Returns `choice` without proposals once `observer` wants no further compilations.
Choice<Compiled> limited(Choice<Compiled> choice, const CompileObserver& observer) {
  return {[next = std::move(choice.next), &observer](const Compiled* latest) -> std::optional<CompileOptions> {
            std::optional<CompileOptions> proposal = next(latest);
            return proposal && observer.may_compile_again && !observer.may_compile_again() ? std::nullopt : proposal;
          },
          choice.keeps_latest};
}

/// Returns an observer that is notified of compilations but not of passes.
CompileObserver quiet(const CompileObserver& observer) {
  return {.before_compilation = observer.before_compilation, .may_compile_again = observer.may_compile_again};
}

MeasuredSplit measured(const Compiled& compiled, std::vector<std::size_t> begins) {
  MeasuredSplit split{std::move(begins), {}};
  for (const std::uint32_t ipu : compiled.job.ipu_of_stage) {
    split.peaks.push_back(needed(compiled.program.memory(static_cast<int>(ipu))));
  }
  return split;
}

void add_first_note(const Note& note, Program& program) {
  add_note(note, program);
  std::rotate(program.mutable_notes()->rbegin(), program.mutable_notes()->rbegin() + 1,
              program.mutable_notes()->rend());
}

/// Proposes splits, each based on the measured memory of the previous ones.
class Splits {
 public:
  /// `first` is the compilation with the split from the estimate.
  explicit Splits(const Compiled& first)
      : options_(first.options),
        layers_(first.job.graph.layers),
        balancing_(*first.job.balancing),
        proposed_(balance(balancing_)) {}

  std::optional<CompileOptions> next(const Compiled* latest) {
    if (latest == nullptr) {
      return std::nullopt;  // The model cannot be cut there, for example between two uses of one running statistic.
    }
    tried_.push_back(measured(*latest, proposed_));
    std::optional<std::vector<std::size_t>> begins;
    if (tried_.size() < kSplitsMax) {
      begins = next_split(balancing_, tried_);
    }
    if (!begins) {
      return std::nullopt;
    }
    proposed_ = *std::move(begins);
    CompileOptions options = options_;
    options.pipeline.split.clear();
    for (const std::size_t begin : proposed_) {
      options.pipeline.split.push_back(layers_[begin].name);
    }
    return options;
  }

 private:
  CompileOptions options_;
  std::vector<Layer> layers_;
  Balancing balancing_;
  std::vector<std::size_t> proposed_;
  std::vector<MeasuredSplit> tried_;
};

/// Returns the first layer of each stage except the first. `balancing` comes from the first compilation.
std::vector<std::size_t> begins_of(const Compiled& compiled, const Balancing& balancing) {
  const std::vector<std::string>& split = compiled.options.pipeline.split;
  if (split.empty()) {
    return balance(balancing);
  }
  std::vector<std::size_t> begins;
  for (const std::string& name : split) {
    const auto layer = std::ranges::find(compiled.job.graph.layers, name, &Layer::name);
    begins.push_back(static_cast<std::size_t>(layer - compiled.job.graph.layers.begin()));
  }
  return begins;
}

/// Returns the end of the note on a split: how the split was found.
std::string found_how(const Compiled& best, std::size_t compilations) {
  if (best.lacking() <= 0) {
    return compilations == 1 ? "" : fmt::format(", found by compiling {} splits", compilations);
  }
  return compilations == 1
             ? "; it does not fit, and no other split is expected to"
             : fmt::format("; none of the {} compiled splits fits, and this split comes closest", compilations);
}

/// Compiles the job. Rebalances balanced stages until they fit, and adds a note on the split.
Result<Compiled> compile_balanced(const CompileOptions& options, const CompileObserver& observer) {
  POPRUN_ASSIGN(Compiled first, compile_settled(options, observer));
  if (!first.job.balancing) {
    return first;
  }
  const Balancing balancing = *first.job.balancing;
  std::size_t compilations = 1;
  Choice<Compiled> splits{[splits = Splits(first)](const Compiled* latest) mutable { return splits.next(latest); }};
  POPRUN_ASSIGN(Compiled best, search(std::move(first), {limited(std::move(splits), observer)}, [&](const auto& split) {
                  Result<Compiled> compiled = compile_settled(split, quiet(observer));
                  compilations += compiled ? 1U : 0U;
                  return compiled;
                }));
  add_first_note(balanced_note(best.job.graph.layers, begins_of(best, balancing), found_how(best, compilations)),
                 best.program);
  return best;
}

struct Movable {
  Storage LocationOptions::*storage;
  std::string_view key;
};

/// Cheapest first: optimiser state and weights are moved once per step, accumulators and stashes in every micro-batch.
constexpr std::array<Movable, 4> kMovable = {{{&LocationOptions::optimizer_state, "memory.optimizer-state"},
                                              {&LocationOptions::weights, "memory.weights"},
                                              {&LocationOptions::accumulators, "memory.accumulators"},
                                              {&LocationOptions::activations, "memory.activations"}}};

/// Returns the choices, apart from the split, that `asked` leaves open, cheapest first.
std::vector<Choice<Compiled>> open_choices(const CompileOptions& asked) {
  const auto changed = [&asked](const auto& change) {
    return [change, split = asked.pipeline.split](const Compiled& from) {
      CompileOptions options = from.options;
      options.pipeline.split = split;
      change(options);
      return options;
    };
  };
  std::vector<Choice<Compiled>> choices;
  if (asked.outlining == Outlining::kAuto) {
    // Share all code that can be shared, even at the cost of device time.
    choices.push_back(single<Compiled>(changed([](CompileOptions& options) { options.outlining = Outlining::kOn; })));
  }
  for (const Movable& movable : kMovable) {
    if (asked.locations.*movable.storage == Storage::kAuto) {
      choices.push_back(single<Compiled>(changed([storage = movable.storage](CompileOptions& options) {
                                           options.locations.*storage = Storage::kOffChip;
                                         }),
                                         /*keeps_latest=*/true));
    }
  }
  return choices;
}

void note_choices(const CompileOptions& asked, Compiled& best) {
  if (asked.outlining == Outlining::kAuto && best.options.outlining == Outlining::kOn) {
    add_note({"memory.auto",
              "memory.outlining = auto means on: the job does not fit with less outlining",
              {{"option", "memory.outlining"}, {"value", word_of(Outlining::kOn)}}},
             best.program);
  }
  for (const auto& [storage, key] : kMovable) {
    if (asked.locations.*storage == Storage::kAuto) {
      const bool is_off = best.options.locations.*storage == Storage::kOffChip;
      const std::string value = word_of(is_off ? Storage::kOffChip : Storage::kOnChip);
      add_note({"memory.auto",
                fmt::format("{} = auto means {}{}", key, value,
                            is_off ? ": the job does not fit with fewer tensors off-chip" : ""),
                {{"option", std::string{key}}, {"value", value}}},
               best.program);
    }
  }
}

}  // namespace

Result<Program> plan_program(const CompileOptions& options, const CompileObserver& observer) {
  POPRUN_ASSIGN(Compiled first, compile_balanced(options, observer));
  std::vector<Choice<Compiled>> choices = open_choices(options);
  for (Choice<Compiled>& choice : choices) {
    choice = limited(std::move(choice), observer);
  }
  POPRUN_ASSIGN(Compiled best, search(std::move(first), std::move(choices), [&](const CompileOptions& changed) {
                  return compile_balanced(changed, quiet(observer));
                }));
  if (observer.after_pass && !best.was_watched) {
    POPRUN_TRY(run_passes(best.options, {}, observer));
  }
  note_choices(options, best);
  return std::move(best.program);
}

}  // namespace poprun
