#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/units.h"
#include "replica/program/program.h"

/// The contents of an IPU's tiles over time. Everything here reads the `layout` of an IpuMemory. A claim (an allocation
/// with its live range) is always live if it lives at all steps, from 0 to the last step of any claim. Bytes that a
/// plan leaves unused between claims (a tile's peak minus its live bytes) belong to no claim. Bytes lost to placement
/// constraints are a claim of category "gaps".
namespace poprun {

/// Converts a byte count of a protobuf message to Bytes.
inline Bytes to_bytes(std::uint64_t count) {
  return Bytes{static_cast<std::int64_t>(count)};
}

/// The bytes of a claim on a tile, or on all tiles of an IPU.
struct HeldBytes {
  int claim = 0;              ///< Index into the layout's claims.
  std::string_view category;  ///< Lives as long as the IpuMemory.
  bool always_live = false;
  Bytes bytes;  ///< > 0.
};

/// Returns a tile's claims at a step, largest first, then in the order of claims. Requires: the layout has the tile.
std::vector<HeldBytes> held_on_tile(const proto::IpuMemory& memory, std::uint32_t tile, std::uint32_t step);

/// Returns the claims on all tiles of an IPU together, in the order of held_on_tile.
std::vector<HeldBytes> held_on_ipu(const proto::IpuMemory& memory, std::uint32_t step);

/// Live bytes at each step from 0 to the last step of any claim.
struct LivenessCurve {
  Bytes always;
  std::vector<Bytes> not_always;  ///< For each step.

  /// Returns the first step with the most live bytes; 0 if there are no steps.
  [[nodiscard]] std::uint32_t worst_step() const;
  /// Returns the live bytes at the worst step; no plan has a lower peak.
  [[nodiscard]] Bytes most() const;
};

/// Returns the curve of a tile. Requires: the layout has the tile. Cost: linear in claims, spans and steps.
LivenessCurve liveness_of_tile(const proto::IpuMemory& memory, std::uint32_t tile);

/// Returns the curve of all tiles of an IPU together.
LivenessCurve liveness_of_ipu(const proto::IpuMemory& memory);

/// Returns the steps at which the highest peaks of a curve begin, at most `most` of them, the highest first.
std::vector<std::uint32_t> highest_peaks(const std::vector<Bytes>& curve, std::size_t most);

/// Returns the class of a tile. Requires: the layout has the tile.
const proto::TileClass& class_of_tile(const proto::IpuMemory& memory, std::uint32_t tile);

/// Returns the tensor that names a claim: the (first) largest one that shares bytes with it, or null if there is none.
const proto::Tensor* main_tensor(const Program& program, const proto::TileClaim& claim);

/// Returns the purpose of a claim. For category "tensors", this is the kind of the main tensor or of its original, such
/// as "weights"; for any other category, it is the category itself. The result lives as long as the Program.
std::string_view kind_of(const Program& program, const proto::TileClaim& claim);

/// Returns the kinds of tensors, in the order of reports.
const std::vector<std::string>& kinds_of_tensors();

/// A step, with the function that contains it; the step may be inside a repeat.
struct PlacedStep {
  const proto::Function* function = nullptr;
  const proto::Step* step = nullptr;
};

/// Returns the step with the given number, or nothing if the Program has no such step. Cost: linear in the steps.
std::optional<PlacedStep> find_step(const Program& program, std::uint32_t number);

/// Describes a step: "conv2d 'conv1'", "all_reduce of 8 tensors", "stream_in 'train'", "Call(target: forward.0)" or
/// "Repeat(count: 4)".
std::string operation_text(const proto::Step& step);

}  // namespace poprun
