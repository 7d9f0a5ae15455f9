#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "replica/base/units.h"
#include "replica/program/program.h"

namespace poprun {

/// The memory of every tile of one replica's IPUs, for `memory.tiles = exact`: a tensor's bytes exist only at their
/// planned addresses on its tiles, and the bytes of temporaries and buffers are filled with NaN while these live.
/// Kernels work on images, which are gathered from the tiles before a step and scattered to them after it.
///
/// Cost: each IPU's memory on this machine, and two copies of every operand.
class TileMemory {
 public:
  /// Requires: the Program has a layout for each IPU, and outlives this.
  explicit TileMemory(const Program& program);

  /// Gathers the image of a tensor from its tiles. `image` has the size of the tensor.
  void gather(std::uint32_t tensor, std::span<std::byte> image) const;

  /// Writes an image to its tensor's tiles.
  void scatter(std::uint32_t tensor, std::span<const std::byte> image);

  /// Fills the temporaries and buffers of a step with NaN.
  void begin(std::uint32_t step);

  /// Fills a tensor's bytes with NaN.
  void poison(std::uint32_t tensor);

  /// By tile of an IPU: the end of the highest byte that was written or that holds code, in multiples of 8 B.
  [[nodiscard]] const std::vector<Bytes>& high_water(std::size_t ipu) const { return ipus_.at(ipu).high_water; }

 private:
  /// Bytes of an image that are contiguous on a tile.
  struct Run {
    std::size_t tile_byte = 0;  ///< From the start of the IPU's first tile.
    std::size_t image_byte = 0;
    std::size_t bytes = 0;
  };
  /// Bytes of one tile that belong to no tensor.
  struct Block {
    std::size_t tile_byte = 0;
    std::size_t bytes = 0;
  };
  struct Ipu {
    std::vector<std::byte> bytes;  ///< Bytes of its tiles, one after the other.
    std::size_t bytes_per_tile = 0;
    std::vector<std::vector<Block>> taken;  ///< By step.
    std::vector<Bytes> high_water;          ///< By tile.
  };

  /// Records that bytes of one tile are in use.
  static void mark(Ipu& ipu, const Block& block);

  void lay_out_tensor(std::uint32_t tensor, const proto::IpuMemory& memory, int claim);
  void lay_out(const proto::IpuMemory& memory, Ipu& ipu);

  const Program& program_;
  std::vector<Ipu> ipus_;
  std::vector<std::vector<Run>> runs_;  ///< By tensor.
};

}  // namespace poprun
