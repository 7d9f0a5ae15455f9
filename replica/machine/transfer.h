#pragma once

#include <cstdint>
#include <map>

#include "proto/program.pb.h"
#include "replica/base/units.h"
#include "replica/graph/graph.h"

/// Transfers that I/O tiles can make for other tiles: host streams, and copies, stashes and restores of remote buffers.
namespace poprun {

struct OffChipTransfer {
  proto::Transfer direction = proto::TRANSFER_IN_ORDER;  ///< IN_ORDER if I/O tiles cannot make the transfer.
  std::map<std::uint32_t, Bytes> bytes = {};             ///< Keyed by IPU.

  [[nodiscard]] bool is_any() const { return direction != proto::TRANSFER_IN_ORDER; }
  [[nodiscard]] Bytes bytes_on(std::uint32_t ipu) const;

  /// Returns the largest number of bytes on one IPU.
  [[nodiscard]] Bytes most() const;
};

/// Returns the transfer of an operation. I/O tiles cannot make copies that both load and store, or that also copy
/// between IPUs; the compiler generates no such copies.
OffChipTransfer off_chip_transfer(const Graph& graph, const Operation& operation);

}  // namespace poprun
