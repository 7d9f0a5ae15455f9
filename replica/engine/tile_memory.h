#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "replica/base/units.h"
#include "replica/program/program.h"

namespace poprun {

/// The memory of every tile of one replica's IPUs, for `memory.tiles = exact`: a tensor's bytes are nowhere but at
/// their planned addresses on their tiles, and what the plan gives to temporaries and buffers is filled with NaN while
/// they have it. Kernels work on images of tensors that
/// are put together before a step and taken apart after it.
///
/// Costs this machine each IPU's memory, and two copies of every operand.
class TileMemory {
 public:
  /// Requires: the Program has a layout for each IPU, and outlives this.
  explicit TileMemory(const Program& program);

  /// Puts the image of a tensor together from its tiles. `image`: of its size.
  void gather(std::uint32_t tensor, std::span<std::byte> image) const;

  /// Writes an image to its tensor's tiles.
  void scatter(std::uint32_t tensor, std::span<const std::byte> image);

  /// Fills with NaN what a step takes for itself: temporaries and buffers.
  void begin(std::uint32_t step);

  /// Fills a tensor's bytes with NaN.
  void poison(std::uint32_t tensor);

  /// By tile of an IPU: the end of the highest byte that was written, in multiples of 8 B, or that code has.
  [[nodiscard]] const std::vector<Bytes>& high_water(std::size_t ipu) const { return ipus_.at(ipu).high_water; }

 private:
  /// Bytes of an image that are together on a tile.
  struct Run {
    std::size_t tile_byte = 0;  ///< From the start of the IPU's first tile.
    std::size_t image_byte = 0;
    std::size_t bytes = 0;
  };
  /// Bytes of one tile that are no tensor's.
  struct Block {
    std::size_t tile_byte = 0;
    std::size_t bytes = 0;
  };
  /// One IPU.
  struct Ipu {
    std::vector<std::byte> bytes;  ///< Its tiles', one after the other.
    std::size_t bytes_per_tile = 0;
    std::vector<std::vector<Block>> taken;  ///< By step.
    std::vector<Bytes> high_water;          ///< By tile.
  };

  /// Notes that bytes of one tile are in use.
  static void mark(Ipu& ipu, const Block& block);

  void lay_out_tensor(std::uint32_t tensor, const proto::IpuMemory& memory, int claim);
  void lay_out(const proto::IpuMemory& memory, Ipu& ipu);

  const Program& program_;
  std::vector<Ipu> ipus_;
  std::vector<std::vector<Run>> runs_;  ///< By tensor.
};

}  // namespace poprun
