#include "replica/compiler/proofs/replication.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "replica/compiler/proofs/static_check.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/half/half_kernel.h"

namespace poprun {
namespace replication_proof {
namespace {

/// A value on each of the two replicas, as a hash of how it was computed.
using Values = std::array<std::uint64_t, 2>;

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash ^= word + 0x9e3779b97f4a7c15U + (hash << 6U) + (hash >> 2U);
  return hash * 0xff51afd7ed558ccdU;
}

std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  return mix(hash, std::hash<std::string_view>{}(text));
}

tl::unexpected<Error> bug(const proto::Step& step, const proto::Tensor& tensor, std::string_view what) {
  return fail(ErrorCode::kBug, fmt::format("replication: {}: '{}' {}", describe(step), tensor.name(), what));
}

class Proof {
 public:
  explicit Proof(const Program& program)
      : program_(program),
        values_(static_cast<std::size_t>(program.tensors_size())),
        partial_(values_.size()),
        sum_owner_(values_.size()),
        complete_(values_.size()),
        touches_common_(values_.size()),
        inside_common_(values_.size()) {
    for (const proto::Function& function : program.functions()) {
      const auto found = functions_.emplace(function.name(), name_tensors(program, function.steps())).first;
      prepare(found->second);
    }
    for (const proto::Tensor& tensor : program.tensors()) {
      const auto type = parse_type(tensor.type());
      elements_.push_back(type ? type->elements() : 0);
    }
    find_common_bytes();
  }

  Status run() {
    for (const bool again : {false, true}) {
      for (const proto::Function& function : program_.functions()) {
        if (!called_.contains(function.name()) && !(again && function.name() == "load")) {
          POPRUN_TRY(run(functions_.at(function.name())));
          partial_.assign(partial_.size(), false);  // Only always live tensors survive, and none of those is partial.
          const auto left = std::ranges::find(complete_, true) - complete_.begin();
          if (left < std::ssize(complete_)) {
            return fail(ErrorCode::kBug, fmt::format("replication: '{}' is complete in {}, but never reduced",
                                                     tensor(static_cast<std::uint32_t>(left)).name(), function.name()));
          }
        }
      }
    }
    return {};
  }

 private:
  /// Describes how a step computes its results from its operands.
  struct Meaning {
    std::uint64_t operation = 0;  ///< A hash that steps share if they compute the same from the same operands.
    bool differs = false;         ///< Replicas with equal operands get different results.
    bool exchanges_all = false;   ///< All replicas get the same results, which depend on the operands of all.
  };

  [[nodiscard]] const proto::Tensor& tensor(std::uint32_t id) const { return program_.tensors(static_cast<int>(id)); }

  void prepare(const std::vector<NamedStep>& steps) {
    for (const NamedStep& named : steps) {
      prepare(named.inner);
      const proto::Step& step = *named.step;
      if (step.has_call()) {
        called_.insert(step.call().function());
      }
      meanings_[step.number()] = {mix(static_cast<std::uint64_t>(step.kind_case()), operation_of(step)), differs(step),
                                  exchanges_all(step)};
    }
  }

  /// Finds the tensors whose images have a byte of a common variable, and those that lie entirely in one.
  void find_common_bytes() {
    std::vector<std::vector<const proto::Tensor*>> commons(static_cast<std::size_t>(program_.memory_size()));
    for (const proto::Tensor& tensor : program_.tensors()) {
      if (tensor.common() && tensor.always_live()) {
        commons.at(memory_of(program_, tensor)).push_back(&tensor);
      }
    }
    for (std::uint32_t id = 0; id < inside_common_.size(); ++id) {
      const std::size_t memory = memory_of(program_, tensor(id));
      const std::uint64_t begin = tensor(id).placement().offset();
      const std::uint64_t end = begin + tensor(id).bytes();
      for (std::size_t k = 0; memory < commons.size() && k < commons[memory].size(); ++k) {
        const std::uint64_t first = commons[memory][k]->placement().offset();
        const std::uint64_t last = first + commons[memory][k]->bytes();
        touches_common_[id] = touches_common_[id] || (begin < last && first < end);
        inside_common_[id] = inside_common_[id] || (first <= begin && end <= last);
      }
    }
  }

  Status run(const std::vector<NamedStep>& steps) {
    for (const NamedStep& named : steps) {
      if (named.step->has_repeat()) {
        for (std::uint32_t round = 0; round < std::min(2U, named.step->repeat().count()); ++round) {
          POPRUN_TRY(run(named.inner));
        }
      } else if (named.step->has_call()) {
        const auto callee = functions_.find(named.step->call().function());
        if (callee == functions_.end()) {
          return fail(ErrorCode::kBug,
                      fmt::format("replication: {} calls a function that does not exist", describe(*named.step)));
        }
        POPRUN_TRY(run(callee->second));
      } else {
        POPRUN_TRY(check_complete(named));
        POPRUN_TRY(check_reads(named));
        POPRUN_TRY(check_divisible(named));
        POPRUN_TRY(check_owner(named));
        write(named);
        POPRUN_TRY(check_writes(named));
      }
    }
    return {};
  }

  Status check_complete(const NamedStep& named) {
    for (const auto* ids : {&named.tensors.reads, &named.tensors.writes}) {
      for (const std::uint32_t id : *ids) {
        const auto& divisible = named.step->all_reduce().divisible();
        if (complete_[id] && std::ranges::find(divisible, id) == divisible.end()) {
          return bug(*named.step, tensor(id), "is named after the step that completes it");
        }
      }
    }
    const proto::AllReduce& reduce = named.step->all_reduce();
    if (reduce.owners_size() != reduce.divisible_size()) {
      return bug(*named.step, tensor(reduce.tensors(0)), "is reduced for another number of owners than of tensors");
    }
    for (const std::uint32_t id : reduce.divisible()) {
      if (tensor(id).always_live() || reduce.in_background() || reduce.group() != 0) {
        return bug(*named.step, tensor(id), "is not reduced at once over all replicas, or outlives the function");
      }
      complete_[id] = false;
    }
    for (const std::uint32_t id : named.step->completes()) {
      if (std::ranges::find(named.tensors.writes, id) == named.tensors.writes.end()) {
        return bug(*named.step, tensor(id), "is completed by a step that does not write it");
      }
      if (named.is_view) {
        return bug(*named.step, tensor(id), "is completed by a view, whose bytes other tensors show");
      }
      complete_[id] = true;
    }
    return {};
  }

  Status check_reads(const NamedStep& named) const {
    const proto::Execute& execute = named.step->execute();
    const Operator* op = named.step->has_execute() ? find_operator(execute.operation()) : nullptr;
    const std::uint32_t owner = owner_of_results(*named.step);
    for (const std::uint32_t id : named.tensors.reads) {
      if (partial_[id] && owner > 0 && sum_owner_[id] == owner) {
        continue;
      }
      const int elementwise = op != nullptr && execute.divisible() ? op->on_shards.inputs : 0;
      const auto whole = execute.inputs().begin() + std::min(elementwise, execute.inputs_size());
      if (partial_[id] && (elementwise == 0 || sum_owner_[id] > 0 ||
                           std::find(whole, execute.inputs().end(), id) != execute.inputs().end())) {
        return bug(*named.step, tensor(id), "is read whole, but each replica has only its part");
      }
    }
    return {};
  }

  Status check_divisible(const NamedStep& named) const {
    if (!named.step->execute().divisible()) {
      return {};
    }
    const proto::Execute& execute = named.step->execute();
    const Operator* op = find_operator(execute.operation());
    for (int i = 0; i < execute.inputs_size(); ++i) {
      const std::uint32_t id = execute.inputs(i);
      const bool whole = op == nullptr || i >= op->on_shards.inputs;
      if (whole && std::ranges::find(execute.outputs(), id) != execute.outputs().end()) {
        return bug(*named.step, tensor(id), "is read whole and written, but the step is divisible");
      }
      if (!whole && elements_[id] != elements_[execute.inputs(0)]) {
        return bug(*named.step, tensor(id), "has another number of elements than the first operand");
      }
      if (values_[id][0] != values_[id][1]) {
        return bug(*named.step, tensor(id), "differs between replicas, but the step is divisible");
      }
    }
    for (const std::uint32_t id : execute.outputs()) {
      const auto at = std::ranges::find(execute.inputs(), id) - execute.inputs().begin();
      if (!tensor(id).common() || op == nullptr || at >= op->on_shards.inputs) {
        return bug(*named.step, tensor(id), "is not common and updated elementwise, but the step is divisible");
      }
    }
    if (op->on_shards.outputs != execute.outputs_size()) {
      return bug(*named.step, tensor(execute.outputs(0)), "is written with results that are not elementwise");
    }
    return {};
  }

  [[nodiscard]] std::uint32_t owner_of_results(const proto::Step& step) const {
    const auto& outputs = step.execute().outputs();
    return outputs.empty() ? 0 : tensor(outputs.Get(0)).owner();
  }

  Status check_owner(const NamedStep& named) const {
    const proto::Step& step = *named.step;
    const std::uint32_t owner = owner_of_results(step);
    for (const std::uint32_t id : named.tensors.reads) {
      const proto::Tensor& read = tensor(id);
      if (read.owner() > 0 && !read.common() && read.owner() != owner) {
        return bug(step, read, "is read by other replicas than its owner");
      }
      if (owner > 0 && values_[id][0] != values_[id][1]) {
        return bug(step, read, "differs between replicas, but only one of them computes the step");
      }
    }
    for (const std::uint32_t id : named.tensors.writes) {
      const proto::Tensor& written = tensor(id);
      const bool whole = written.common() && (step.has_initialise() || step.has_stream_in());
      if (written.owner() != owner && !whole) {
        return bug(step, written, "is written by other replicas than its owner");
      }
      if (written.owner() > 0 && !written.common() && written.always_live()) {
        return bug(step, written, "has an owner, but the host reads it on every replica");
      }
    }
    if (owner > 0 && (step.execute().divisible() || named.is_view || meanings_.at(step.number()).differs)) {
      return bug(step, tensor(step.execute().outputs(0)), "has an owner, but each replica computes its own");
    }
    return {};
  }

  void write(const NamedStep& named) {
    const proto::Step& step = *named.step;
    const Meaning& meaning = meanings_.at(step.number());
    ++now_;
    if (step.has_copy()) {
      copy(step.copy());
      return;
    }
    Values result{meaning.operation, meaning.operation};
    for (std::size_t r = 0; r < result.size(); ++r) {
      for (const std::uint32_t id : named.tensors.reads) {
        const auto& [first, second] = values_[id];
        result[r] = meaning.exchanges_all ? mix(mix(result[r], first), second) : mix(result[r], values_[id][r]);
      }
      result[r] = meaning.differs ? mix(mix(result[r], now_), r + 1) : result[r];
    }
    for (std::size_t k = 0; k < named.tensors.writes.size(); ++k) {
      const std::uint32_t id = named.tensors.writes[k];
      for (std::size_t r = 0; r < result.size(); ++r) {
        values_[id][r] = mix(result[r], k);
      }
      partial_[id] = false;
    }
    for (int k = 0; k < step.all_reduce().divisible_size(); ++k) {
      partial_[step.all_reduce().divisible(k)] = true;
      sum_owner_[step.all_reduce().divisible(k)] = step.all_reduce().owners(k);
    }
  }

  void copy(const proto::Copy& copy) {
    std::vector<Values> from;
    for (const std::uint32_t id : copy.from()) {
      from.push_back(values_[id]);
    }
    for (int k = 0; k < copy.to_size(); ++k) {
      const std::uint32_t id = copy.to(k);
      const std::int64_t entry = copy.to_entries().empty() ? -1 : copy.to_entries(k);
      const std::int64_t source = copy.from_entries().empty() ? -1 : copy.from_entries(k);
      for (std::size_t r = 0; r < 2; ++r) {
        const std::uint64_t value = mix(from[static_cast<std::size_t>(k)][r], static_cast<std::uint64_t>(source));
        values_[id][r] = entry < 0 ? value : mix(mix(values_[id][r], value), static_cast<std::uint64_t>(entry));
      }
      partial_[id] = false;
    }
  }

  /// Returns a text that steps of one kind share if they compute the same from the same operands.
  [[nodiscard]] static std::string operation_of(const proto::Step& step) {
    if (step.has_execute()) {
      return step.execute().operation() + " " + step.execute().attributes();
    }
    if (step.has_initialise()) {
      return step.initialise().SerializeAsString();
    }
    return step.has_all_reduce() ? step.all_reduce().reduction() : step.stream_in().stream();
  }

  /// Returns whether the step gives all replicas of the job the same results.
  [[nodiscard]] static bool exchanges_all(const proto::Step& step) {
    return (step.has_all_reduce() && step.all_reduce().group() == 0) ||
           (step.has_all_gather() && step.all_gather().group() == 0) || step.has_gather_rows();
  }

  /// Returns whether replicas with equal operands get different results.
  [[nodiscard]] static bool differs(const proto::Step& step) {
    if (step.has_execute()) {
      const Operator* op = find_operator(step.execute().operation());
      const auto attributes = parse_attributes(step.execute().attributes());
      return op == nullptr || !attributes || reads_moment(*op, *attributes);
    }
    if (step.has_stream_in()) {
      const std::string& stream = step.stream_in().stream();
      return stream != "control" && stream != "weights";
    }
    return !exchanges_all(step) && !step.has_initialise() && !step.has_await_all_reduces() && !step.has_restore() &&
           !step.has_stash();
  }

  Status check_writes(const NamedStep& named) const {
    const proto::Step& step = *named.step;
    const bool may_write =
        step.has_initialise() || step.has_stream_in() || step.execute().divisible() || owner_of_results(step) > 0;
    for (const std::uint32_t id : named.tensors.writes) {
      const proto::Tensor& written = tensor(id);
      if (written.common() && values_[id][0] != values_[id][1]) {
        return bug(step, written, "is common, but differs between replicas");
      }
      if (written.common() ? !inside_common_[id] : touches_common_[id]) {
        return bug(step, written,
                   written.common() ? "is common, but not in the bytes of one common variable"
                                    : "is in the bytes of a common tensor, but not common");
      }
      if (written.common() && !named.is_view && (!may_write || !written.always_live())) {
        return bug(step, written, "is common, but the step writes it whole");
      }
    }
    return {};
  }

  const Program& program_;
  std::map<std::string, std::vector<NamedStep>> functions_;
  std::set<std::string> called_;  ///< Names of functions that others call.
  // Indexed by tensor:
  std::vector<Values> values_;
  std::vector<bool> partial_;             ///< Each replica has only its part of the tensor, or only an owner has it.
  std::vector<std::uint32_t> sum_owner_;  ///< The owner that has a partial tensor; 0 if each replica has a part.
  std::vector<bool> complete_;        ///< A step has completed the tensor, so it may be reduced before its all-reduce.
  std::vector<bool> touches_common_;  ///< The tensor's image has a byte of a common variable.
  std::vector<bool> inside_common_;   ///< All bytes of its image are those of one common variable.
  std::vector<std::int64_t> elements_;

  std::map<std::uint32_t, Meaning> meanings_;  ///< Keyed by step number.
  std::uint64_t now_ = 0;  ///< Steps run so far, so that what differs between replicas also differs between steps.
};

}  // namespace
}  // namespace replication_proof

Status verify_replication(const Program& program) {
  return replication_proof::Proof(program).run();
}

}  // namespace poprun
