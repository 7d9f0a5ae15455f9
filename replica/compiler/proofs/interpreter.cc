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
    round.sends_twice =
        std::ranges::any_of(sent_in_round_, [](const auto& entry) { return entry.second > 1; });
    if (last && last->digest == round.digest && !round.sends_twice &&
        pass_over(round.begin, region.repeat - r - 1)) {
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
  switch (operation.effect) {
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

bool Interpreter::readable(const FlatOperation& operation, const Instant& now) {
  for (const std::uint32_t id : graph_.inputs(operation)) {
    if (!slots_[id].exists()) {
      fault_ = fmt::format("{} reads '{}', which nothing has written",
                           describe(graph_, operation, now), graph_.name(id));
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

/// Says what is wrong with the operands of an operation that reads shards; empty if nothing is.
/// All operands that it cuts must be shards of tensors of one shape, in one group of replicas.
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
                         is_cut ? "all of it, besides shards" : "a shard, on which it cannot work");
    }
    if (is_cut && value.group != group) {
      return "reads shards of several groups";
    }
    if (is_cut && !fits(inputs[i])) {
      return fmt::format("reads '{}', a shard of another shape", graph_.name(inputs[i]));
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

/// The form of the results that an operation does not cut; nothing if it cannot read its inputs.
std::optional<Interpreter::Parts> Interpreter::form_of_parts(const FlatOperation& operation,
                                                             const Instant& now) {
  Parts parts;
  std::string wrong;
  for (const std::uint32_t id : graph_.inputs(operation)) {
    if (slots_[id].form == Form::kPart) {
      wrong = fmt::format("reads '{}', which is not added up over the shards", graph_.name(id));
    } else if (slots_[id].form == Form::kShard) {
      parts = {Form::kPart, slots_[id].group};
    }
  }
  if (wrong.empty() && parts.form == Form::kPart) {
    wrong = wrong_shards(operation, parts.group);
  }
  for (const std::uint32_t id : graph_.outputs(operation)) {
    if (wrong.empty() && parts.form == Form::kWhole && graph_.graph->tensors()[id].shard_of) {
      wrong = fmt::format("makes the shard '{}', but reads none", graph_.name(id));
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

Interpreter::Term Interpreter::term(const FlatOperation& operation, const Instant& now,
                                    bool without_updated) const {
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

/// Makes or goes on with a chain. False: what is updated depends on the micro-batch already, so the
/// result is a value like others.
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
    goes_on = goes_on && v.length > 0 && v.place == static_cast<std::uint32_t>(place) &&
              v.start == first->start && v.length == first->length && v.update == by.number &&
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
      Value whole = input;  // Exact sums, so the order does not matter.
      whole.form = Form::kWhole;
      whole.group = 0;
      put(graph_.outputs(operation)[k], whole, now);
      continue;
    }
    if (input.form != Form::kWhole) {
      fault_ = fmt::format("{} reduces '{}', a shard, or over other replicas than have it",
                           describe(graph_, operation, now), graph_.name(inputs[k]));
      return false;
    }
    Value value;
    value.form = operation.effect == Effect::kScatters ? Form::kShard : Form::kWhole;
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
      fault_ = fmt::format("{} reads '{}', which is {} shard", describe(graph_, operation, now),
                           graph_.name(input), from == Form::kShard ? "no such" : "a");
      return false;
    }
    value.form = to;
    value.group = to == Form::kShard ? operation.group : 0;
    put(graph_.outputs(operation)[k], value, now);
  }
  return true;
}

/// One after the other, as the engine copies them.
bool Interpreter::move(const FlatOperation& operation, const Instant& now) {
  if (operation.entries > 0) {
    return move_entries(operation, now);
  }
  if (!readable(operation, now)) {
    return false;
  }
  const auto outputs = graph_.outputs(operation);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    put(outputs[k], Value{slots_[graph_.inputs(operation)[k]]}, now);
  }
  return true;
}

bool Interpreter::move_entries(const FlatOperation& operation, const Instant& now) {
  const auto slot = [&](std::uint32_t tensor, std::int64_t entry) {
    if (entry == Copy::kWhole) {
      return tensor;
    }
    const FlatStash& stash = graph_.stashes[graph_.stash_of[tensor]];
    return stash.begin + static_cast<std::uint32_t>(entry + now.entry);
  };
  const std::int64_t* entries = &graph_.entries[operation.entries];
  for (std::size_t k = 0; k < operation.input_count; ++k) {
    const std::uint32_t from = graph_.inputs(operation)[k];
    const std::uint32_t to = graph_.outputs(operation)[k];
    const std::int64_t from_entry = entries[k];
    const std::int64_t to_entry = entries[operation.input_count + k];
    const auto names = [&](std::uint32_t tensor, std::int64_t entry) {
      return entry == Copy::kWhole ||
             entry + now.entry < std::int64_t{graph_.stashes[graph_.stash_of[tensor]].length};
    };
    if (!names(from, from_entry) || !names(to, to_entry)) {
      fault_ =
          fmt::format("{} names an entry that does not exist", describe(graph_, operation, now));
      return false;
    }
    if (!slots_[slot(from, from_entry)].exists()) {
      fault_ = fmt::format(
          "{} reads {}'{}', which nothing has written", describe(graph_, operation, now),
          from_entry == Copy::kWhole ? std::string{}
                                     : fmt::format("entry {} of ", from_entry + now.entry),
          graph_.name(from));
      return false;
    }
    note_read(slot(from, from_entry));
    put(slot(to, to_entry), Value{slots_[slot(from, from_entry)]}, now);
  }
  return true;
}

bool Interpreter::move_entry(const FlatOperation& operation, const Instant& now) {
  const bool restores = operation.effect == Effect::kRestores;
  const std::uint32_t input = graph_.inputs(operation)[0];
  const std::uint32_t output = graph_.outputs(operation)[0];
  const std::uint32_t number = graph_.stash_of[restores ? input : output];
  const FlatStash& stash = graph_.stashes[number];
  const std::int64_t index = now.index % stash.length;
  const std::uint32_t entry = stash.begin + static_cast<std::uint32_t>(index);
  StashUse& use = used_[number];
  use.several = use.several || (use.used && use.entry != entry - stash.begin);
  use.used = true;
  use.written = use.written || !restores;
  use.entry = entry - stash.begin;
  const std::uint32_t from = restores ? entry : input;
  if (!slots_[from].exists()) {
    fault_ = restores ? fmt::format("{} reads entry {} of '{}', which nothing has written",
                                    describe(graph_, operation, now), index, graph_.name(input))
                      : fmt::format("{} reads '{}', which nothing has written",
                                    describe(graph_, operation, now), graph_.name(input));
    return false;
  }
  note_read(from);
  put(restores ? output : entry, Value{slots_[from]}, now);
  return true;
}

bool Interpreter::stream_in(const FlatOperation& operation, const Instant& now) {
  const std::uint32_t evaluation = record(operation, now);
  const auto outputs = graph_.outputs(operation);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    NumberBuilder builder(graph_.parts[operation.parts + k]);
    builder.add(std::uint64_t{now.run}).add(now.counts ? kFixed : now.index);
    Value value;
    value.number = builder.number();
    value.shift = now.counts ? now.index : kFixed;
    value.evaluation = evaluation;
    put(outputs[k], value, now);
  }
  return true;
}

bool Interpreter::stream_out(const FlatOperation& operation, const Instant& now) {
  if (!readable(operation, now)) {
    return false;
  }
  NumberBuilder builder(operation.what);
  Sent sent;
  for (const std::uint32_t id : graph_.inputs(operation)) {
    if (slots_[id].form != Form::kWhole) {
      fault_ =
          fmt::format("{} reads '{}', a shard", describe(graph_, operation, now), graph_.name(id));
      return false;
    }
    add_seen_from(builder, now.counts ? now.index : 0, slots_[id]);
    if (history_ != nullptr) {
      sent.values.push_back(slots_[id]);
    }
  }
  sent.what = builder.number();
  sent.index = now.index;
  digest_.add(sent.what).add(now.round - now.index);
  const std::string& stream = operation.source->attributes.text("stream");
  ++sent_in_round_[stream];
  std::vector<Sent>& list = sent_[stream];
  if (history_ == nullptr && !list.empty() && list.back().what == sent.what &&
      list.back().index + list.back().count == sent.index) {
    ++list.back().count;
  } else {
    list.push_back(std::move(sent));
  }
  return true;
}

std::uint32_t Interpreter::slot_before(std::uint32_t slot) const {
  const std::size_t tensors = graph_.stash_of.size();
  if (slot < tensors || !used_[stash_slots_[slot - tensors]].used ||
      used_[stash_slots_[slot - tensors]].goes_on) {
    return slot;
  }
  const FlatStash& stash = graph_.stashes[stash_slots_[slot - tensors]];
  return slot == stash.begin ? slot + stash.length - 1 : slot - 1;
}

/// Whether this round and the `rounds` after it name one entry each, one after the other, as the
/// micro-batches of a phase do. Then the entries that they write are written, and those that they
/// read hold what the next micro-batches have.
bool Interpreter::goes_on(std::uint32_t stash, std::int64_t rounds) const {
  const StashUse& use = used_[stash];
  const FlatStash& entries = graph_.stashes[stash];
  if (!use.used || use.several || use.entry == 0 ||
      use.entry + rounds >= std::int64_t{entries.length}) {
    return false;
  }
  const std::uint32_t now = entries.begin + use.entry;
  const Value value = slots_[now];
  const auto advance = advance_of(slots_[now - 1], value);
  if (!advance || advance->shift < 0 || advance->shift > 1 || advance->length < 0) {
    return false;
  }
  for (std::uint32_t ahead = 1; !use.written && ahead <= rounds; ++ahead) {
    const Value& next = slots_[now + ahead];
    if (!next.exists() || !next.equals(advanced(value, *advance, ahead))) {
      return false;
    }
  }
  return true;
}

/// What the next `rounds` do with it. Requires: `goes_on`.
void Interpreter::go_on(std::uint32_t stash, std::int64_t rounds) {
  const std::uint32_t now = graph_.stashes[stash].begin + used_[stash].entry;
  const Value value = slots_[now];
  const Advance advance = *advance_of(slots_[now - 1], value);
  for (std::uint32_t ahead = 1; ahead <= rounds; ++ahead) {
    if (used_[stash].written) {
      slots_[now + ahead] = advanced(value, advance, ahead);
      named_[now + ahead] = 1;
    } else {
      note_read(now + ahead);
    }
  }
}

bool Interpreter::pass_over(const std::vector<Value>& before, std::int64_t rounds) {
  std::vector<Advance> advances(slots_.size());
  for (std::uint32_t k = 0; k < used_.size(); ++k) {
    used_[k].goes_on = goes_on(k, rounds);
  }
  for (std::uint32_t s = 0; s < slots_.size(); ++s) {
    if (s >= graph_.stash_of.size() && used_[stash_slots_[s - graph_.stash_of.size()]].goes_on) {
      continue;
    }
    // What micro-batch i does with an entry, micro-batch i + 1 does with the next.
    const auto advance = advance_of(before[slot_before(s)], slots_[s]);
    if (!advance || advance->shift < 0 || advance->shift > 1 || advance->length < 0) {
      return false;
    }
    advances[s] = *advance;
  }
  std::vector<Value> after(slots_.size());
  for (std::uint32_t s = 0; s < slots_.size(); ++s) {
    std::uint32_t to = s;
    if (slot_before(s) != s) {
      const FlatStash& stash = graph_.stashes[stash_slots_[s - graph_.stash_of.size()]];
      to = stash.begin +
           static_cast<std::uint32_t>((s - stash.begin + rounds) % std::int64_t{stash.length});
    }
    after[to] = advanced(slots_[s], advances[s], rounds);
  }
  slots_ = std::move(after);
  for (std::uint32_t k = 0; k < used_.size(); ++k) {
    if (used_[k].goes_on) {
      go_on(k, rounds);
    }
  }
  for (const auto& [stream, count] : sent_in_round_) {
    sent_[stream].back().count += rounds;
  }
  return true;
}

/// Between two functions all values are fixed: another function counts its own micro-batches.
void Interpreter::settle() {
  for (std::uint32_t s = 0; s < slots_.size(); ++s) {
    Value& v = slots_[s];
    if (v.shift != kFixed) {
      v.number = NumberBuilder(v.number).add(v.shift).number();
      v.shift = kFixed;
      if (history_ != nullptr && s < graph_.stash_of.size()) {
        history_->hold(s, v);
      }
    }
    v.length = 0;
  }
}

}  // namespace poprun
