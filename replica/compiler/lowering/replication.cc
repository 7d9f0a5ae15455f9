#include "replica/compiler/lowering/replication.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "replica/compiler/lowering/equal_values.h"
#include "replica/ops/face/operator.h"

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
  if (!cut || std::ssize(use.signature.outputs) != cut.outputs) {
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

/// Decides what is common and what is divisible, given what is equal.
class Decision {
 public:
  Decision(Program& program, const EqualValues& equal) : program_(program), equal_(equal) {
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
           equal_.has_equal_results(*listed.step) &&
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
  const EqualValues& equal_;
  std::vector<Listed> steps_;  ///< All steps but repeats, in order.
  std::set<std::uint32_t> common_;
  std::set<std::uint32_t> views_;  ///< Numbers of steps.
  std::map<std::string, proto::Function*> callees_;
  std::map<std::string, std::uint32_t> calls_;  ///< How often each function is called, over all functions.
};

}  // namespace
}  // namespace replication

void mark_replication(Program& program) {
  const EqualValues equal(program);
  replication::Decision(program, equal).mark();
}

}  // namespace poprun
