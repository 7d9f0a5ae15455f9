#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "replica/base/units.h"
#include "replica/program/program.h"

namespace poprun {

/// The times at which the I/O tiles of one IPU transfer data to and from the host and Streaming Memory while its other
/// tiles work. The I/O tiles make one transfer at a time, and have one buffer for incoming and one for outgoing data.
///
///   tiles    | compute 1     | take 2 | compute 2 | give 2 | compute 3 | take 3 | compute ..
///   I/O lane | in 2 |                 | in 3 |             | out 2 |
///
/// An incoming transfer begins when its buffer is empty, at most one transfer ahead. The tiles take the data when they
/// need it. An outgoing transfer begins when the tiles have delivered its data. Transfers begin in program order, with
/// one exception: an incoming transfer precedes the outgoing ones whose data the tiles have delivered since its buffer
/// was emptied, if it ends before the first of them begins and loads nothing that they store.
class IoLane {
 public:
  /// An entry of a remote buffer; all entries of a stash count as one.
  using Entries = std::set<std::pair<std::uint32_t, std::int64_t>>;

  /// Returns the time at which an incoming transfer of `length` > 0 begins, which may be in the past. Requires: the
  /// tiles have taken the data of the last incoming transfer.
  [[nodiscard]] Cycles begin_of_in(Cycles length, const Entries& loads) const;

  /// Records that the tiles have taken the incoming data.
  void take(Cycles now);

  /// Returns the time at which the outgoing buffer becomes empty, which is the end of the last outgoing transfer.
  [[nodiscard]] Cycles out_end() const { return out_end_; }

  /// Records that the tiles have delivered data for an outgoing transfer of `length` > 0. Requires: now >= out_end().
  void give(Cycles now, Cycles length, const Entries& stores);

  /// Returns whether each time has either stayed the same since `before` or increased by `advance`. If so, every
  /// further identical round has the same effect.
  [[nodiscard]] bool moved_by(const IoLane& before, Cycles advance) const;

  /// Adds `by` to the times that changed since `before`.
  void move(const IoLane& before, Cycles by);

 private:
  Cycles in_ready_;                  ///< Earliest time of the next incoming transfer.
  std::optional<Cycles> first_out_;  ///< Beginning of the first outgoing transfer since data was taken.
  Entries stored_;                   ///< The entries stored since data was taken.
  Cycles out_end_;
};

/// Bytes that the host streams carry in one call of a function, including all functions that it calls. `walk` reports
/// the times of these transfers, as Doing::kHost.
struct HostTraffic {
  Bytes to_device;
  Bytes from_device;
};

/// Returns the traffic of one call of `function`. Cost: linear in the steps; a called function's count once per call.
HostTraffic host_traffic(const Program& program, const proto::Function& function);

}  // namespace poprun
