#include "replica/compiler/occupancy/occupancy.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "replica/graph/types.h"
#include "replica/machine/machine.h"

namespace poprun {
namespace {

constexpr const char* kLoad = "load";

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;

tl::unexpected<Error> memory_bug(std::string_view what) {
  return fail(ErrorCode::kBug, fmt::format("memory: {}", what));
}

std::string describe(const proto::Step& step) {
  if (step.has_execute()) {
    return fmt::format("step {} ({} '{}')", step.number(), step.execute().operation(),
                       step.execute().name());
  }
  const MachineOperation* operation = find_machine_operation(step);
  return fmt::format("step {} ({})", step.number(), operation ? operation->kind : "repeat");
}

/// A step with what is asked of it often.
struct Prepared {
  const proto::Step* step = nullptr;
  StepTensors tensors = {};
  std::vector<Prepared> inner = {};  ///< A repeat's steps.
};

std::vector<Prepared> prepare(const Steps& steps) {
  std::vector<Prepared> all;
  for (const proto::Step& step : steps) {
    all.push_back({&step, tensors_of(step), prepare(step.repeat().steps())});
  }
  return all;
}

/// What holds at every step, whenever it runs.
class StaticCheck {
 public:
  explicit StaticCheck(const Program& program)
      : program_(program), highest_(static_cast<std::size_t>(program.memory_size())) {}

  Status steps(const std::vector<Prepared>& all) {
    for (const Prepared& prepared : all) {
      POPRUN_TRY(step(prepared));
      POPRUN_TRY(steps(prepared.inner));
    }
    return {};
  }

  Status peaks() const {
    for (int ipu = 0; ipu < program_.memory_size(); ++ipu) {
      const std::uint64_t highest = highest_[static_cast<std::size_t>(ipu)];
      if (highest != program_.memory(ipu).peak()) {
        return memory_bug(
            fmt::format("what steps name on IPU {} ends at {} B, but its planned "
                        "peak is {} B",
                        ipu, highest, program_.memory(ipu).peak()));
      }
    }
    return {};
  }

 private:
  Status step(const Prepared& prepared) {
    const proto::Step& step = *prepared.step;
    const bool on_one_ipu =
        step.has_execute() || step.has_all_reduce() || step.has_stash() || step.has_restore();
    std::optional<std::uint32_t> first;
    for (const auto* ids : {&prepared.tensors.reads, &prepared.tensors.writes}) {
      for (const std::uint32_t id : *ids) {
        const proto::Tensor& tensor = program_.tensors(static_cast<int>(id));
        const std::uint32_t ipu = tensor.placement().ipu();
        if (ipu >= highest_.size()) {
          return memory_bug(
              fmt::format("'{}' lies on IPU {} of {}", tensor.name(), ipu, highest_.size()));
        }
        if (!lives_at(tensor, step.number())) {
          return memory_bug(fmt::format("{} names '{}', which is not planned to live there",
                                        describe(step), tensor.name()));
        }
        first = first.value_or(id);
        const proto::Tensor& other = program_.tensors(static_cast<int>(*first));
        if (on_one_ipu && ipu != other.placement().ipu()) {
          return memory_bug(fmt::format("{} names '{}' on IPU {} and '{}' on IPU {}",
                                        describe(step), other.name(), other.placement().ipu(),
                                        tensor.name(), ipu));
        }
        highest_[ipu] = std::max(highest_[ipu], tensor.placement().offset() + tensor.bytes());
      }
    }
    return {};
  }

  const Program& program_;
  std::vector<std::uint64_t> highest_;  ///< By IPU.
};

/// Runs functions on the map of who owns which bytes.
class Occupancy {
 public:
  Occupancy(const Program& program, const std::map<std::string, std::vector<Prepared>>& functions)
      : program_(program),
        functions_(functions),
        owners_(static_cast<std::size_t>(program.memory_size())),
        held_(static_cast<std::size_t>(program.tensors_size())),
        entries_(held_.size()),
        lost_(held_.size()) {
    for (const auto& [name, steps] : functions) {
      find_stashes(steps);
    }
  }

  Status run(const std::string& function) {
    POPRUN_TRY(run_steps(functions_.at(function), 0, 0));
    for (std::uint32_t t = 0; t < held_.size(); ++t) {
      if (held_[t] != 0 && !tensor(t).always_live()) {
        drop(t, {});
      }
    }
    return {};
  }

 private:
  /// How a tensor lost its bytes: another took them, or a step released it (then it is the taker).
  struct Loss {
    const proto::Step* step = nullptr;  ///< Null: not at all, or when a function ended.
    std::uint32_t taker = 0;
  };

  [[nodiscard]] const proto::Tensor& tensor(std::uint32_t id) const {
    return program_.tensors(static_cast<int>(id));
  }

  void find_stashes(const std::vector<Prepared>& steps) {
    for (const Prepared& prepared : steps) {
      find_stashes(prepared.inner);
      const proto::Step& step = *prepared.step;
      if (step.has_stash() || step.has_restore()) {
        const std::uint32_t id = stash_of(step);
        const auto type = parse_type(tensor(id).type());
        POPRUN_CHECK(type && !type->shape.empty());
        entries_[id].resize(static_cast<std::size_t>(type->shape[0]));
        longest_ = std::max(longest_, entries_[id].size());
      }
    }
  }

  static std::uint32_t stash_of(const proto::Step& step) {
    return step.has_stash() ? step.stash().stash() : step.restore().stash();
  }

  /// `round` is that of the host function's repeat.
  Status run_steps(const std::vector<Prepared>& steps, std::uint64_t micro_batch,
                   std::uint64_t round) {
    for (const Prepared& prepared : steps) {
      const proto::Step& step = *prepared.step;
      if (step.has_repeat()) {
        POPRUN_TRY(repeat(prepared));
      } else if (step.has_call()) {
        const auto callee = functions_.find(step.call().function());
        if (callee == functions_.end()) {
          return memory_bug(fmt::format("{} calls '{}', which does not exist", describe(step),
                                        step.call().function()));
        }
        POPRUN_TRY(run_steps(callee->second, step.call().micro_batch() + round, round));
      } else {
        POPRUN_TRY(access(prepared, micro_batch));
      }
      for (const std::uint32_t id : step.releases()) {
        POPRUN_TRY(release(step, id));
      }
    }
    return {};
  }

  Status repeat(const Prepared& prepared) {
    std::size_t unchanged = 0;
    const std::uint64_t rounds = prepared.step->repeat().count();
    for (std::uint64_t round = 0; round < rounds && unchanged < longest_; ++round) {
      const auto held = held_;
      const auto entries = entries_;
      POPRUN_TRY(run_steps(prepared.inner, 0, round));
      unchanged = held == held_ && entries == entries_ ? unchanged + 1 : 0;
    }
    return {};
  }

  Status access(const Prepared& prepared, std::uint64_t micro_batch) {
    const proto::Step& step = *prepared.step;
    for (const std::uint32_t id : prepared.tensors.reads) {
      if (held_[id] == 0) {
        return memory_bug(
            fmt::format("{} reads '{}', {}", describe(step), tensor(id).name(), why_lost(id)));
      }
    }
    if (step.has_restore()) {
      const auto& entries = entries_[step.restore().stash()];
      const std::size_t entry = micro_batch % entries.size();
      if (entries[entry] == 0) {
        return memory_bug(fmt::format("{} reads entry {} of '{}', which nothing has written",
                                      describe(step), entry,
                                      tensor(step.restore().stash()).name()));
      }
    }
    for (const std::uint32_t id : prepared.tensors.writes) {
      take(step, id);
    }
    if (step.has_stash()) {
      auto& entries = entries_[step.stash().stash()];
      entries[micro_batch % entries.size()] = 1;
    }
    return {};
  }

  /// A tensor takes its bytes from whatever holds one of them.
  void take(const proto::Step& step, std::uint32_t id) {
    if (held_[id] != 0) {
      return;
    }
    for (const std::uint32_t other : holders_in(id)) {
      drop(other, {&step, id});
    }
    owners_[tensor(id).placement().ipu()].emplace(tensor(id).placement().offset(), id);
    held_[id] = 1;
  }

  void drop(std::uint32_t id, const Loss& loss) {
    owners_[tensor(id).placement().ipu()].erase(tensor(id).placement().offset());
    held_[id] = 0;
    std::ranges::fill(entries_[id], char{0});
    lost_[id] = loss;
  }

  /// Tensors that hold one of the bytes of `id`.
  [[nodiscard]] std::vector<std::uint32_t> holders_in(std::uint32_t id) const {
    const auto& owners = owners_[tensor(id).placement().ipu()];
    const std::uint64_t begin = tensor(id).placement().offset();
    std::vector<std::uint32_t> found;
    auto next = owners.lower_bound(begin + tensor(id).bytes());
    while (next != owners.begin()) {
      --next;
      if (next->first + tensor(next->second).bytes() <= begin) {
        break;
      }
      found.push_back(next->second);
    }
    return found;
  }

  /// What a release leaves behind is not a number.
  Status release(const proto::Step& step, std::uint32_t id) {
    for (const std::uint32_t other : holders_in(id)) {
      if (other != id) {
        return memory_bug(fmt::format("{} releases '{}', whose bytes '{}' holds", describe(step),
                                      tensor(id).name(), tensor(other).name()));
      }
    }
    if (held_[id] != 0) {
      drop(id, {&step, id});
    }
    return {};
  }

  [[nodiscard]] std::string why_lost(std::uint32_t id) const {
    const Loss& loss = lost_[id];
    if (loss.step == nullptr) {
      return "which nothing has written in this function";
    }
    return loss.taker == id ? fmt::format("which {} has released", describe(*loss.step))
                            : fmt::format("whose bytes '{}' took in {}", tensor(loss.taker).name(),
                                          describe(*loss.step));
  }

  const Program& program_;
  const std::map<std::string, std::vector<Prepared>>& functions_;
  std::vector<std::map<std::uint64_t, std::uint32_t>> owners_;  ///< By IPU: tensors by offset.
  std::vector<char> held_;                                      ///< By tensor.
  std::vector<std::vector<char>> entries_;                      ///< By stash and entry: written.
  std::vector<Loss> lost_;   ///< By tensor: how it was lost last.
  std::size_t longest_ = 1;  ///< Entries of the longest stash.
};

std::set<std::string> callees(const std::vector<Prepared>& steps) {
  std::set<std::string> names;
  for (const Prepared& prepared : steps) {
    names.merge(callees(prepared.inner));
    if (prepared.step->has_call()) {
      names.insert(prepared.step->call().function());
    }
  }
  return names;
}

}  // namespace

Status verify_memory(const Program& program) {
  std::map<std::string, std::vector<Prepared>> functions;
  std::set<std::string> called;
  StaticCheck check(program);
  for (const proto::Function& function : program.functions()) {
    const auto& steps = functions[function.name()] = prepare(function.steps());
    called.merge(callees(steps));
    POPRUN_TRY(check.steps(steps));
  }
  POPRUN_TRY(check.peaks());
  Occupancy occupancy(program, functions);
  for (const bool first : {true, false}) {
    for (const proto::Function& function : program.functions()) {
      if (!called.contains(function.name()) && (first || function.name() != kLoad)) {
        POPRUN_TRY(occupancy.run(function.name()));
      }
    }
  }
  return {};
}

}  // namespace poprun
