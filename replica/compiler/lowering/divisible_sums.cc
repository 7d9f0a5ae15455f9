#include "replica/compiler/lowering/divisible_sums.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "replica/ops/face/operator.h"

namespace poprun {
namespace divisible_sums {
namespace {

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;

class Marking {
 public:
  Marking(Program& program, const std::set<std::uint32_t>& views) : program_(program), views_(views) {
    for (proto::Function& function : *program.mutable_functions()) {
      callees_.emplace(function.name(), &function);
      count_calls(function.steps(), 1);
    }
  }

  void mark() {
    const std::set<std::string> called = called_functions(program_);
    for (proto::Function& function : *program_.mutable_functions()) {
      if (!called.contains(function.name())) {
        mark_all_reduces(function);
        mark_complete(function);
      }
    }
  }

 private:
  void count_calls(const Steps& steps, std::uint32_t rounds) {
    for (const proto::Step& step : steps) {
      count_calls(step.repeat().steps(), rounds * step.repeat().count());
      if (step.has_call()) {
        calls_[step.call().function()] += rounds;
      }
    }
  }

  /// Visits the steps that run in a function of the host, in order. `once` says whether a step runs once per run of the
  /// function; callees run in the places of their calls.
  template <typename Visit>
  void walk(google::protobuf::RepeatedPtrField<proto::Step>& steps, bool once, const Visit& visit) {
    for (proto::Step& step : steps) {
      if (step.has_repeat()) {
        walk(*step.mutable_repeat()->mutable_steps(), once && step.repeat().count() == 1, visit);
      } else if (step.has_call()) {
        if (const auto callee = callees_.find(step.call().function()); callee != callees_.end()) {
          walk(*callee->second->mutable_steps(), once && calls_[callee->first] == 1, visit);
        }
      } else {
        visit(step, once);
      }
    }
  }

  /// Marks the tensors of an all-reduce that, from then on, only divisible steps or only the steps of one owner name.
  /// They die with the function, and in its next run, a step writes them anew before another reads them.
  void mark_all_reduces(proto::Function& function) {
    std::map<std::uint32_t, proto::Step*> reduced_by;
    std::map<std::uint32_t, std::set<std::uint32_t>> needed_by;
    walk(*function.mutable_steps(), true, [&](proto::Step& step, bool once) {
      const StepTensors tensors = tensors_of(step);
      for (const auto* ids : {&tensors.reads, &tensors.writes}) {
        for (const std::uint32_t id : *ids) {
          if (reduced_by.contains(id)) {
            needed_by[id].insert(reader_of(step.execute(), id));
          }
        }
      }
      const proto::AllReduce& reduce = step.all_reduce();
      if (step.has_all_reduce() && once && !reduce.in_background() && reduce.group() == 0) {
        for (const std::uint32_t id : reduce.tensors()) {
          if (!program_.tensors(static_cast<int>(id)).always_live()) {
            reduced_by[id] = &step;
          }
        }
      }
    });
    for (const auto& [id, step] : reduced_by) {
      const std::set<std::uint32_t>& readers = needed_by[id];
      if (readers.empty() || (readers.size() == 1 && *readers.begin() != kAll)) {
        step->mutable_all_reduce()->add_divisible(id);
        step->mutable_all_reduce()->add_owners(readers.empty() ? 0 : *readers.begin());
      }
    }
  }

  static constexpr std::uint32_t kAll = ~std::uint32_t{0};  ///< Every replica reads the whole tensor.

  /// Returns the owner that reads a tensor, 0 if each replica reads its part, or kAll.
  [[nodiscard]] std::uint32_t reader_of(const proto::Execute& execute, std::uint32_t id) const {
    if (execute.outputs().empty() || std::ranges::count(execute.outputs(), id) > 0) {
      return kAll;
    }
    const std::uint32_t owner = program_.tensors(static_cast<int>(execute.outputs(0))).owner();
    return owner > 0 || reads_elementwise(execute, id) ? owner : kAll;
  }

  static bool reads_elementwise(const proto::Execute& execute, std::uint32_t id) {
    const Operator* op = execute.divisible() ? find_operator(execute.operation()) : nullptr;
    const auto at = std::ranges::find(execute.inputs(), id) - execute.inputs().begin();
    return op != nullptr && at < op->on_shards.inputs && std::ranges::count(execute.inputs(), id) == 1;
  }

  /// Marks the last step that names a divisible tensor before its all-reduce. A view does not complete a tensor,
  /// because later steps may read its bytes through the other one.
  void mark_complete(proto::Function& function) {
    std::map<std::uint32_t, std::pair<proto::Step*, bool>> last_named;  // By which step, and whether it runs once.
    walk(*function.mutable_steps(), true, [&](proto::Step& step, bool once) {
      const StepTensors tensors = tensors_of(step);
      for (const std::uint32_t id : step.all_reduce().divisible()) {
        const auto& [writer, ran_once] = last_named[id];
        if (writer != nullptr && ran_once && !views_.contains(writer->number()) &&
            std::ranges::count(tensors_of(*writer).writes, id) > 0) {
          writer->add_completes(id);
        }
      }
      for (const auto* ids : {&tensors.reads, &tensors.writes}) {
        for (const std::uint32_t id : *ids) {
          last_named[id] = {&step, once};
        }
      }
    });
  }

  Program& program_;
  const std::set<std::uint32_t>& views_;  ///< Numbers of steps.
  std::map<std::string, proto::Function*> callees_;
  std::map<std::string, std::uint32_t> calls_;  ///< How often each function is called, over all functions.
};

}  // namespace
}  // namespace divisible_sums

void mark_divisible_sums(Program& program, const std::set<std::uint32_t>& views) {
  divisible_sums::Marking(program, views).mark();
}

}  // namespace poprun
