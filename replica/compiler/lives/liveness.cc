#include "replica/compiler/lives/liveness.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "replica/machine/operations.h"

namespace poprun {
namespace {

constexpr std::int64_t kRounds = 3;
constexpr std::size_t kNone = ~std::size_t{0};

/// One executed operation or, if `operation` is null, the end of a region's round.
struct TraceEvent {
  std::uint32_t step;
  const Operation* operation;
};

class Trace {
 public:
  explicit Trace(const Graph& graph) {
    std::uint32_t step = 0;
    for (const Function& function : graph.functions) {
      functions_[function.name] = {&function, step};
      for (const Region& region : function.regions) {
        step += steps_of(region);
      }
    }
    step_count_ = step;
  }

  [[nodiscard]] std::vector<TraceEvent> of(const Function& function) const {
    std::vector<TraceEvent> events;
    append(function.name, events);
    return events;
  }

  [[nodiscard]] std::uint32_t step_count() const { return step_count_; }

 private:
  struct Numbered {
    const Function* function;
    std::uint32_t first;
  };

  static std::uint32_t steps_of(const Region& region) {
    return static_cast<std::uint32_t>(region.operations.size()) + (region.repeat > 1 ? 1 : 0);
  }

  void append(const std::string& name, std::vector<TraceEvent>& events) const {
    const Numbered& numbered = functions_.at(name);
    std::uint32_t first = numbered.first;
    for (const Region& region : numbered.function->regions) {
      for (std::int64_t round = 0; round < std::min(region.repeat, kRounds); ++round) {
        std::uint32_t step = first;
        for (const Operation& operation : region.operations) {
          events.push_back({step++, &operation});
          if (const std::optional<Call> call = Call::from(operation)) {
            append(call->function, events);
          }
        }
        if (region.repeat > 1) {
          events.push_back({step, nullptr});
        }
      }
      first += steps_of(region);
    }
  }

  std::map<std::string, Numbered> functions_;
  std::uint32_t step_count_ = 0;
};

class Marks {
 public:
  Marks(std::size_t steps, std::size_t tensors) : words_((tensors + 63) / 64), marks_(steps * words_) {}

  void set(std::size_t step, const std::vector<std::uint64_t>& tensors) {
    for (std::size_t w = 0; w < words_; ++w) {
      marks_[step * words_ + w] |= tensors[w];
    }
  }

  [[nodiscard]] bool has(std::size_t step, std::size_t tensor) const {
    return (marks_[step * words_ + tensor / 64] >> tensor % 64 & 1U) != 0;
  }

  template <typename Call>
  void at(std::size_t step, Call call) const {
    for (std::size_t w = 0; w < words_; ++w) {
      for (std::uint64_t bits = marks_[step * words_ + w]; bits != 0; bits &= bits - 1) {
        call(w * 64 + static_cast<std::size_t>(__builtin_ctzll(bits)));
      }
    }
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> marks_;
};

/// A value of a tensor: the events from its first write to its last use.
struct LiveValue {
  std::size_t first = kNone;
  std::size_t last = kNone;
};

class Analysis {
 public:
  explicit Analysis(const Graph& graph)
      : graph_(graph),
        trace_(graph),
        at_(trace_.step_count(), graph.tensors().size()),
        past_(trace_.step_count(), graph.tensors().size()),
        died_(trace_.step_count()),
        carries_(graph.tensors().size(), false) {}

  Liveness run() {
    const std::set<std::string> called = called_functions(graph_);
    for (const Function& function : graph_.functions) {
      if (!called.contains(function.name)) {
        visit(function);
      }
    }
    return lives();
  }

 private:
  void visit(const Function& function) {
    const std::vector<TraceEvent> events = trace_.of(function);
    values_.assign(graph_.tensors().size(), {});
    begins_.assign(events.size(), {});
    ends_.assign(events.size(), {});
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events[i].operation != nullptr) {
        uses(*events[i].operation, i);
      }
    }
    for (std::uint32_t tensor = 0; tensor < values_.size(); ++tensor) {
      close(tensor);
    }
    std::vector<std::uint64_t> live((graph_.tensors().size() + 63) / 64);
    for (std::size_t i = 0; i < events.size(); ++i) {
      for (const std::uint32_t tensor : begins_[i]) {
        live[tensor / 64] |= std::uint64_t{1} << tensor % 64;
      }
      at_.set(events[i].step, live);
      for (const std::uint32_t tensor : ends_[i]) {
        live[tensor / 64] &= ~(std::uint64_t{1} << tensor % 64);
        died_[events[i].step].insert(tensor);
      }
      past_.set(events[i].step, live);
    }
  }

  void uses(const Operation& operation, std::size_t event) {
    for (const TensorId id : operation.inputs) {
      touch(index_of(id), event, true);
    }
    for (const TensorId id : operation.outputs) {
      const bool updates = std::ranges::find(operation.inputs, id) != operation.inputs.end();
      if (!updates && !keeps_other_entries(graph_, operation, id)) {
        close(index_of(id));
      }
      touch(index_of(id), event, false);
    }
  }

  void touch(std::uint32_t tensor, std::size_t event, bool reads) {
    LiveValue& value = values_[tensor];
    if (value.first == kNone) {
      value.first = event;
      carries_[tensor] = carries_[tensor] || reads;
    }
    value.last = event;
  }

  void close(std::uint32_t tensor) {
    LiveValue& value = values_[tensor];
    if (value.first != kNone) {
      begins_[value.first].push_back(tensor);
      ends_[value.last].push_back(tensor);
    }
    value = {};
  }

  Liveness lives() {
    Liveness liveness;
    liveness.step_count = trace_.step_count();
    liveness.lives.resize(graph_.tensors().size());
    for (std::uint32_t step = 0; step < liveness.step_count; ++step) {
      at_.at(step, [&](std::size_t tensor) {
        std::vector<Span>& spans = liveness.lives[tensor].spans;
        if (!spans.empty() && spans.back().last + 1 == step) {
          spans.back().last = step;
        } else {
          spans.push_back({step, step});
        }
      });
    }
    for (std::size_t tensor = 0; tensor < carries_.size(); ++tensor) {
      if (carries_[tensor]) {
        liveness.lives[tensor] = {{{0, liveness.step_count - 1}}, true};
      }
    }
    liveness.deaths.resize(liveness.step_count);
    for (std::uint32_t step = 0; step < liveness.step_count; ++step) {
      std::ranges::copy_if(died_[step], std::back_inserter(liveness.deaths[step]),
                           [&](std::uint32_t tensor) { return !carries_[tensor] && !past_.has(step, tensor); });
    }
    return liveness;
  }

  const Graph& graph_;
  Trace trace_;
  Marks at_;                                        ///< Tensors that live at a step.
  Marks past_;                                      ///< Tensors that live on after a step.
  std::vector<std::set<std::uint32_t>> died_;       ///< For each step, tensors whose value ended there at least once.
  std::vector<bool> carries_;                       ///< Whether a host function reads each tensor before writing it.
  std::vector<LiveValue> values_;                   ///< For each tensor, the current value.
  std::vector<std::vector<std::uint32_t>> begins_;  ///< For each event, tensors whose value begins.
  std::vector<std::vector<std::uint32_t>> ends_;    ///< For each event, tensors whose value ends.
};

}  // namespace

std::vector<Span> united(std::vector<Span> spans) {
  const auto touch = [](const Span& a, const Span& b) { return b.first <= a.last + 1; };
  if (std::ranges::adjacent_find(spans, touch) == spans.end()) {
    return spans;
  }
  std::ranges::sort(spans, {}, &Span::first);
  std::vector<Span> all;
  for (const Span& span : spans) {
    if (!all.empty() && span.first <= all.back().last + 1) {
      all.back().last = std::max(all.back().last, span.last);
    } else {
      all.push_back(span);
    }
  }
  return all;
}

Liveness compute_liveness(const Graph& graph) {
  return Analysis(graph).run();
}

}  // namespace poprun
