/// The interpreter's steps that compute nothing: copies, stashes and host streams.
#include <utility>

#include <fmt/format.h>

#include "replica/compiler/proofs/history.h"
#include "replica/compiler/proofs/interpreter.h"
#include "replica/machine/operations.h"

namespace poprun {

/// Moves the tensors one after another, just as the engine does.
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
      return entry == Copy::kWhole || entry + now.entry < std::int64_t{graph_.stashes[graph_.stash_of[tensor]].length};
    };
    if (!names(from, from_entry) || !names(to, to_entry)) {
      fault_ = fmt::format("{} accesses an entry that does not exist", describe(graph_, operation, now));
      return false;
    }
    if (!slots_[slot(from, from_entry)].exists()) {
      fault_ =
          fmt::format("{} reads {}'{}', which nothing has written", describe(graph_, operation, now),
                      from_entry == Copy::kWhole ? std::string{} : fmt::format("entry {} of ", from_entry + now.entry),
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
                      : fmt::format("{} reads '{}', which nothing has written", describe(graph_, operation, now),
                                    graph_.name(input));
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
          fmt::format("{} sends '{}', which is not a full tensor", describe(graph_, operation, now), graph_.name(id));
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

}  // namespace poprun
