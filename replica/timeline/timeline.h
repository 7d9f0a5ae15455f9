#pragma once

#include <cstdint>
#include <functional>

#include "replica/base/units.h"
#include "replica/program/program.h"

/// When a Program's steps run on the device. Deterministic: cycles, never a host clock.
///
///   tiles  | sync exchange compute | sync .. | begin |  compute ..   | wait |
///   links  |                                         | all-reduce ..        |
///
/// A step's parts follow one another on the tiles, in the order of the IPU's bulk-synchronous
/// model; only exchanges begun in the background run beside them, on the links.
namespace poprun {

/// Which part of the device is busy during a stretch.
enum class Lane : std::uint8_t { kTiles, kLinks };

/// What that part does.
enum class Doing : std::uint8_t { kSync, kExchange, kCompute, kLink, kHost };

/// One bar of the timeline.
struct Stretch {
  const proto::Step& step;
  Lane lane = Lane::kTiles;
  Doing doing = Doing::kCompute;
  Cycles begin;                   ///< Since the function was called.
  Cycles length;                  ///< > 0.
  std::uint32_t micro_batch = 0;  ///< Round of the repeat that contains the step.
};

using StretchVisitor = std::function<void(const Stretch&)>;

/// Walks one call of a function, passes each stretch to `visit` in step order, and returns the
/// totals: tile cycles by activity, the tiles' waiting for links as link cycles, and work of the
/// links beside the tiles as background cycles.
///
/// Cost: one visit per step and round.
proto::Cost walk(const proto::Function& function, const StretchVisitor& visit = nullptr);

/// total += cost, field by field.
void add_cost(proto::Cost& total, const proto::Cost& cost);

/// The tile cycles of a cost.
Cycles total_cycles(const proto::Cost& cost);

/// `total_cycles` as seconds on the Program's device.
double device_seconds(const Program& program, const proto::Cost& cost);

}  // namespace poprun
