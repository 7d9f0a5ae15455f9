#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/proofs/flat_graph.h"
#include "replica/compiler/proofs/value.h"

namespace poprun {

class History;

/// Records that the host read from one stream: `count` in a row, with micro-batch indices from `index` on, that are the
/// same except for the micro-batch.
struct Sent {
  Number what;
  std::int64_t index = 0;
  std::int64_t count = 1;
  std::vector<Value> values = {};  ///< Of the first; kept only with a History.

  friend bool operator==(const Sent& a, const Sent& b) {
    return a.what == b.what && a.index == b.index && a.count == b.count;
  }
};

/// Follows a graph's operations as the engine runs them and numbers every value.
///
/// An operation's micro-batch index is that of the call, with those of the calls that it is within. In a graph without
/// calls, as jobs are before the pass "pipeline", it is the round of the region.
///
/// Cost: about 50 ns an operation. A region stops as soon as its rounds are known to go on as they do: when every
/// tensor and every entry of a stash holds what it held a round before, one micro-batch further, and both rounds made
/// the same values, seen from their own micro-batch. What an operation makes is a function of how far its operands are
/// behind it, so by induction all rounds to come are shifts of this one, too.
class Interpreter {
 public:
  /// `history`, if any, is told every evaluation; then no round is passed over.
  explicit Interpreter(const FlatGraph& graph, History* history = nullptr);

  /// Runs a function as the host does. With `counts`, values of its micro-batches are numbered relative to them.
  /// Errors: kBug, an operation reads what nothing has written.
  Status run(std::uint32_t function, bool counts);

  [[nodiscard]] const Value& value(TensorId id) const { return slots_[index_of(id)]; }

  /// The value of a variable between two functions, in which it may reside in another tensor.
  [[nodiscard]] Value resident(TensorId id) const;

  /// Slots that the last function read and an earlier one wrote, as they were.
  using Carried = std::vector<std::pair<std::uint32_t, Value>>;
  [[nodiscard]] const Carried& carried() const { return carried_; }

  /// Values that the host read while the last function ran, by stream.
  using Streams = std::map<std::string, std::vector<Sent>, std::less<>>;
  [[nodiscard]] const Streams& sent() const { return sent_; }

 private:
  /// Digest of a round, to compare it with the next.
  struct Round {
    std::vector<Value> begin;  ///< The slots before it.
    Number digest;             ///< Of what was made in it, seen from it.
    bool sends_twice = false;  ///< More than one record to one stream.
  };

  /// The result of an operation: a number as seen from `shift`.
  struct Term {
    Number number;
    std::int64_t shift = kFixed;
  };

  bool run_region(const FlatRegion& region);
  bool run_round(const FlatRegion& region, const Instant& now);
  bool step(const FlatOperation& operation, const Instant& now);
  bool compute(const FlatOperation& operation, const Instant& now);
  /// Form of results that are not shards, and the group whose shards were read.
  struct Parts {
    Form form = Form::kWhole;
    std::uint32_t group = 0;
  };
  bool update(const FlatOperation& operation, const Parts& parts, const Instant& now);
  bool reshape(const FlatOperation& operation, Form from, Form to, const Instant& now);
  [[nodiscard]] std::string wrong_shards(const FlatOperation& operation, std::uint32_t group) const;
  std::optional<Parts> form_of_parts(const FlatOperation& operation, const Instant& now);
  /// Form of a result: `part` if it is not a shard.
  [[nodiscard]] Form form_of(std::uint32_t tensor, Form part) const {
    return graph_.graph->tensors()[tensor].shard_of ? Form::kShard : part;
  }
  bool reduce(const FlatOperation& operation, const Instant& now);
  bool move(const FlatOperation& operation, const Instant& now);
  bool move_entries(const FlatOperation& operation, const Instant& now);
  bool move_entry(const FlatOperation& operation, const Instant& now);
  bool stream_in(const FlatOperation& operation, const Instant& now);
  bool stream_out(const FlatOperation& operation, const Instant& now);

  [[nodiscard]] Term term(const FlatOperation& operation, const Instant& now, bool without_updated) const;
  bool readable(const FlatOperation& operation, const Instant& now);
  void note_read(std::uint32_t slot);
  void put(std::uint32_t slot, const Value& value, const Instant& now);
  std::uint32_t record(const FlatOperation& operation, const Instant& now);

  /// Whether every slot holds what it held before the last round, further on; then lets `rounds` more like it pass.
  bool pass_over(const std::vector<Value>& before, std::int64_t rounds);
  [[nodiscard]] bool goes_on(std::uint32_t stash, std::int64_t rounds) const;
  void go_on(std::uint32_t stash, std::int64_t rounds);
  [[nodiscard]] std::uint32_t slot_before(std::uint32_t slot) const;
  void settle();

  const FlatGraph& graph_;
  History* history_;
  bool counts_ = false;
  std::uint32_t runs_ = 0;
  std::vector<Value> slots_;
  std::vector<std::uint32_t> stash_slots_;  ///< By entry's slot, less the tensors: its stash.
  /// A round's use of a stash.
  struct StashUse {
    bool used = false;
    bool written = false;
    bool several = false;     ///< Names more than one entry.
    bool goes_on = false;     ///< Later rounds name the entries after this one, up to the last.
    std::uint32_t entry = 0;  ///< That it names.
  };
  std::vector<StashUse> used_;  ///< By stash: in this round.
  std::vector<char> named_;     ///< By slot: in this function.
  Carried carried_;
  NumberBuilder digest_;
  Streams sent_;
  std::map<std::string, int, std::less<>> sent_in_round_;
  std::string fault_;
};

}  // namespace poprun
