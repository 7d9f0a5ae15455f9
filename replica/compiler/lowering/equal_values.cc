#include "replica/compiler/lowering/equal_values.h"

#include <algorithm>
#include <functional>

#include "replica/machine/machine.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/half/half_kernel.h"
#include "replica/program/host_contract.h"

namespace poprun {

EqualValues::EqualValues(const Program& program)
    : equal_(static_cast<std::size_t>(program.tensors_size())),
      always_equal_(equal_.size(), true),
      loaded_(equal_.size()) {
  const std::set<std::string> called = called_functions(program);
  for (const proto::Function& function : program.functions()) {
    if (!called.contains(function.name())) {
      const bool first = function.name() == name_of(JobFunction::kLoad);
      entries_.insert(first ? entries_.begin() : entries_.end(), &function);
    }
    callees_.emplace(function.name(), &function);
    find_random(function.steps());
  }
  run();
}

bool EqualValues::has_equal_results(const proto::Step& step) const {
  const auto found = equal_results_.find(step.number());
  return found != equal_results_.end() && found->second;
}

void EqualValues::run() {
  if (entries_.empty()) {
    return;
  }
  run(entries_[0]->steps());
  loaded_ = equal_;
  // Any function may run after any other, so a tensor is equal on entry only if it is after all of them.
  std::vector<bool> entry;
  do {
    entry = equal_;
    std::vector<bool> all = entry;
    for (std::size_t f = 1; f < entries_.size(); ++f) {
      equal_ = entry;
      run(entries_[f]->steps());
      all = also_equal_in(all);
    }
    equal_ = all;
  } while (equal_ != entry);
}

std::vector<bool> EqualValues::also_equal_in(const std::vector<bool>& other) const {
  std::vector<bool> both(equal_.size());
  std::transform(equal_.begin(), equal_.end(), other.begin(), both.begin(), std::logical_and<>());
  return both;
}

void EqualValues::run(const Steps& steps) {
  for (const proto::Step& step : steps) {
    if (step.has_repeat()) {
      std::vector<bool> entry = equal_;
      for (run(step.repeat().steps()); also_equal_in(entry) != entry; run(step.repeat().steps())) {
        entry = equal_ = also_equal_in(entry);
      }
    } else if (step.has_call()) {
      if (const auto callee = callees_.find(step.call().function()); callee != callees_.end()) {
        run(callee->second->steps());
      }
    } else {
      write(step);
    }
  }
}

void EqualValues::write(const proto::Step& step) {
  const proto::Copy& copy = step.copy();
  const bool whole = copy.from_entries().empty() && copy.to_entries().empty();
  for (int k = 0; k < copy.to_size(); ++k) {
    set(copy.to(k), whole && equal_[copy.from(k)]);
  }
  const bool equal = gives_equal(step);
  for (const std::uint32_t id : tensors_of(step).writes) {
    if (!step.has_copy()) {
      set(id, equal);
    }
  }
}

void EqualValues::find_random(const Steps& steps) {
  for (const proto::Step& step : steps) {
    find_random(step.repeat().steps());
    if (step.has_execute()) {
      const Operator* op = find_operator(step.execute().operation());
      const Result<Attributes> attributes = parse_attributes(step.execute().attributes());
      if (op == nullptr || !attributes || reads_moment(*op, *attributes)) {
        random_.insert(step.number());
      }
    }
  }
}

void EqualValues::set(std::uint32_t tensor, bool equal) {
  equal_[tensor] = equal;
  always_equal_[tensor] = always_equal_[tensor] && equal;
}

bool EqualValues::gives_equal(const proto::Step& step) {
  if (step.has_execute()) {
    return execute(step);
  }
  if (step.has_await_all_reduces()) {
    return std::ranges::all_of(step.await_all_reduces().tensors(), [this](auto id) { return equal_[id]; });
  }
  if (step.has_stream_in()) {
    return step.stream_in().stream() == name_of(JobStream::kControl) ||
           step.stream_in().stream() == name_of(JobStream::kWeights);
  }
  return step.has_initialise() || step.has_gather_rows() || (step.has_all_reduce() && step.all_reduce().group() == 0) ||
         (step.has_all_gather() && step.all_gather().group() == 0);
}

bool EqualValues::execute(const proto::Step& step) {
  const bool inputs = std::ranges::all_of(step.execute().inputs(), [this](std::uint32_t id) { return equal_[id]; });
  const bool equal = inputs && !random_.contains(step.number());
  bool& always = equal_results_.try_emplace(step.number(), true).first->second;
  always = always && equal;
  return equal;
}

}  // namespace poprun
