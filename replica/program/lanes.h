#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "replica/base/units.h"
#include "replica/program/program.h"

namespace poprun {

/// When the I/O tiles of one IPU transfer to and from the host and Streaming Memory, while its other tiles do something
/// else. They do one transfer at a time, and have a buffer for what comes in and one for what goes out.
///
///   tiles    | compute 1     | take 2 | compute 2 | give 2 | compute 3 | take 3 | compute ..
///   I/O lane | in 2 |                 | in 3 |             | out 2 |
///
/// An incoming transfer begins as soon as its buffer has been emptied, at most one transfer ahead, and the tiles take
/// it from there when they need it. What goes out begins when the tiles have given it. Transfers begin in the order of
/// the program, except for what comes in: it goes before those out that the tiles gave since the buffer was emptied, if
/// it ends before the first of them begins and loads nothing that they store.
class IoLane {
 public:
  /// An entry of a remote buffer; all entries of a stash count as one.
  using Entries = std::set<std::pair<std::uint32_t, std::int64_t>>;

  /// When a transfer in of `length` > 0 begins, which may have been before. Requires: what came in before was taken.
  [[nodiscard]] Cycles begin_of_in(Cycles length, const Entries& loads) const;

  /// The tiles have taken what came in.
  void take(Cycles now);

  /// When the buffer of what goes out is empty, which is when the last transfer out has ended.
  [[nodiscard]] Cycles out_end() const { return out_end_; }

  /// The tiles have given something for a transfer out of `length` > 0. Requires: now >= out_end().
  void give(Cycles now, Cycles length, const Entries& stores);

  /// Whether every time of the lane that changed since `before` is later by `advance`. Then equal rounds from here on
  /// move it by that each.
  [[nodiscard]] bool moved_by(const IoLane& before, Cycles advance) const;

  /// Moves the times that changed since `before` on.
  void move(const IoLane& before, Cycles by);

 private:
  Cycles in_ready_;                  ///< What comes in next can begin.
  std::optional<Cycles> first_out_;  ///< Began since something was taken, and
  Entries stored_;                   ///< what was stored since then.
  Cycles out_end_;
};

/// Bytes that the host streams carry in one call of a function, with everything that it calls. When they pass is the
/// walk's to say, as Doing::kHost.
struct HostTraffic {
  Bytes to_device;
  Bytes from_device;
};

/// Cost: linear in the steps, called functions once for each call.
HostTraffic host_traffic(const Program& program, const proto::Function& function);

}  // namespace poprun
