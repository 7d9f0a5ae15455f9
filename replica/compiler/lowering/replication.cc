#include "replica/compiler/lowering/replication.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "replica/machine/machine.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/half/half_kernel.h"
#include "replica/program/host_contract.h"

namespace poprun {
namespace replication {
namespace {

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;
using Ids = google::protobuf::RepeatedField<std::uint32_t>;

/// The operator of an `execute` step, and its types there.
struct Use {
  const Operator* op = nullptr;
  Signature signature;
};

/// Returns nothing if the Program is broken, which other checks report.
std::optional<Use> use_of(const Program& program, const proto::Execute& execute) {
  Use use{find_operator(execute.operation()), {}};
  Result<Attributes> attributes = parse_attributes(execute.attributes());
  if (use.op == nullptr || !attributes) {
    return std::nullopt;
  }
  use.signature.attributes = std::move(*attributes);
  const auto add = [&program](const Ids& ids, std::vector<TensorType>& types) {
    for (const std::uint32_t id : ids) {
      if (Result<TensorType> type = parse_type(program.tensors(static_cast<int>(id)).type())) {
        types.push_back(std::move(*type));
      }
    }
    return std::ssize(types) == ids.size();
  };
  const bool complete = add(execute.inputs(), use.signature.inputs) && add(execute.outputs(), use.signature.outputs);
  return complete ? std::optional(std::move(use)) : std::nullopt;
}

bool is_view(const Program& program, const proto::Execute& execute, const Use& use) {
  const auto addresses = [&program](const Ids& ids) {
    std::vector<std::int64_t> all;
    for (const std::uint32_t id : ids) {
      all.push_back(static_cast<std::int64_t>(program.tensors(static_cast<int>(id)).placement().offset()));
    }
    return all;
  };
  return is_view(*use.op, use.signature, addresses(execute.inputs()), addresses(execute.outputs()));
}

/// Returns whether each replica could compute a part of all results: the operator works elementwise on its first
/// operands, has no further results, and updates its results in place.
bool updates_elements(const proto::Execute& execute, const Use& use) {
  const Cut cut = use.op->on_shards;
  if (!cut || std::ssize(use.signature.outputs) != cut.outputs || reads_moment(*use.op, use.signature.attributes)) {
    return false;
  }
  const std::int64_t elements = use.signature.inputs.at(0).elements();
  for (std::size_t i = 0; i < cut.inputs; ++i) {
    if (use.signature.inputs.at(i).elements() != elements) {
      return false;
    }
  }
  return std::ranges::all_of(execute.outputs(), [&](std::uint32_t output) {
    const auto found = std::ranges::find(execute.inputs(), output);
    return found - execute.inputs().begin() < cut.inputs;
  });
}

/// Finds out which tensors are equal on all replicas, by abstract interpretation of all functions.
class Analysis {
 public:
  explicit Analysis(const Program& program)
      : equal_(static_cast<std::size_t>(program.tensors_size())),
        always_equal_(equal_.size(), true),
        loaded_(equal_.size()) {
    for (const proto::Function& function : program.functions()) {
      if (!function.has_part()) {
        const bool first = function.name() == name_of(JobFunction::kLoad);
        entries_.insert(first ? entries_.begin() : entries_.end(), &function);
      }
      callees_.emplace(function.name(), &function);
      find_random(function.steps());
    }
  }

  void run() {
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

  /// Returns whether the tensor's value is equal after the first function and after every step that writes it.
  [[nodiscard]] bool is_always_equal(std::uint32_t tensor) const { return always_equal_[tensor] && loaded_[tensor]; }

  /// Returns whether all inputs of the `execute` step are equal whenever it runs.
  [[nodiscard]] bool has_equal_inputs(const proto::Step& step) const {
    const auto found = equal_inputs_.find(step.number());
    return found != equal_inputs_.end() && found->second;
  }

 private:
  /// Returns what is equal now and also in the other state.
  [[nodiscard]] std::vector<bool> also_equal_in(const std::vector<bool>& other) const {
    std::vector<bool> both(equal_.size());
    std::transform(equal_.begin(), equal_.end(), other.begin(), both.begin(), std::logical_and<>());
    return both;
  }

  void run(const Steps& steps) {
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

  void write(const proto::Step& step) {
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

  /// Finds the steps that give different results for equal operands.
  void find_random(const Steps& steps) {
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

  void set(std::uint32_t tensor, bool equal) {
    equal_[tensor] = equal;
    always_equal_[tensor] = always_equal_[tensor] && equal;
  }

  bool gives_equal(const proto::Step& step) {
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
    return step.has_initialise() || step.has_gather_rows() ||
           (step.has_all_reduce() && step.all_reduce().group() == 0) ||
           (step.has_all_gather() && step.all_gather().group() == 0);
  }

  bool execute(const proto::Step& step) {
    const bool inputs = std::ranges::all_of(step.execute().inputs(), [this](std::uint32_t id) { return equal_[id]; });
    const bool equal = inputs && !random_.contains(step.number());
    bool& always = equal_inputs_.try_emplace(step.number(), true).first->second;
    always = always && equal;
    return equal;
  }

  std::vector<const proto::Function*> entries_;  ///< Functions that the host runs; "load" first.
  std::map<std::string, const proto::Function*> callees_;
  std::set<std::uint32_t> random_;  ///< Numbers of steps.
  std::vector<bool> equal_;         ///< Now, indexed by tensor.
  std::vector<bool> always_equal_;
  std::vector<bool> loaded_;
  std::map<std::uint32_t, bool> equal_inputs_;  ///< Keyed by step number.
};

/// Decides what is common and what is divisible, given what is equal.
class Decision {
 public:
  Decision(Program& program, const Analysis& equal) : program_(program), equal_(equal) {
    for (proto::Function& function : *program.mutable_functions()) {
      callees_.emplace(function.name(), &function);
      list(*function.mutable_steps());
    }
  }

  void mark() {
    for (std::uint32_t t = 0; t < static_cast<std::uint32_t>(program_.tensors_size()); ++t) {
      const proto::Tensor& tensor = program_.tensors(static_cast<int>(t));
      if (tensor.always_live() && !is_remote(tensor) && tensor.shard_of().empty() && !tensor.has_residence() &&
          equal_.is_always_equal(t)) {
        common_.insert(t);
      }
    }
    while (drop_unshared()) {
    }
    for (const std::uint32_t t : common_) {
      program_.mutable_tensors(static_cast<int>(t))->set_common(true);
    }
    mark_views();
    for (const Listed& listed : steps_) {
      if (divides(listed)) {
        listed.step->mutable_execute()->set_divisible(true);
      }
    }
    for (const proto::Function& function : program_.functions()) {
      count_calls(function.steps(), 1);
    }
    for (proto::Function& function : *program_.mutable_functions()) {
      if (!function.has_part()) {
        mark_all_reduces(function);
        mark_complete(function);
      }
    }
  }

 private:
  struct Listed {
    proto::Step* step = nullptr;
    StepTensors tensors = {};
    std::optional<Use> use = {};  ///< Only if the operator updates elements or may be a view.
    bool is_view = false;
  };

  void list(google::protobuf::RepeatedPtrField<proto::Step>& steps) {
    for (proto::Step& step : steps) {
      if (step.has_repeat()) {
        list(*step.mutable_repeat()->mutable_steps());
        continue;
      }
      Listed& listed = steps_.emplace_back(Listed{.step = &step, .tensors = tensors_of(step)});
      const Operator* op = step.has_execute() ? find_operator(step.execute().operation()) : nullptr;
      if (op != nullptr && (op->on_shards || op->view != nullptr)) {
        listed.use = use_of(program_, step.execute());
        listed.is_view = listed.use && is_view(program_, step.execute(), *listed.use);
      }
      if (listed.is_view) {
        views_.insert(step.number());
      }
    }
  }

  [[nodiscard]] const proto::Tensor& tensor(std::uint32_t id) const { return program_.tensors(static_cast<int>(id)); }

  [[nodiscard]] bool divides(const Listed& listed) const {
    return listed.use && !listed.is_view && updates_elements(listed.step->execute(), *listed.use) &&
           equal_.has_equal_inputs(*listed.step) &&
           std::ranges::all_of(listed.step->execute().outputs(), [this](auto id) { return common_.contains(id); });
  }

  /// Removes common tensors that cannot be shared: those that a step writes whole, those of which a view also shows
  /// other bytes, and those whose update sums over elements (LAMB, LARS), for each of which replicas would have to
  /// meet. Returns whether it removed any: then, steps that write these tensors together with others are not divisible.
  bool drop_unshared() {
    const std::size_t before = common_.size();
    for (const Listed& listed : steps_) {
      const proto::Step& step = *listed.step;
      if (listed.is_view) {
        for (const std::uint32_t output : step.execute().outputs()) {
          if (!is_inside_one(output)) {
            drop_in_bytes_of(output);
          }
        }
      } else if (!step.has_initialise() && !step.has_stream_in() && !divides(listed)) {
        std::ranges::for_each(listed.tensors.writes, [this](std::uint32_t id) { drop_in_bytes_of(id); });
        if (listed.use && listed.use->op->on_shards) {
          std::ranges::for_each(listed.tensors.reads, [this](std::uint32_t id) { drop_in_bytes_of(id); });
        }
      }
    }
    return common_.size() < before;
  }

  void drop_in_bytes_of(std::uint32_t id) {
    std::erase_if(common_, [&](std::uint32_t common) {
      return is_same_memory(common, id) && share_bytes(tensor(common), tensor(id));
    });
  }

  /// Returns whether all bytes of the tensor are those of a common one.
  [[nodiscard]] bool is_inside_one(std::uint32_t id) const {
    const proto::Tensor& inner = tensor(id);
    return std::ranges::any_of(common_, [&](std::uint32_t common) {
      const proto::Tensor& outer = tensor(common);
      return is_same_memory(common, id) && outer.placement().offset() <= inner.placement().offset() &&
             inner.placement().offset() + inner.bytes() <= outer.placement().offset() + outer.bytes();
    });
  }

  [[nodiscard]] bool is_same_memory(std::uint32_t a, std::uint32_t b) const {
    return memory_of(program_, tensor(a)) == memory_of(program_, tensor(b));
  }

  void mark_views() {
    for (const Listed& listed : steps_) {
      if (!listed.is_view) {
        continue;
      }
      for (const std::uint32_t output : listed.step->execute().outputs()) {
        program_.mutable_tensors(static_cast<int>(output))->set_common(is_inside_one(output));
      }
    }
  }

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

  /// Marks the tensors of an all-reduce that, from then on, only divisible steps name. They die with the function, and
  /// in its next run, a step writes them anew before another reads them.
  void mark_all_reduces(proto::Function& function) {
    std::map<std::uint32_t, proto::Step*> reduced_by;
    std::set<std::uint32_t> read_whole;
    walk(*function.mutable_steps(), true, [&](proto::Step& step, bool once) {
      const StepTensors tensors = tensors_of(step);
      for (const auto* ids : {&tensors.reads, &tensors.writes}) {
        for (const std::uint32_t id : *ids) {
          if (reduced_by.contains(id) && !reads_elementwise(step.execute(), id)) {
            read_whole.insert(id);
          }
        }
      }
      const proto::AllReduce& reduce = step.all_reduce();
      if (step.has_all_reduce() && once && !reduce.in_background() && reduce.group() == 0) {
        for (const std::uint32_t id : reduce.tensors()) {
          if (!tensor(id).always_live()) {
            reduced_by[id] = &step;
          }
        }
      }
    });
    for (const auto& [id, step] : reduced_by) {
      if (!read_whole.contains(id)) {
        step->mutable_all_reduce()->add_divisible(id);
      }
    }
  }

  static bool reads_elementwise(const proto::Execute& execute, std::uint32_t id) {
    const Operator* op = execute.divisible() ? find_operator(execute.operation()) : nullptr;
    const auto at = std::ranges::find(execute.inputs(), id) - execute.inputs().begin();
    return op != nullptr && at < op->on_shards.inputs && std::ranges::count(execute.inputs(), id) == 1 &&
           std::ranges::count(execute.outputs(), id) == 0;
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
  const Analysis& equal_;
  std::vector<Listed> steps_;  ///< All steps but repeats, in order.
  std::set<std::uint32_t> common_;
  std::set<std::uint32_t> views_;  ///< Numbers of steps.
  std::map<std::string, proto::Function*> callees_;
  std::map<std::string, std::uint32_t> calls_;  ///< How often each function is called, over all functions.
};

}  // namespace
}  // namespace replication

void mark_replication(Program& program) {
  replication::Analysis equal(program);
  equal.run();
  replication::Decision(program, equal).mark();
}

}  // namespace poprun
