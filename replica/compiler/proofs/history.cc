#include "replica/compiler/proofs/history.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun {
namespace {

std::string types_of(const FlatGraph& graph, const FlatOperation& operation) {
  std::string text;
  for (const std::uint32_t id : graph.outputs(operation)) {
    text += (text.empty() ? "" : ", ") + to_text(graph.graph->tensors()[id].type);
  }
  return text;
}

bool same_instant(const Evaluation& a, const Evaluation& b) {
  return a.now.counts == b.now.counts && a.now.index == b.now.index;
}

/// Returns the earliest evaluation, among `last` and those upstream of `last`, whose operands all exist in the plain
/// job.
const Evaluation* first_wrong(const History& plain, const History& rewritten, std::uint32_t last) {
  std::vector<char> seen(rewritten.evaluations().size() + 1);
  std::vector<std::uint32_t> open{last};
  std::uint32_t first = 0;
  while (!open.empty()) {
    const std::uint32_t next = open.back();
    open.pop_back();
    if (next == 0 || seen[next] != 0) {
      continue;
    }
    seen[next] = 1;
    bool known = true;
    for (const Value& input : rewritten.at(next).inputs) {
      if (!plain.has(input)) {
        known = false;
        open.push_back(input.evaluation);
      }
    }
    first = known && (first == 0 || next < first) ? next : first;
  }
  return first == 0 ? nullptr : &rewritten.at(first);
}

/// Returns, of the plain job's evaluations that `fits` accepts, the one that has most in common with `is`.
template <typename Fits>
const Evaluation* most_alike(const History& plain, const History& rewritten, const Evaluation& is, Fits fits) {
  const auto name = [](const History& history, const Evaluation& evaluation) {
    const auto outputs = history.graph().outputs(*evaluation.operation);
    return outputs.empty() ? std::string{} : history.graph().name(outputs[evaluation.first]);
  };
  const Evaluation* best = nullptr;
  std::size_t most = 0;
  for (const Evaluation& candidate : plain.evaluations()) {
    if (candidate.now.run != is.now.run || candidate.inputs.size() != is.inputs.size() || !fits(candidate)) {
      continue;
    }
    std::size_t score = name(plain, candidate) == name(rewritten, is) ? 2U : 1U;
    for (std::size_t k = 0; k < is.inputs.size(); ++k) {
      score += candidate.inputs[k].equals(is.inputs[k]) ? 2U : 0U;
    }
    if (score > most) {
      most = score;
      best = &candidate;
    }
  }
  return best;
}

const Evaluation* counterpart(const History& plain, const History& rewritten, const Evaluation& is) {
  const auto is_same = [&is](const Evaluation& e) { return e.operation->what == is.operation->what; };
  const Evaluation* found =
      most_alike(plain, rewritten, is, [&](const Evaluation& e) { return is_same(e) && same_instant(e, is); });
  if (found == nullptr) {
    found = most_alike(plain, rewritten, is, [&](const Evaluation& e) {
      return e.operation->source->kind == is.operation->source->kind && same_instant(e, is);
    });
  }
  return found != nullptr ? found : most_alike(plain, rewritten, is, is_same);
}

/// Describes how `is` differs from its counterpart `should`.
std::string difference(const History& plain, const Evaluation& should, const History& rewritten, const Evaluation& is) {
  const Operation& operation = *is.operation->source;
  const Operation& original = *should.operation->source;
  const bool is_other = is.operation->what != should.operation->what;
  if (is_other && operation.attributes != original.attributes) {
    return fmt::format("has {}, but in the plain job, it has {}", to_text(operation.attributes),
                       to_text(original.attributes));
  }
  if (is_other) {
    return fmt::format("produces {}, but in the plain job, it produces {}", types_of(rewritten.graph(), *is.operation),
                       types_of(plain.graph(), *should.operation));
  }
  const auto [wanted, got] =
      std::ranges::mismatch(should.inputs, is.inputs, [](const Value& a, const Value& b) { return a.equals(b); });
  if (wanted == should.inputs.end()) {
    return fmt::format("runs as micro-batch {} instead of {}", is.now.index, should.now.index);
  }
  const auto k = is.first + static_cast<std::size_t>(wanted - should.inputs.begin());
  return fmt::format("reads '{}', which holds {} instead of {}",
                     rewritten.graph().name(rewritten.graph().inputs(*is.operation)[k]), plain.name(*got),
                     plain.name(*wanted));
}

}  // namespace

std::string describe(const FlatGraph& graph, const FlatOperation& operation, const Instant& now) {
  const std::string& function = graph.functions[operation.function].name;
  const bool has_output = operation.output_count > 0;
  const std::uint32_t stage = operation.source->origin.stage;
  return fmt::format("{}{}: {}{}{}", now.counts ? fmt::format("micro-batch {} of ", now.index) : std::string{},
                     function, operation.source->kind,
                     has_output ? fmt::format(" '{}'", graph.name(graph.outputs(operation)[0])) : std::string{},
                     stage > 0 ? fmt::format(" of stage {}", stage) : std::string{});
}

std::uint32_t History::add(Evaluation evaluation) {
  evaluations_.push_back(std::move(evaluation));
  return static_cast<std::uint32_t>(evaluations_.size());
}

void History::hold(std::uint32_t tensor, const Value& value) {
  holders_.try_emplace({value.number.high, value.number.low, value.shift}, Holder{tensor, value.evaluation});
}

bool History::has(const Value& value) const {
  return holders_.contains({value.number.high, value.number.low, value.shift});
}

std::string History::name(const Value& value) const {
  const auto holder = holders_.find({value.number.high, value.number.low, value.shift});
  if (holder == holders_.end()) {
    return "a value that the plain job lacks";
  }
  const std::string& tensor = graph_.name(holder->second.tensor);
  const Evaluation& made = at(holder->second.evaluation);
  if (made.now.counts) {
    return fmt::format("'{}' of micro-batch {}", tensor, made.now.index);
  }
  return fmt::format("'{}' as {} writes it in {} (run {})", tensor, made.operation->source->kind,
                     graph_.functions[made.operation->function].name, made.now.run);
}

std::string explain_difference(const History& plain, const Value& wanted, const History& rewritten, const Value& got) {
  if (!got.exists() || plain.has(got)) {
    return fmt::format("it holds {} instead of {}", got.exists() ? plain.name(got) : "no value", plain.name(wanted));
  }
  const Evaluation* is = first_wrong(plain, rewritten, got.evaluation);
  if (is == nullptr) {
    return "it is computed from values that the plain job does not have";
  }
  const std::string where = describe(rewritten.graph(), *is->operation, is->now);
  const Evaluation* should = counterpart(plain, rewritten, *is);
  return should == nullptr ? fmt::format("{} has no counterpart in the plain job", where)
                           : fmt::format("{} {}", where, difference(plain, *should, rewritten, *is));
}

}  // namespace poprun
