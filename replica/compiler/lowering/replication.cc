#include "replica/compiler/lowering/replication.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <utility>
#include <vector>

#include <boost/pending/disjoint_sets.hpp>

#include "replica/compiler/lowering/divisible_sums.h"
#include "replica/compiler/lowering/equal_values.h"
#include "replica/ops/face/operator.h"

namespace poprun {
namespace replication {
namespace {

using Ids = google::protobuf::RepeatedField<std::uint32_t>;
using Groups = boost::disjoint_sets_with_storage<>;

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

/// Decides what is common, what is divisible and what has an owner, given what is equal.
class Decision {
 public:
  Decision(Program& program, const EqualValues& equal) : program_(program), equal_(equal) {
    const std::set<std::string> called = called_functions(program);
    for (proto::Function& function : *program.mutable_functions()) {
      list(*function.mutable_steps(), !called.contains(function.name()));
    }
    for (Listed& listed : steps_) {
      for (const auto* ids : {&listed.tensors.reads, &listed.tensors.writes}) {
        for (const std::uint32_t id : *ids) {
          named_by_[id].push_back(&listed);
        }
      }
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
    do {
      find_owners();
    } while (drop_unshared());
    for (const std::uint32_t t : common_) {
      program_.mutable_tensors(static_cast<int>(t))->set_common(true);
    }
    mark_views();
    mark_owners();
    for (const Listed& listed : steps_) {
      if (divides(listed) && !listed.by_owner) {
        listed.step->mutable_execute()->set_divisible(true);
      }
    }
    mark_divisible_sums(program_, views_);
  }

 private:
  struct Listed {
    proto::Step* step = nullptr;
    StepTensors tensors = {};
    std::optional<Use> use = {};  ///< Only if the operator updates elements or may be a view.
    bool is_view = false;
    bool may_have_owner = false;
    bool by_owner = false;  ///< One replica of a host computes the step.
  };

  /// Lists steps, which run at most once per run of a function of the host if `once`.
  void list(google::protobuf::RepeatedPtrField<proto::Step>& steps, bool once) {
    for (proto::Step& step : steps) {
      if (step.has_repeat()) {
        list(*step.mutable_repeat()->mutable_steps(), once && step.repeat().count() == 1);
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
      listed.may_have_owner =
          once && !listed.is_view && !step.execute().outputs().empty() && equal_.has_equal_results(step);
    }
  }

  [[nodiscard]] const proto::Tensor& tensor(std::uint32_t id) const { return program_.tensors(static_cast<int>(id)); }

  [[nodiscard]] bool divides(const Listed& listed) const {
    return listed.use && !listed.is_view && updates_elements(listed.step->execute(), *listed.use) &&
           equal_.has_equal_results(*listed.step) &&
           std::ranges::all_of(listed.step->execute().outputs(), [this](auto id) { return common_.contains(id); });
  }

  /// Finds the steps that owners compute: those that update whole common tensors, or copy these, those that sum over
  /// elements for an update, and those whose results only one owner needs. All replicas compute what several
  /// owners need, such as a global norm.
  void find_owners() {
    groups_ = Groups(static_cast<std::size_t>(program_.tensors_size()));
    owned_.clear();
    for (Listed& listed : steps_) {
      listed.by_owner = false;
    }
    for (bool found = true; found;) {
      found = false;
      for (Listed& listed : steps_) {
        if (!listed.by_owner && listed.may_have_owner &&
            (updates_whole(listed) || sums_for_updates(listed) || serves_one_owner(listed))) {
          found = listed.by_owner = true;
          own_results(listed);
        }
      }
    }
  }

  [[nodiscard]] bool writes_common(const Listed& listed) const {
    return std::ranges::any_of(listed.tensors.writes, [this](auto id) { return common_.contains(id); });
  }

  [[nodiscard]] bool updates_whole(const Listed& listed) const {
    return writes_common(listed) && (!divides(listed) || !needed_from_owners(listed).empty());
  }

  /// Returns the operands of a divisible step of which this replica might lack its elements, because they have an
  /// owner.
  [[nodiscard]] std::vector<std::uint32_t> needed_from_owners(const Listed& listed) const {
    const Ids& inputs = listed.step->execute().inputs();
    std::vector<std::uint32_t> needed;
    for (int i = 0; i < inputs.size(); ++i) {
      const bool elementwise = i < listed.use->op->on_shards.inputs;
      if (owned_.contains(inputs[i]) && (elementwise || !common_.contains(inputs[i]))) {
        needed.push_back(inputs[i]);
      }
    }
    return needed;
  }

  /// Returns whether the step sums over the elements of common tensors, only for their updates, as LARS does for its
  /// norms. If these were divided, replicas would have to meet for each tensor.
  [[nodiscard]] bool sums_for_updates(const Listed& listed) const {
    const auto serves_update = [&](const Listed* other) { return other == &listed || writes_common(*other); };
    return listed.use && listed.use->op->on_shards && !writes_common(listed) &&
           std::ranges::any_of(listed.tensors.reads, [this](auto id) { return common_.contains(id); }) &&
           std::ranges::all_of(listed.tensors.writes,
                               [&](auto id) { return std::ranges::all_of(named_by_.at(id), serves_update); });
  }

  [[nodiscard]] bool serves_one_owner(const Listed& listed) {
    std::set<std::uint32_t> served;
    for (const std::uint32_t output : listed.step->execute().outputs()) {
      if (common_.contains(output) || tensor(output).always_live()) {
        return false;
      }
      for (const Listed* other : named_by_.at(output)) {
        if (other != &listed && !other->by_owner) {
          return false;
        }
        if (other != &listed) {
          served.insert(groups_.find_set(other->step->execute().outputs(0)));
        }
      }
    }
    return served.size() == 1;
  }

  /// Gives the step's results the owner of all that only this owner has or copies.
  void own_results(const Listed& listed) {
    const Ids& outputs = listed.step->execute().outputs();
    if (divides(listed)) {
      std::ranges::for_each(needed_from_owners(listed), [&](auto id) { groups_.union_set(outputs[0], id); });
    }
    for (const std::uint32_t id : outputs) {
      groups_.union_set(outputs[0], id);
      owned_.insert(id);
    }
    for (const auto* ids : {&listed.tensors.reads, &listed.tensors.writes}) {
      for (const std::uint32_t id : *ids) {
        for (const Listed* other : named_by_.at(id)) {
          if (other->by_owner && owned_.contains(id) && !common_.contains(id)) {
            groups_.union_set(outputs[0], other->step->execute().outputs(0));
          }
        }
      }
    }
  }

  /// Returns whether nothing but its owner's steps names a tensor.
  [[nodiscard]] bool is_owners_alone(std::uint32_t id) const {
    return !tensor(id).always_live() &&
           std::ranges::all_of(named_by_.at(id), [](const Listed* listed) { return listed->by_owner; });
  }

  /// Removes common tensors that cannot be shared: those that all replicas write whole, those of which a view also
  /// shows other bytes, and those that an owner cannot update because other replicas would need its further results.
  /// Returns whether it removed any: then, steps that write these tensors together with others are not divisible.
  bool drop_unshared() {
    const std::size_t before = common_.size();
    const auto drop = [this](std::uint32_t id) { drop_in_bytes_of(id); };
    for (const Listed& listed : steps_) {
      const proto::Step& step = *listed.step;
      if (listed.is_view) {
        for (const std::uint32_t output : step.execute().outputs()) {
          if (!is_inside_one(output)) {
            drop_in_bytes_of(output);
          }
        }
      } else if (listed.by_owner) {
        for (const std::uint32_t output : step.execute().outputs()) {
          if (!common_.contains(output)) {
            std::ranges::for_each(is_owners_alone(output) ? std::vector{output} : listed.tensors.writes, drop);
          }
        }
      } else if (!step.has_initialise() && !step.has_stream_in() &&
                 (!divides(listed) || !needed_from_owners(listed).empty())) {
        std::ranges::for_each(listed.tensors.writes, drop);
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

  /// Numbers the owners by decreasing size of what they write.
  void mark_owners() {
    std::map<std::uint32_t, std::uint64_t> sizes;  // Keyed by group.
    for (const std::uint32_t id : owned_) {
      sizes[groups_.find_set(id)] += tensor(id).bytes();
    }
    std::vector<std::uint32_t> by_size;
    std::ranges::copy(std::views::keys(sizes), std::back_inserter(by_size));
    std::ranges::stable_sort(by_size, std::greater<>{}, [&](std::uint32_t group) { return sizes.at(group); });
    for (const std::uint32_t id : owned_) {
      const auto rank = std::ranges::find(by_size, groups_.find_set(id)) - by_size.begin();
      program_.mutable_tensors(static_cast<int>(id))->set_owner(static_cast<std::uint32_t>(rank) + 1);
    }
  }

  Program& program_;
  const EqualValues& equal_;
  std::vector<Listed> steps_;  ///< All steps but repeats, in order.
  std::set<std::uint32_t> common_;
  std::map<std::uint32_t, std::vector<const Listed*>> named_by_;  ///< Keyed by tensor.
  std::set<std::uint32_t> owned_;                                 ///< Results of steps that owners compute.
  Groups groups_;                                                 ///< Tensors with the same owner.
  std::set<std::uint32_t> views_;                                 ///< Numbers of steps.
};

}  // namespace
}  // namespace replication

void mark_replication(Program& program) {
  const EqualValues equal(program);
  replication::Decision(program, equal).mark();
}

}  // namespace poprun
