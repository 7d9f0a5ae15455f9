#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "replica/base/units.h"
#include "replica/program/program.h"

/// The times at which a Program's steps run on the device. They are counted in cycles and never depend on a host clock,
/// so they are deterministic.
///
///   IPU 0  tiles  | sync exchange compute | copy | begin |  compute ..   | await |
///          links                                         | all-reduce ..         |
///   IPU 1  tiles  | compute | idle        | copy | compute ..
///
///   with    tiles  | compute                  | wait | exchange | compute ..
///   I/O tiles  I/O       | host or Streaming Memory ..  |
///
/// Each IPU has its own clock. A step runs on the IPUs that hold its tensors. Its parts follow one another on the tiles
/// of these IPUs, in the order of the IPU's bulk-synchronous model. A step on several IPUs, such as a copy from one to
/// another, begins when the last of them is ready. Only two things overlap with steps: exchanges begun in the
/// background, on the links, and transfers by I/O tiles, on a separate lane (lanes.h). Rounds of a repeat that call
/// parts of several IPUs for one micro-batch only, as in schedule `sequential`, do not overlap: each begins when the
/// last IPU has finished the previous one. Rounds of a phase run on one IPU, while the other IPUs work in parallel.
namespace poprun {

/// The part of an IPU that is busy during a stretch: its tiles except I/O tiles, its links, or its I/O tiles.
enum class Lane : std::uint8_t { kTiles, kLinks, kIo };

enum class Doing : std::uint8_t { kSync, kExchange, kCompute, kLink, kHost, kStreaming };

/// One bar (slice) of the timeline, or several at equal distances, for rounds of a repeat that take the same time.
struct Stretch {
  const proto::Function& function;  ///< The function that contains the step: the walked one or a callee.
  const proto::Step& step;
  std::uint32_t ipu = 0;
  Lane lane = Lane::kTiles;
  Doing doing = Doing::kCompute;
  Cycles begin;                   ///< Since the walked function was called.
  Cycles length;                  ///< > 0.
  std::uint64_t micro_batch = 0;  ///< Round of the repeat, plus the index of the call.
  std::uint64_t count = 1;        ///< Number of bars. Each bar's micro-batch is one above the previous one's.
  Cycles distance;                ///< From the beginning of a bar to that of the next.
};

/// How long a replica's own work takes, in thousandths of what the device clock computes. Own work is everything except
/// exchanges with other replicas, whose length does not depend on the pace.
using Pace = std::uint32_t;
constexpr Pace kUsualPace = 1000;

using StretchVisitor = std::function<void(const Stretch&)>;

/// The device time of one call of a function.
struct CallTime {
  Cycles length;                  ///< Until the last IPU, including its I/O tiles, has finished.
  std::vector<proto::Cost> busy;  ///< For each IPU: all its work, without waiting for other IPUs.

  [[nodiscard]] Cycles busy_cycles(std::size_t ipu) const;
  [[nodiscard]] Cycles idle_cycles(std::size_t ipu) const;

  /// Returns the busy fraction of all IPUs' cycles, from 0 to 1.
  [[nodiscard]] double utilisation() const;
};

/// Walks one call of a function of the Program, with everything that it calls, and passes each stretch to `visit` in
/// the order of the steps. The work of the tiles is counted by activity. Waiting for links counts as link cycles, and
/// work of the links in parallel with the tiles as background cycles. In the same way, waiting for I/O tiles counts as
/// host or streaming cycles, and their work as I/O cycles. Cost: one visit per step and round, until a round advances
/// all its IPUs by the same time. All later rounds are identical and together cost one visit per step. With a `pace`,
/// each activity of a step of own work takes that much longer, rounded up to whole cycles.
CallTime walk(const Program& program, const proto::Function& function, const StretchVisitor& visit = nullptr,
              Pace pace = kUsualPace);

/// Returns whether a step exchanges data with other replicas.
bool is_between_replicas(const proto::Step& step);

/// Returns the IPUs on which a step runs, which are those of its tensors, in ascending order.
std::vector<std::uint32_t> ipus_of(const Program& program, const proto::Step& step);

/// Adds cost * times to total, field by field.
void add_cost(proto::Cost& total, const proto::Cost& cost, std::uint64_t times = 1);

/// Returns the tile cycles of a cost.
Cycles total_cycles(const proto::Cost& cost);

double device_seconds(const Program& program, Cycles cycles);

}  // namespace poprun
