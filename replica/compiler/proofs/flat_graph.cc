#include "replica/compiler/proofs/flat_graph.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/machine/exchange.h"
#include "replica/machine/operations.h"
#include "replica/ops/face/random_name.h"
#include "replica/ops/half/half_kernel.h"

namespace poprun {
namespace {

void add(NumberBuilder& builder, const Attribute& value) {
  builder.add(std::uint64_t{value.index()});
  std::visit(
      [&builder](const auto& v) {
        using Value = std::decay_t<decltype(v)>;
        if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>) {
          builder.add(v);
        } else {
          builder.add(std::uint64_t{v.size()});
          for (const auto& element : v) {
            builder.add(element);
          }
        }
      },
      value);
}

void add_type(NumberBuilder& builder, const TensorType& type) {
  builder.add(static_cast<std::uint64_t>(type.data));
  builder.add(static_cast<std::uint64_t>(type.layout));
  for (const std::int64_t size : type.shape) {
    builder.add(size);
  }
}

/// Returns whether an attribute does not affect a tensor's values, because it describes other tensors or how replicas
/// divide shards.
bool is_about_others(Effect effect, const std::string& attribute) {
  return (effect == Effect::kReduces && attribute == "background") ||
         (effect == Effect::kStreamsIn && attribute == "fields") ||
         (effect == Effect::kScatters && attribute == "group") ||
         (effect == Effect::kComputes && attribute == "shards");
}

/// Returns the operation's name. All reductions share one name, regardless of which part of the result a replica keeps.
std::string_view name_of(const Operation& operation, Effect effect) {
  return effect == Effect::kScatters ? "all_reduce" : std::string_view{operation.kind};
}

/// Returns the index of the salt (a random-number key that the call passes) to which an attribute refers, if any.
std::optional<std::size_t> salt_of(const std::string& name, const Attribute& value) {
  const auto* salt = std::get_if<std::int64_t>(&value);
  return salt != nullptr && keys_random_numbers(name) ? std::optional<std::size_t>(*salt) : std::nullopt;
}

/// Returns how many salts an operation needs from its call: the highest index plus one.
std::size_t salts_needed(const Operation& operation) {
  std::size_t needed = 0;
  for (const auto& [name, value] : operation.attributes.values()) {
    if (const std::optional<std::size_t> salt = salt_of(name, value)) {
      needed = std::max(needed, *salt + 1);
    }
  }
  return needed;
}

/// Hashes an operation without its inputs. Requires: `salts` has at least salts_needed(operation) elements.
Number what_is(const Graph& graph, const Operation& operation, Effect effect, const std::vector<std::string>& salts) {
  NumberBuilder builder;
  builder.add(name_of(operation, effect));
  for (const auto& [name, value] : operation.attributes.values()) {
    if (!is_about_others(effect, name)) {
      builder.add(name);
      const std::optional<std::size_t> salt = salt_of(name, value);
      add(builder, salt ? Attribute(salts[*salt]) : value);
    }
  }
  if (effect == Effect::kStreamsOut) {
    for (const TensorId id : operation.inputs) {
      builder.add(graph.tensor(id).name);
    }
  }
  if (effect == Effect::kComputes) {
    for (const TensorId id : operation.outputs) {
      add_type(builder, graph.tensor(id).shard_of.value_or(graph.tensor(id).type));
    }
    if (Initialise::is(operation)) {
      builder.add(graph.tensor(operation.outputs[0]).name);
    }
  }
  return builder.number();
}

Effect effect_of(const Operation& operation) {
  if (AwaitAllReduces::is(operation)) {
    return Effect::kAwaits;
  }
  if (Copy::is(operation)) {
    return Effect::kMoves;
  }
  if (Stash::is(operation)) {
    return Effect::kStashes;
  }
  if (Restore::is(operation)) {
    return Effect::kRestores;
  }
  if (StreamIn::is(operation)) {
    return Effect::kStreamsIn;
  }
  if (StreamOut::is(operation)) {
    return Effect::kStreamsOut;
  }
  if (operation.kind == Call::kKind) {
    return Effect::kCalls;
  }
  if (ReduceScatter::is(operation)) {
    return Effect::kScatters;
  }
  if (Shard::is(operation)) {
    return Effect::kShards;
  }
  if (AllGather::is(operation)) {
    return Effect::kGathers;
  }
  return AllReduce::from(operation) ? Effect::kReduces : Effect::kComputes;
}

class Flattening {
 public:
  explicit Flattening(const Graph& graph) {
    flat_.graph = &graph;
    flat_.slots = static_cast<std::uint32_t>(graph.tensors().size());
    flat_.stash_of.assign(flat_.slots, kNoStash);
  }

  Result<FlatGraph> run() {
    for (const Function& function : flat_.graph->functions) {
      numbers_[function.name] = static_cast<std::uint32_t>(flat_.functions.size());
      flat_.functions.push_back({function.name, false, {}});
    }
    for (std::uint32_t f = 0; f < flat_.functions.size(); ++f) {
      for (const Region& region : flat_.graph->functions[f].regions) {
        const auto begin = static_cast<std::uint32_t>(flat_.operations.size());
        for (const Operation& operation : region.operations) {
          POPRUN_TRY(add_operation(f, operation));
        }
        const auto end = static_cast<std::uint32_t>(flat_.operations.size());
        flat_.functions[f].regions.push_back({region.repeat, begin, end});
      }
    }
    for (FlatOperation& operation : flat_.operations) {
      POPRUN_TRY(salt(operation));
    }
    return std::move(flat_);
  }

 private:
  Status add_operation(std::uint32_t function, const Operation& operation) {
    FlatOperation flat;
    flat.effect = effect_of(operation);
    if (salts_needed(operation) == 0) {
      flat.what = what_is(*flat_.graph, operation, flat.effect, {});
    }
    flat.function = function;
    flat.source = &operation;
    flat.inputs = static_cast<std::uint32_t>(flat_.ids.size());
    flat.input_count = static_cast<std::uint32_t>(operation.inputs.size());
    flat.output_count = static_cast<std::uint32_t>(operation.outputs.size());
    for (const auto* ids : {&operation.inputs, &operation.outputs}) {
      for (const TensorId id : *ids) {
        flat_.ids.push_back(index_of(id));
      }
    }
    const Operator* op = find_operator(operation.kind);
    flat.group = static_cast<std::uint32_t>(flat.effect == Effect::kComputes ? 0 : group_of(operation));
    if (op != nullptr) {
      flat.cut_inputs = op->on_shards.inputs;
      flat.cut_outputs = op->on_shards.outputs;
    }
    flat.reads_moment = op != nullptr && reads_moment(*op, operation.attributes);
    flat.in_place = std::ranges::any_of(operation.outputs, [&operation](TensorId id) {
      return std::ranges::find(operation.inputs, id) != operation.inputs.end();
    });
    if (flat.effect == Effect::kCalls) {
      POPRUN_TRY(find_callee(operation, flat));
    } else if (flat.effect == Effect::kStreamsIn) {
      add_parts(operation, flat);
    } else if (flat.effect == Effect::kStashes) {
      add_stash(operation.outputs[0]);
    } else if (flat.effect == Effect::kRestores) {
      add_stash(operation.inputs[0]);
    } else if (flat.effect == Effect::kMoves) {
      add_entries(operation, flat);
    } else if (flat.effect == Effect::kReduces) {
      flat.in_background = AllReduce::from(operation)->in_background;
    }
    flat_.operations.push_back(flat);
    return {};
  }

  Status find_callee(const Operation& operation, FlatOperation& flat) {
    const std::optional<Call> call = Call::from(operation);
    const auto callee = call ? numbers_.find(call->function) : numbers_.end();
    if (callee == numbers_.end()) {
      return fail(ErrorCode::kBug,
                  fmt::format("equivalence: call of an unknown function: {}", to_text(operation.attributes)));
    }
    flat.callee = callee->second;
    std::vector<Call>& calls = calls_[flat.callee];
    flat.call = static_cast<std::uint32_t>(calls.size());
    calls.push_back(*call);
    flat.micro_batch = call->micro_batch;
    flat.entry = call->entry;
    flat_.functions[flat.callee].called = true;
    flat_.has_calls = true;
    return {};
  }

  /// Hashes an operation for each call of its function, if its hash depends on the call's salts.
  Status salt(FlatOperation& flat) {
    const std::size_t needed = salts_needed(*flat.source);
    if (needed == 0) {
      return {};
    }
    flat.salted = static_cast<std::uint32_t>(flat_.salted.size());
    const auto calls = calls_.find(flat.function);
    if (calls == calls_.end()) {
      return lacks_salt(flat, 0, needed);
    }
    for (const Call& call : calls->second) {
      if (call.salts.size() < needed) {
        return lacks_salt(flat, call.salts.size(), needed);
      }
      flat_.salted.push_back(what_is(*flat_.graph, *flat.source, flat.effect, call.salts));
    }
    flat.what = flat_.salted[flat.salted];
    return {};
  }

  [[nodiscard]] Status lacks_salt(const FlatOperation& flat, std::size_t given, std::size_t needed) const {
    return fail(ErrorCode::kBug,
                fmt::format("equivalence: {} '{}' of {} needs {} from its call, but the call passes {}",
                            flat.source->kind, flat_.graph->tensor(flat.source->outputs.at(0)).name,
                            flat_.functions[flat.function].name, counted(needed, "salt"), given));
  }

  void add_parts(const Operation& operation, FlatOperation& flat) {
    const StreamIn stream = *StreamIn::from(operation);
    flat.parts = static_cast<std::uint32_t>(flat_.parts.size());
    for (std::size_t k = 0; k < stream.tensors.size(); ++k) {
      NumberBuilder builder(flat.what);
      builder.add(stream.fields.empty() ? static_cast<std::int64_t>(k) : stream.fields[k]);
      add_type(builder, flat_.graph->tensor(stream.tensors[k]).type);
      flat_.parts.push_back(builder.number());
    }
  }

  void add_entries(const Operation& operation, FlatOperation& flat) {
    const std::optional<Copy> copy = Copy::from(operation);
    if (!copy || (copy->from_entries.empty() && copy->to_entries.empty())) {
      return;
    }
    flat.entries = static_cast<std::uint32_t>(flat_.entries.size());
    for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
      flat_.entries.push_back(copy->from_entry(k));
      if (copy->from_entry(k) != Copy::kWhole) {
        add_stash(operation.inputs[k]);
      }
    }
    for (std::size_t k = 0; k < operation.outputs.size(); ++k) {
      flat_.entries.push_back(copy->to_entry(k));
      if (copy->to_entry(k) != Copy::kWhole) {
        add_stash(operation.outputs[k]);
      }
    }
  }

  void add_stash(TensorId id) {
    const std::uint32_t tensor = index_of(id);
    if (flat_.stash_of[tensor] == kNoStash) {
      const auto length = static_cast<std::uint32_t>(flat_.graph->tensor(id).type.shape.at(0));
      flat_.stash_of[tensor] = static_cast<std::uint32_t>(flat_.stashes.size());
      flat_.stashes.push_back({tensor, flat_.slots, length});
      flat_.slots += length;
    }
  }

  FlatGraph flat_;
  std::map<std::string, std::uint32_t> numbers_;      ///< Numbers of the functions, keyed by name.
  std::map<std::uint32_t, std::vector<Call>> calls_;  ///< Keyed by callee.
};

}  // namespace

const std::string& FlatGraph::slot_name(std::uint32_t slot) const {
  if (slot < stash_of.size()) {
    return name(slot);
  }
  const auto behind = std::ranges::upper_bound(stashes, slot, {}, &FlatStash::begin);
  return name((behind - 1)->tensor);
}

Result<FlatGraph> flatten(const Graph& graph) {
  return Flattening(graph).run();
}

}  // namespace poprun
