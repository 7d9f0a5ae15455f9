#include "replica/compiler/proofs/occupancy.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "replica/compiler/proofs/holders.h"
#include "replica/compiler/proofs/static_check.h"
#include "replica/machine/machine.h"

namespace poprun {
namespace {

constexpr const char* kLoadFunction = "load";

class Occupancy {
 public:
  Occupancy(const Program& program, const std::map<std::string, std::vector<NamedStep>>& functions)
      : program_(program),
        functions_(functions),
        holders_(memory_count(program)),
        held_(static_cast<std::size_t>(program.tensors_size())),
        entries_(held_.size()),
        lost_(held_.size()) {
    for (const auto& [name, steps] : functions) {
      find_stashes(steps);
    }
  }

  Status run(const std::string& function) {
    POPRUN_TRY(run_steps(functions_.at(function), {}));
    for (std::uint32_t t = 0; t < held_.size(); ++t) {
      if (held_[t] != 0 && !tensor(t).always_live()) {
        drop(t, {});
      }
    }
    return {};
  }

 private:
  /// How a tensor lost its bytes: another tensor took them, or a step released them (`taker` is then the tensor
  /// itself).
  struct Loss {
    const proto::Step* step = nullptr;  ///< Null if the tensor never held bytes, or lost them when a function ended.
    std::uint32_t taker = 0;
  };

  [[nodiscard]] const proto::Tensor& tensor(std::uint32_t id) const { return program_.tensors(static_cast<int>(id)); }

  void find_stashes(const std::vector<NamedStep>& steps) {
    for (const NamedStep& named : steps) {
      find_stashes(named.inner);
      const proto::Step& step = *named.step;
      if (step.has_stash() || step.has_restore()) {
        const std::uint32_t id = stash_of(step);
        find_entries(id);
        longest_ = std::max(longest_, entries_[id].size());
      }
      for (const Entry& entry : entries_of(step, 0)) {
        find_entries(entry.tensor);
      }
    }
  }

  void find_entries(std::uint32_t id) {
    const auto type = parse_type(tensor(id).type());
    POPRUN_CHECK(type && !type->shape.empty());
    entries_[id].resize(static_cast<std::size_t>(type->shape[0]));
  }

  struct Entry {
    std::uint32_t tensor = 0;
    std::size_t entry = 0;
    bool writes = false;
  };

  /// Returns the entries to which a copy refers. `first` is the running function's offset, which is added to their
  /// numbers.
  static std::vector<Entry> entries_of(const proto::Step& step, std::uint64_t first) {
    std::vector<Entry> entries;
    const proto::Copy& copy = step.copy();
    for (int k = 0; k < copy.from_entries_size(); ++k) {
      if (copy.from_entries(k) >= 0) {
        entries.push_back({copy.from(k), static_cast<std::size_t>(copy.from_entries(k)) + first});
      }
    }
    for (int k = 0; k < copy.to_entries_size(); ++k) {
      if (copy.to_entries(k) >= 0) {
        entries.push_back({copy.to(k), static_cast<std::size_t>(copy.to_entries(k)) + first, true});
      }
    }
    return entries;
  }

  static std::uint32_t stash_of(const proto::Step& step) {
    return step.has_stash() ? step.stash().stash() : step.restore().stash();
  }

  struct Now {
    std::uint64_t micro_batch = 0;
    std::uint64_t round = 0;  ///< Round of the running repeat.
    std::uint64_t entry = 0;  ///< Added to the entry numbers of remote buffers.
  };

  Status run_steps(const std::vector<NamedStep>& steps, const Now& now) {
    for (const NamedStep& named : steps) {
      const proto::Step& step = *named.step;
      if (step.has_repeat()) {
        POPRUN_TRY(repeat(named, now));
      } else if (step.has_call()) {
        const auto callee = functions_.find(step.call().function());
        if (callee == functions_.end()) {
          return memory_bug(fmt::format("{} calls '{}', which does not exist", describe(step), step.call().function()));
        }
        const proto::Call& call = step.call();
        POPRUN_TRY(
            run_steps(callee->second, {now.micro_batch + call.micro_batch() + now.round, 0, now.entry + call.entry()}));
      } else {
        POPRUN_TRY(access(named, now));
      }
      for (const std::uint32_t id : step.releases()) {
        release(step, id);
      }
    }
    return {};
  }

  Status repeat(const NamedStep& named, const Now& now) {
    std::size_t unchanged = 0;
    const std::uint64_t rounds = named.step->repeat().count();
    for (std::uint64_t round = 0; round < rounds && unchanged < longest_; ++round) {
      const auto held = held_;
      const auto entries = entries_;
      POPRUN_TRY(run_steps(named.inner, {now.micro_batch, round, now.entry}));
      unchanged = held == held_ && entries == entries_ ? unchanged + 1 : 0;
    }
    return {};
  }

  Status access(const NamedStep& step_of, const Now& now) {
    const proto::Step& step = *step_of.step;
    for (const std::uint32_t id : step_of.tensors.reads) {
      if (held_[id] == 0) {
        return memory_bug(fmt::format("{} reads '{}', {}", describe(step), tensor(id).name(), why_lost(id)));
      }
    }
    if (step.has_restore()) {
      const auto& entries = entries_[step.restore().stash()];
      const std::size_t entry = now.micro_batch % entries.size();
      POPRUN_TRY(check_entry(step, {step.restore().stash(), entry}));
    }
    const std::vector<Entry> named = entries_of(step, now.entry);
    for (const Entry& entry : named) {
      if (!entry.writes) {
        POPRUN_TRY(check_entry(step, entry));
      }
    }
    for (const std::uint32_t id : step_of.tensors.writes) {
      if (!step_of.is_view) {
        take(step, id);
      }
      hold(id);
    }
    if (step.has_stash()) {
      auto& entries = entries_[step.stash().stash()];
      entries[now.micro_batch % entries.size()] = 1;
    }
    for (const Entry& entry : named) {
      if (entry.writes) {
        auto& entries = entries_[entry.tensor];
        if (entry.entry >= entries.size()) {
          return memory_bug(fmt::format("{} writes entry {} of '{}', whose number of entries is {}", describe(step),
                                        entry.entry, tensor(entry.tensor).name(), entries.size()));
        }
        entries[entry.entry] = 1;
      }
    }
    return {};
  }

  Status check_entry(const proto::Step& step, const Entry& read) const {
    const std::vector<char>& entries = entries_[read.tensor];
    if (read.entry >= entries.size() || entries[read.entry] == 0) {
      return memory_bug(fmt::format("{} reads entry {} of '{}', which nothing has written", describe(step), read.entry,
                                    tensor(read.tensor).name()));
    }
    return {};
  }

  /// Drops every other tensor that holds one of the bytes of `id`, which a step writes.
  void take(const proto::Step& step, std::uint32_t id) {
    for (const std::uint32_t other : holders_in(id)) {
      if (other != id) {
        drop(other, {&step, id});
      }
    }
  }

  void hold(std::uint32_t id) {
    if (held_[id] == 0) {
      const proto::Placement& place = tensor(id).placement();
      memory(id).add(place.offset(), place.offset() + tensor(id).bytes(), id);
      held_[id] = 1;
    }
  }

  Holders& memory(std::uint32_t id) { return holders_[memory_of(program_, tensor(id))]; }

  void drop(std::uint32_t id, const Loss& loss) {
    const proto::Placement& place = tensor(id).placement();
    memory(id).remove(place.offset(), place.offset() + tensor(id).bytes(), id);
    held_[id] = 0;
    std::ranges::fill(entries_[id], char{0});
    lost_[id] = loss;
  }

  [[nodiscard]] std::vector<std::uint32_t> holders_in(std::uint32_t id) const {
    const proto::Placement& place = tensor(id).placement();
    return holders_[memory_of(program_, tensor(id))].in(place.offset(), place.offset() + tensor(id).bytes());
  }

  /// Drops every tensor that holds a released byte, because the engine poisons these bytes.
  void release(const proto::Step& step, std::uint32_t id) {
    for (const std::uint32_t holder : holders_in(id)) {
      drop(holder, {&step, holder});
    }
  }

  [[nodiscard]] std::string why_lost(std::uint32_t id) const {
    const Loss& loss = lost_[id];
    if (loss.step == nullptr) {
      return "which nothing has written in this function";
    }
    return loss.taker == id
               ? fmt::format("which {} has released", describe(*loss.step))
               : fmt::format("whose bytes '{}' overwrote in {}", tensor(loss.taker).name(), describe(*loss.step));
  }

  const Program& program_;
  const std::map<std::string, std::vector<NamedStep>>& functions_;
  std::vector<Holders> holders_;            ///< Indexed by memory.
  std::vector<char> held_;                  ///< Indexed by tensor.
  std::vector<std::vector<char>> entries_;  ///< Whether each entry of each stash or remote buffer has been written.
  std::vector<Loss> lost_;                  ///< The most recent loss of each tensor.
  std::size_t longest_ = 1;                 ///< Entries of the longest stash.
};

std::set<std::string> callees(const std::vector<NamedStep>& steps) {
  std::set<std::string> names;
  for (const NamedStep& named : steps) {
    names.merge(callees(named.inner));
    if (named.step->has_call()) {
      names.insert(named.step->call().function());
    }
  }
  return names;
}

}  // namespace

Status verify_memory(const Program& program) {
  std::map<std::string, std::vector<NamedStep>> functions;
  std::set<std::string> called;
  StaticCheck check(program);
  for (const proto::Function& function : program.functions()) {
    const auto& steps = functions[function.name()] = name_tensors(program, function.steps());
    called.merge(callees(steps));
    POPRUN_TRY(check.steps(steps));
  }
  POPRUN_TRY(check.peaks());
  Occupancy occupancy(program, functions);
  for (const bool first : {true, false}) {
    for (const proto::Function& function : program.functions()) {
      if (!called.contains(function.name()) && (first || function.name() != kLoadFunction)) {
        POPRUN_TRY(occupancy.run(function.name()));
      }
    }
  }
  return {};
}

}  // namespace poprun
