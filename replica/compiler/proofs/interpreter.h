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

/// `count` consecutive records that the host read from one stream. They are identical except for their micro-batch
/// indices, which begin at `index`.
struct Sent {
  Number what;
  std::int64_t index = 0;
  std::int64_t count = 1;
  std::vector<Value> values = {};  ///< Values of the first record; kept only with a History.

  friend bool operator==(const Sent& a, const Sent& b) {
    return a.what == b.what && a.index == b.index && a.count == b.count;
  }
};

/// An interpreter that follows a graph's operations as the engine runs them and numbers every value.
///
/// An operation's micro-batch index is the sum of the micro-batch indices of the calls around it. In a graph without
/// calls, such as a job's graph before the pass "pipeline", it is the round of the region.
///
/// Cost: about 50 ns per operation. The interpreter leaves a region as soon as its remaining rounds are known to repeat
/// the latest one. They do so if every tensor and stash entry holds its value from the round before, shifted by one
/// micro-batch, and if both rounds computed the same values, relative to their own micro-batches. A result depends only
/// on how many micro-batches its operands lag behind, so by induction all further rounds are shifts of this one.
class Interpreter {
 public:
  /// If `history` is given, the interpreter records every evaluation in it and skips no round.
  explicit Interpreter(const FlatGraph& graph, History* history = nullptr);

  /// Runs a function as the host does. If `counts` is true, numbers values relative to their micro-batches. Errors:
  /// kBug if an operation reads a tensor that nothing has written.
  Status run(std::uint32_t function, bool counts);

  [[nodiscard]] const Value& value(TensorId id) const { return slots_[index_of(id)]; }

  /// Returns a variable's value between two functions. At that time, the value may reside in a different tensor.
  [[nodiscard]] Value resident(TensorId id) const;

  /// Slots that the last function read before it wrote them, with the values that it found.
  using Carried = std::vector<std::pair<std::uint32_t, Value>>;
  [[nodiscard]] const Carried& carried() const { return carried_; }

  /// Values that the host read while the last function ran, keyed by stream.
  using Streams = std::map<std::string, std::vector<Sent>, std::less<>>;
  [[nodiscard]] const Streams& sent() const { return sent_; }

 private:
  struct Round {
    std::vector<Value> begin;  ///< The slots before the round.
    Number digest;             ///< Digest of the values computed in the round, relative to its micro-batch.
    bool sends_twice = false;  ///< Whether the round sent more than one record to one stream.
  };

  /// The result of an operation: its number, relative to micro-batch `shift`.
  struct Term {
    Number number;
    std::int64_t shift = kFixed;
  };

  bool run_region(const FlatRegion& region);
  bool run_round(const FlatRegion& region, const Instant& now);
  bool step(const FlatOperation& operation, const Instant& now);
  bool compute(const FlatOperation& operation, const Instant& now);
  struct Parts {
    Form form = Form::kWhole;
    std::uint32_t group = 0;
  };
  bool update(const FlatOperation& operation, const Parts& parts, const Instant& now);
  bool reshape(const FlatOperation& operation, Form from, Form to, const Instant& now);
  [[nodiscard]] std::string wrong_shards(const FlatOperation& operation, std::uint32_t group) const;
  std::optional<Parts> form_of_parts(const FlatOperation& operation, const Instant& now);
  /// Returns the form of a result, which is `part` unless the result is a shard.
  [[nodiscard]] Form form_of(std::uint32_t tensor, Form part) const {
    return graph_.graph->tensors()[tensor].shard_of ? Form::kShard : part;
  }
  bool reduce(const FlatOperation& operation, const Instant& now);
  bool await(const FlatOperation& operation, const Instant& now);
  bool leaves_travelling_alone(const FlatOperation& operation, const Instant& now);
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

  /// Skips `rounds` rounds and returns true if every slot holds its value from before the last round, advanced (see
  /// Advance).
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
  std::vector<std::uint32_t> stash_slots_;  ///< The stash of each entry, indexed by slot minus the number of tensors.
  struct StashUse {
    bool used = false;
    bool written = false;
    bool several = false;     ///< Whether the round uses more than one entry.
    bool goes_on = false;     ///< Whether later rounds use the following entries, up to the last one.
    std::uint32_t entry = 0;  ///< The last entry used.
  };
  std::vector<StashUse> used_;  ///< How this round uses each stash.
  std::vector<char> named_;     ///< Whether this function has read or written each slot.
  Carried carried_;
  NumberBuilder digest_;
  Streams sent_;
  std::map<std::string, int, std::less<>> sent_in_round_;
  std::string fault_;
};

}  // namespace poprun
