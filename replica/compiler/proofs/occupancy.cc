#include "replica/compiler/proofs/occupancy.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "replica/graph/types.h"
#include "replica/machine/machine.h"
#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

constexpr const char* kLoadFunction = "load";

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
  bool is_view = false;              ///< It writes nothing.
};

/// One use of an operator, as the Program has it.
struct Use {
  const Operator* op = nullptr;
  Signature signature = {};
  std::vector<const proto::Tensor*> inputs = {};
  std::vector<const proto::Tensor*> outputs = {};
};

/// Nothing if the step is not one that can be understood: the engine refuses it.
std::optional<Use> use_of(const Program& program, const proto::Execute& execute) {
  Use use{.op = find_operator(execute.operation())};
  auto attributes = parse_attributes(execute.attributes());
  if (use.op == nullptr || !attributes) {
    return std::nullopt;
  }
  use.signature.attributes = *std::move(attributes);
  const auto add = [&program](const auto& ids, auto& tensors, std::vector<TensorType>& types) {
    for (const std::uint32_t id : ids) {
      tensors.push_back(&program.tensors(static_cast<int>(id)));
      auto type = parse_type(tensors.back()->type());
      POPRUN_CHECK(type.has_value());
      types.push_back(*std::move(type));
    }
  };
  add(execute.inputs(), use.inputs, use.signature.inputs);
  add(execute.outputs(), use.outputs, use.signature.outputs);
  return use;
}

std::int64_t address_of(const proto::Tensor* tensor) {
  return static_cast<std::int64_t>(tensor->placement().offset());
}

bool is_view(const Use& use) {
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> outputs;
  std::ranges::transform(use.inputs, std::back_inserter(inputs), address_of);
  std::ranges::transform(use.outputs, std::back_inserter(outputs), address_of);
  return is_view(*use.op, use.signature, inputs, outputs);
}

std::vector<Prepared> prepare(const Program& program, const Steps& steps) {
  std::vector<Prepared> all;
  for (const proto::Step& step : steps) {
    Prepared& prepared = all.emplace_back(
        Prepared{&step, tensors_of(step), prepare(program, step.repeat().steps())});
    if (step.has_execute()) {
      const std::optional<Use> use = use_of(program, step.execute());
      prepared.is_view = use && is_view(*use);
    }
  }
  return all;
}

/// What holds at every step, whenever it runs.
class StaticCheck {
 public:
  explicit StaticCheck(const Program& program)
      : program_(program), highest_(memory_count(program)) {}

  Status steps(const std::vector<Prepared>& all) {
    for (const Prepared& prepared : all) {
      POPRUN_TRY(step(prepared));
      POPRUN_TRY(steps(prepared.inner));
    }
    return {};
  }

  Status peaks() const {
    const int ipus = program_.memory_size();
    for (int m = 0; m < 2 * ipus; ++m) {
      const proto::IpuMemory& memory = program_.memory(m % ipus);
      const std::uint64_t highest = highest_[static_cast<std::size_t>(m)];
      const std::uint64_t planned = m < ipus ? memory.images_peak() : memory.streaming_peak();
      if (highest != planned) {
        return memory_bug(
            fmt::format("what steps name on IPU {} ends at {} B{}, but its planned peak is {} B",
                        m % ipus, highest, m < ipus ? "" : " of its Streaming Memory", planned));
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
        if (ipu >= static_cast<std::uint32_t>(program_.memory_size())) {
          return memory_bug(
              fmt::format("'{}' lies on IPU {} of {}", tensor.name(), ipu, program_.memory_size()));
        }
        if (is_remote(tensor) && !step.has_copy() && !step.has_stash() && !step.has_restore()) {
          return memory_bug(fmt::format("{} names '{}', which lies in Streaming Memory",
                                        describe(step), tensor.name()));
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
        std::uint64_t& highest = highest_[memory_of(program_, tensor)];
        highest = std::max(highest, tensor.placement().offset() + tensor.bytes());
      }
    }
    return step.has_execute() && !prepared.is_view ? overlaps(step) : Status{};
  }

  /// Where an operator's outputs may share bytes.
  [[nodiscard]] Status overlaps(const proto::Step& step) const {
    const std::optional<Use> use = use_of(program_, step.execute());
    if (!use) {
      return {};
    }
    for (std::size_t k = 0; k < use->outputs.size(); ++k) {
      const proto::Tensor* output = use->outputs[k];
      for (std::size_t i = 0; i < use->inputs.size(); ++i) {
        const proto::Tensor* input = use->inputs[i];
        const bool updated = std::ranges::find(use->inputs, output) != use->inputs.end();
        const bool taken = k == 0 && address_of(output) == address_of(input) &&
                           may_take(*use->op, use->signature, i);
        if (input != output && share_bytes(*input, *output) && (updated || !taken)) {
          return memory_bug(fmt::format("{} writes '{}' over its input '{}'", describe(step),
                                        output->name(), input->name()));
        }
      }
      for (std::size_t other = 0; other < k; ++other) {
        if (share_bytes(*use->outputs[other], *output)) {
          return memory_bug(fmt::format("{} writes '{}' over '{}'", describe(step), output->name(),
                                        use->outputs[other]->name()));
        }
      }
    }
    return {};
  }

  const Program& program_;
  std::vector<std::uint64_t> highest_;  ///< By memory.
};

/// Who holds which bytes of a memory: runs of bytes with the same holders.
class Holders {
 public:
  void add(std::uint64_t begin, std::uint64_t end, std::uint32_t holder) {
    cut(begin);
    cut(end);
    for (std::uint64_t at = begin; at < end;) {
      const auto next = runs_.lower_bound(at);
      if (next != runs_.end() && next->first == at) {
        next->second.holders.push_back(holder);
        at = next->second.end;
        continue;
      }
      const std::uint64_t stop = next == runs_.end() ? end : std::min(end, next->first);
      runs_.emplace_hint(next, at, Run{stop, {holder}});
      at = stop;
    }
  }

  /// Requires: it holds just these bytes.
  void remove(std::uint64_t begin, std::uint64_t end, std::uint32_t holder) {
    for (auto run = runs_.find(begin); run != runs_.end() && run->first < end;) {
      std::erase(run->second.holders, holder);
      run = run->second.holders.empty() ? runs_.erase(run) : std::next(run);
    }
  }

  /// Rising.
  [[nodiscard]] std::vector<std::uint32_t> in(std::uint64_t begin, std::uint64_t end) const {
    std::vector<std::uint32_t> found;
    auto run = runs_.upper_bound(begin);
    if (run != runs_.begin() && std::prev(run)->second.end > begin) {
      --run;
    }
    for (; run != runs_.end() && run->first < end; ++run) {
      found.insert(found.end(), run->second.holders.begin(), run->second.holders.end());
    }
    std::ranges::sort(found);
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

 private:
  struct Run {
    std::uint64_t end = 0;
    std::vector<std::uint32_t> holders = {};
  };

  /// Makes a run end at an address.
  void cut(std::uint64_t at) {
    auto run = runs_.lower_bound(at);
    if (run == runs_.begin() || (--run)->second.end <= at) {
      return;
    }
    runs_[at] = run->second;
    run->second.end = at;
  }

  std::map<std::uint64_t, Run> runs_;  ///< By address.
};

/// Runs functions on the map of who owns which bytes.
class Occupancy {
 public:
  Occupancy(const Program& program, const std::map<std::string, std::vector<Prepared>>& functions)
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

  /// An entry of a remote buffer that a copy names.
  struct Entry {
    std::uint32_t tensor = 0;
    std::size_t entry = 0;
    bool writes = false;
  };

  /// `first`: where entries begin in the running function.
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

  /// When steps run.
  struct Now {
    std::uint64_t micro_batch = 0;
    std::uint64_t round = 0;  ///< The running repeat's.
    std::uint64_t entry = 0;  ///< Where the entries of remote buffers begin.
  };

  Status run_steps(const std::vector<Prepared>& steps, const Now& now) {
    for (const Prepared& prepared : steps) {
      const proto::Step& step = *prepared.step;
      if (step.has_repeat()) {
        POPRUN_TRY(repeat(prepared, now));
      } else if (step.has_call()) {
        const auto callee = functions_.find(step.call().function());
        if (callee == functions_.end()) {
          return memory_bug(fmt::format("{} calls '{}', which does not exist", describe(step),
                                        step.call().function()));
        }
        const proto::Call& call = step.call();
        POPRUN_TRY(run_steps(callee->second, {now.micro_batch + call.micro_batch() + now.round, 0,
                                              now.entry + call.entry()}));
      } else {
        POPRUN_TRY(access(prepared, now));
      }
      for (const std::uint32_t id : step.releases()) {
        release(step, id);
      }
    }
    return {};
  }

  Status repeat(const Prepared& prepared, const Now& now) {
    std::size_t unchanged = 0;
    const std::uint64_t rounds = prepared.step->repeat().count();
    for (std::uint64_t round = 0; round < rounds && unchanged < longest_; ++round) {
      const auto held = held_;
      const auto entries = entries_;
      POPRUN_TRY(run_steps(prepared.inner, {now.micro_batch, round, now.entry}));
      unchanged = held == held_ && entries == entries_ ? unchanged + 1 : 0;
    }
    return {};
  }

  Status access(const Prepared& prepared, const Now& now) {
    const proto::Step& step = *prepared.step;
    for (const std::uint32_t id : prepared.tensors.reads) {
      if (held_[id] == 0) {
        return memory_bug(
            fmt::format("{} reads '{}', {}", describe(step), tensor(id).name(), why_lost(id)));
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
    for (const std::uint32_t id : prepared.tensors.writes) {
      if (!prepared.is_view) {
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
          return memory_bug(fmt::format("{} writes entry {} of '{}', which has {}", describe(step),
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
      return memory_bug(fmt::format("{} reads entry {} of '{}', which nothing has written",
                                    describe(step), read.entry, tensor(read.tensor).name()));
    }
    return {};
  }

  /// What else holds one of a tensor's bytes loses them when the tensor is written.
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

  /// Tensors that hold one of the bytes of `id`.
  [[nodiscard]] std::vector<std::uint32_t> holders_in(std::uint32_t id) const {
    const proto::Placement& place = tensor(id).placement();
    return holders_[memory_of(program_, tensor(id))].in(place.offset(),
                                                        place.offset() + tensor(id).bytes());
  }

  /// What a release leaves behind is not a number.
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
    return loss.taker == id ? fmt::format("which {} has released", describe(*loss.step))
                            : fmt::format("whose bytes '{}' took in {}", tensor(loss.taker).name(),
                                          describe(*loss.step));
  }

  const Program& program_;
  const std::map<std::string, std::vector<Prepared>>& functions_;
  std::vector<Holders> holders_;            ///< By memory.
  std::vector<char> held_;                  ///< By tensor.
  std::vector<std::vector<char>> entries_;  ///< By stash or remote buffer, and entry: written.
  std::vector<Loss> lost_;                  ///< By tensor: how it was lost last.
  std::size_t longest_ = 1;                 ///< Entries of the longest stash.
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
    const auto& steps = functions[function.name()] = prepare(program, function.steps());
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
