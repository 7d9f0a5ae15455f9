/// The part of the interpreter that skips rounds of a repeat if they only repeat the previous round.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "replica/compiler/proofs/history.h"
#include "replica/compiler/proofs/interpreter.h"

namespace poprun {

std::uint32_t Interpreter::slot_before(std::uint32_t slot) const {
  const std::size_t tensors = graph_.stash_of.size();
  if (slot < tensors || !used_[stash_slots_[slot - tensors]].used || used_[stash_slots_[slot - tensors]].goes_on) {
    return slot;
  }
  const FlatStash& stash = graph_.stashes[stash_slots_[slot - tensors]];
  return slot == stash.begin ? slot + stash.length - 1 : slot - 1;
}

/// Returns whether this round and the `rounds` rounds after it each use one entry of a stash, in order, as the
/// micro-batches of a phase do, and whether the entries that later rounds read hold this round's value, advanced.
bool Interpreter::goes_on(std::uint32_t stash, std::int64_t rounds) const {
  const StashUse& use = used_[stash];
  const FlatStash& entries = graph_.stashes[stash];
  if (!use.used || use.several || use.entry == 0 || use.entry + rounds >= std::int64_t{entries.length}) {
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

/// Updates a stash as the next `rounds` rounds would. Requires: `goes_on` returned true.
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
    // Micro-batch i + 1 does with the next entry what micro-batch i does with this one.
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
      to = stash.begin + static_cast<std::uint32_t>((s - stash.begin + rounds) % std::int64_t{stash.length});
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

/// Makes all values independent of micro-batches, because the next function counts micro-batches from the start.
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
