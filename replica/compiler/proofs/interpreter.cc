#include "replica/compiler/proofs/interpreter.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "replica/compiler/proofs/history.h"
#include "replica/machine/operations.h"

namespace poprun {

Interpreter::Interpreter(const FlatGraph& graph, History* history)
    : graph_(graph), history_(history), slots_(graph.slots), used_(graph.stashes.size()) {
  for (std::uint32_t k = 0; k < graph.stashes.size(); ++k) {
    stash_slots_.insert(stash_slots_.end(), graph.stashes[k].length, k);
  }
}

Value Interpreter::resident(TensorId id) const {
  const std::optional<Residence>& where = graph_.graph->tensor(id).residence;
  if (!where) {
    return value(id);
  }
  if (where->entry != Residence::kWhole) {
    const FlatStash& stash = graph_.stashes[graph_.stash_of[index_of(where->tensor)]];
    return slots_[stash.begin + static_cast<std::uint32_t>(where->entry)];
  }
  Value whole = resident(where->tensor);
  if (whole.form == Form::kShard && graph_.graph->tensor(where->tensor).shard_of) {
    whole.form = Form::kWhole;
    whole.group = 0;
  }
  return whole;
}

Status Interpreter::run(std::uint32_t function, bool counts) {
  counts_ = counts;
  sent_.clear();
  carried_.clear();
  named_.assign(slots_.size(), char{0});
  for (const FlatRegion& region : graph_.functions[function].regions) {
    if (!run_region(region)) {
      return fail(ErrorCode::kBug, "equivalence: " + fault_);
    }
  }
  for (std::uint32_t s = 0; s < graph_.stash_of.size(); ++s) {
    if (slots_[s].form == Form::kTravelling) {
      return fail(ErrorCode::kBug, fmt::format("equivalence: the background reduction of '{}', which {} starts, "
                                               "is never awaited",
                                               graph_.name(s), graph_.functions[function].name));
    }
  }
  settle();
  ++runs_;
  return {};
}

bool Interpreter::run_region(const FlatRegion& region) {
  std::optional<Round> last;
  for (std::int64_t r = 0; r < region.repeat; ++r) {
    const bool counts = counts_ && !graph_.has_calls && region.repeat > 1;
    const Instant now{graph_.has_calls ? 0 : r, counts, r, runs_, r};
    const bool may_end = counts_ && history_ == nullptr && region.repeat > 3;
    Round round{may_end ? slots_ : std::vector<Value>{}, {}, false};
    digest_ = NumberBuilder();
    sent_in_round_.clear();
    std::ranges::fill(used_, StashUse{});
    if (!run_round(region, now)) {
      return false;
    }
    if (!may_end) {
      continue;
    }
    round.digest = digest_.number();
    round.sends_twice = std::ranges::any_of(sent_in_round_, [](const auto& entry) { return entry.second > 1; });
    if (last && last->digest == round.digest && !round.sends_twice && pass_over(round.begin, region.repeat - r - 1)) {
      return true;
    }
    last = std::move(round);
  }
  return true;
}

bool Interpreter::run_round(const FlatRegion& region, const Instant& now) {
  for (std::uint32_t o = region.begin; o < region.end; ++o) {
    if (!step(graph_.operations[o], now)) {
      return false;
    }
  }
  return true;
}

bool Interpreter::step(const FlatOperation& operation, const Instant& now) {
  if (operation.effect != Effect::kAwaits && !leaves_travelling_alone(operation, now)) {
    return false;
  }
  switch (operation.effect) {
    case Effect::kAwaits:
      return await(operation, now);
    case Effect::kComputes:
      return compute(operation, now);
    case Effect::kReduces:
    case Effect::kScatters:
      return reduce(operation, now);
    case Effect::kShards:
      return reshape(operation, Form::kWhole, Form::kShard, now);
    case Effect::kGathers:
      return reshape(operation, Form::kShard, Form::kWhole, now);
    case Effect::kMoves:
      return move(operation, now);
    case Effect::kStashes:
    case Effect::kRestores:
      return move_entry(operation, now);
    case Effect::kStreamsIn:
      return stream_in(operation, now);
    case Effect::kStreamsOut:
      return stream_out(operation, now);
    case Effect::kCalls:
      break;
  }
  Instant inside = now;
  inside.index = now.base + operation.micro_batch;
  inside.counts = counts_;
  inside.call = operation.call;
  inside.entry = operation.entry + now.entry;
  for (const FlatRegion& region : graph_.functions[operation.callee].regions) {
    for (std::int64_t r = 0; r < region.repeat; ++r) {
      inside.base = inside.index + r;
      if (!run_round(region, inside)) {
        return false;
      }
    }
  }
  return true;
}

/// Checks that the operation neither reads nor overwrites a tensor that is being reduced in the background.
bool Interpreter::leaves_travelling_alone(const FlatOperation& operation, const Instant& now) {
  for (const auto& ids : {graph_.inputs(operation), graph_.outputs(operation)}) {
    for (const std::uint32_t id : ids) {
      if (slots_[id].form == Form::kTravelling) {
        fault_ = fmt::format("{} uses '{}', whose background reduction has not been awaited",
                             describe(graph_, operation, now), graph_.name(id));
        return false;
      }
    }
  }
  return true;
}

bool Interpreter::await(const FlatOperation& operation, const Instant& now) {
  if (!readable(operation, now)) {
    return false;
  }
  for (std::size_t k = 0; k < operation.input_count; ++k) {
    const std::uint32_t input = graph_.inputs(operation)[k];
    if (slots_[input].form != Form::kTravelling) {
      fault_ = fmt::format("{} awaits '{}', which is not being reduced", describe(graph_, operation, now),
                           graph_.name(input));
      return false;
    }
    Value arrived = slots_[input];
    arrived.form = Form::kWhole;
    put(graph_.outputs(operation)[k], arrived, now);
  }
  return true;
}

bool Interpreter::readable(const FlatOperation& operation, const Instant& now) {
  for (const std::uint32_t id : graph_.inputs(operation)) {
    if (!slots_[id].exists()) {
      fault_ =
          fmt::format("{} reads '{}', which nothing has written", describe(graph_, operation, now), graph_.name(id));
      return false;
    }
    note_read(id);
  }
  return true;
}

void Interpreter::note_read(std::uint32_t slot) {
  if (named_[slot] == 0) {
    named_[slot] = 1;
    carried_.emplace_back(slot, slots_[slot]);
  }
}

void Interpreter::put(std::uint32_t slot, const Value& value, const Instant& now) {
  slots_[slot] = value;
  named_[slot] = 1;
  if (history_ != nullptr && slot < graph_.stash_of.size()) {
    history_->hold(slot, value);
  }
  if (value.length > 0) {
    digest_.add(value.start).add(value.update).add(std::uint64_t{value.place});
  } else {
    digest_.add(value.number);
  }
  digest_.add(value.shift == kFixed ? kFixed : now.round - value.shift);
  digest_.add(static_cast<std::uint64_t>(value.form)).add(std::uint64_t{value.group});
}

/// Describes the error if sharded operands are not shards of one shape in one replica group. Otherwise returns "".
std::string Interpreter::wrong_shards(const FlatOperation& operation, std::uint32_t group) const {
  const std::vector<Tensor>& tensors = graph_.graph->tensors();
  const std::optional<TensorType>* whole = nullptr;
  const auto fits = [&](std::uint32_t id) {
    const std::optional<TensorType>& of = tensors[id].shard_of;
    whole = whole == nullptr ? &of : whole;
    return of && *whole && of->shape == (*whole)->shape && of->layout == (*whole)->layout;
  };
  const auto inputs = graph_.inputs(operation);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = slots_[inputs[i]];
    const bool is_cut = i < operation.cut_inputs;
    if (is_cut != (value.form == Form::kShard)) {
      return fmt::format("reads '{}', {}", graph_.name(inputs[i]),
                         is_cut ? "a full tensor, along with shards" : "a shard, which it cannot process");
    }
    if (is_cut && value.group != group) {
      return "reads shards of several replica groups";
    }
    if (is_cut && !fits(inputs[i])) {
      return fmt::format("reads '{}', a shard of a different shape", graph_.name(inputs[i]));
    }
  }
  const auto outputs = graph_.outputs(operation);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const bool is_cut = k < operation.cut_outputs;
    if (is_cut != tensors[outputs[k]].shard_of.has_value() || (is_cut && !fits(outputs[k]))) {
      return fmt::format("makes '{}', which is {} shard of its result", graph_.name(outputs[k]),
                         is_cut ? "not a" : "a");
    }
  }
  return {};
}

/// Returns the form of the operation's unsharded results, or nothing if the operation cannot read its inputs.
std::optional<Interpreter::Parts> Interpreter::form_of_parts(const FlatOperation& operation, const Instant& now) {
  Parts parts;
  std::string wrong;
  for (const std::uint32_t id : graph_.inputs(operation)) {
    if (slots_[id].form == Form::kPart) {
      wrong = fmt::format("reads '{}', which is not yet summed over the shards", graph_.name(id));
    } else if (slots_[id].form == Form::kShard) {
      parts = {Form::kPart, slots_[id].group};
    }
  }
  if (wrong.empty() && parts.form == Form::kPart) {
    wrong = wrong_shards(operation, parts.group);
  }
  for (const std::uint32_t id : graph_.outputs(operation)) {
    if (wrong.empty() && parts.form == Form::kWhole && graph_.graph->tensors()[id].shard_of) {
      wrong = fmt::format("makes the shard '{}', but reads no shard", graph_.name(id));
    }
  }
  if (!wrong.empty()) {
    fault_ = fmt::format("{} {}", describe(graph_, operation, now), wrong);
    return std::nullopt;
  }
  return parts;
}

std::uint32_t Interpreter::record(const FlatOperation& operation, const Instant& now) {
  if (history_ == nullptr) {
    return 0;
  }
  std::vector<Value> inputs;
  for (const std::uint32_t id : graph_.inputs(operation)) {
    inputs.push_back(slots_[id]);
  }
  return history_->add({&operation, now, std::move(inputs)});
}

Interpreter::Term Interpreter::term(const FlatOperation& operation, const Instant& now, bool without_updated) const {
  const auto outputs = graph_.outputs(operation);
  const auto skips = [&](std::uint32_t id) {
    return without_updated && std::ranges::find(outputs, id) != outputs.end();
  };
  std::int64_t shift = operation.reads_moment && now.counts ? now.index : kFixed;
  for (const std::uint32_t id : graph_.inputs(operation)) {
    shift = skips(id) ? shift : std::max(shift, slots_[id].shift);
  }
  NumberBuilder builder(graph_.what(operation, now.call));
  for (const std::uint32_t id : graph_.inputs(operation)) {
    if (skips(id)) {
      builder.add(std::int64_t{std::ranges::find(outputs, id) - outputs.begin()});
    } else {
      add_seen_from(builder, shift, slots_[id]);
    }
  }
  if (operation.reads_moment) {
    builder.add(std::uint64_t{now.run}).add(std::uint64_t{now.counts});
    builder.add(now.counts ? shift - now.index : now.index);
  }
  return {builder.number(), shift};
}

bool Interpreter::compute(const FlatOperation& operation, const Instant& now) {
  if (!readable(operation, now)) {
    return false;
  }
  const std::optional<Parts> parts = form_of_parts(operation, now);
  if (!parts) {
    return false;
  }
  if (operation.in_place && update(operation, *parts, now)) {
    return true;
  }
  const Term made = term(operation, now, false);
  const std::uint32_t evaluation = record(operation, now);
  const auto outputs = graph_.outputs(operation);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    Value value;
    value.number = NumberBuilder(made.number).add(std::uint64_t{k}).number();
    value.shift = made.shift;
    value.evaluation = evaluation;
    value.form = form_of(outputs[k], parts->form);
    value.group = parts->group;
    put(outputs[k], value, now);
  }
  return true;
}

/// Starts or extends a chain. Returns false if the updated tensor already depends on the micro-batch; the result is
/// then an ordinary value.
bool Interpreter::update(const FlatOperation& operation, const Parts& parts, const Instant& now) {
  const auto outputs = graph_.outputs(operation);
  const Term by = term(operation, now, true);
  const Value* first = nullptr;
  NumberBuilder starts(Number{1, 1});
  bool fixed = true;
  bool goes_on = true;
  for (const std::uint32_t id : graph_.inputs(operation)) {
    const auto place = std::ranges::find(outputs, id) - outputs.begin();
    if (place == std::ssize(outputs)) {
      continue;
    }
    const Value& v = slots_[id];
    first = first == nullptr ? &v : first;
    goes_on = goes_on && v.length > 0 && v.place == static_cast<std::uint32_t>(place) && v.start == first->start &&
              v.length == first->length && v.update == by.number &&
              (v.shift == kFixed ? by.shift == kFixed : v.shift + 1 == by.shift);
    fixed = fixed && v.shift == kFixed;
    starts.add(v.number);
  }
  if (!goes_on && !fixed) {
    return false;
  }
  Value value;
  value.start = goes_on ? first->start : starts.number();
  value.length = goes_on ? first->length + 1 : 1;
  value.update = by.number;
  value.shift = by.shift;
  value.evaluation = record(operation, now);
  digest_.add(std::uint64_t{goes_on});
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    value.place = static_cast<std::uint32_t>(k);
    value.number = chain_number(value);
    value.form = form_of(outputs[k], parts.form);
    value.group = parts.group;
    put(outputs[k], value, now);
  }
  return true;
}

bool Interpreter::reduce(const FlatOperation& operation, const Instant& now) {
  if (!readable(operation, now)) {
    return false;
  }
  const auto inputs = graph_.inputs(operation);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const Value& input = slots_[inputs[k]];
    if (input.form == Form::kPart && operation.effect == Effect::kReduces &&
        operation.source->attributes.text("reduction") == "sum" && input.group == operation.group) {
      Value whole = input;  // Sums are exact, so their order does not matter.
      whole.form = operation.in_background ? Form::kTravelling : Form::kWhole;
      whole.group = 0;
      put(graph_.outputs(operation)[k], whole, now);
      continue;
    }
    if (input.form != Form::kWhole) {
      fault_ = fmt::format("{} reduces '{}', which is a shard or a replica's summand", describe(graph_, operation, now),
                           graph_.name(inputs[k]));
      return false;
    }
    Value value;
    value.form = operation.effect == Effect::kScatters ? Form::kShard
                 : operation.in_background             ? Form::kTravelling
                                                       : Form::kWhole;
    value.group = operation.effect == Effect::kScatters ? operation.group : 0;
    value.number = NumberBuilder(operation.what).add(input.number).number();
    value.shift = input.shift;
    value.evaluation = history_ == nullptr ? 0 : history_->add({&operation, now, {input}, k});
    put(graph_.outputs(operation)[k], value, now);
  }
  return true;
}

bool Interpreter::reshape(const FlatOperation& operation, Form from, Form to, const Instant& now) {
  if (!readable(operation, now)) {
    return false;
  }
  for (std::size_t k = 0; k < operation.input_count; ++k) {
    const std::uint32_t input = graph_.inputs(operation)[k];
    Value value = slots_[input];
    if (value.form != from || (from == Form::kShard && value.group != operation.group)) {
      fault_ = fmt::format("{} reads '{}', which is not a {}", describe(graph_, operation, now), graph_.name(input),
                           from == Form::kShard ? "shard of its group" : "full tensor");
      return false;
    }
    value.form = to;
    value.group = to == Form::kShard ? operation.group : 0;
    put(graph_.outputs(operation)[k], value, now);
  }
  return true;
}

}  // namespace poprun
