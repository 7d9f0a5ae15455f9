#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"

namespace poprun {

/// One IPU's In-Processor Memory, with as many bytes as the device has, or its Streaming Memory, with as many as the
/// plan uses. Only touched pages use memory of this machine. The provider of the bytes keeps them alive. For
/// In-Processor Memory, the provider is a Communicator, so that peers can read the bytes.
class Arena {
 public:
  explicit Arena(std::span<std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] Bytes capacity() const { return Bytes{static_cast<std::int64_t>(bytes_.size())}; }

  /// Returns the bytes [offset, offset + size). Requires: they are inside the memory.
  [[nodiscard]] std::span<std::byte> at(Bytes offset, Bytes size) const;

  /// Records that bytes up to `end` are now in use. Requires: end <= capacity().
  void use(Bytes end);

  /// Returns the largest `end` ever in use.
  [[nodiscard]] Bytes high_water() const { return high_water_; }

  /// Fills bytes with 0xFF, which is NaN in every float format.
  void poison(Bytes offset, Bytes size) const;

 private:
  std::span<std::byte> bytes_;
  Bytes high_water_;
};

/// The images of tensors: a tensor's elements, contiguous in this machine's memory, for kernels, host and peers. The
/// tensor's location on the device is its Placement, which DeviceMemory handles. An image is the tensor's
/// allocation in its IPU's arena, so that law 2 of ARCHITECTURE.md is executed and not just planned: tensors that share
/// bytes in the plan really overwrite each other.
///
/// Replicas on one host may have one image of a common tensor (proto::Tensor.common), in memory that they share:
///
///   arena of replica 0   [ .. not used .. | activations, gradients .. ]       the same offset
///   common memory        [ weights, state ]                                  in both
///   arena of replica 1   [ .. not used .. | activations, gradients .. ]
class HostImages {
 public:
  /// All arguments must outlive this object. `arenas[m]` is memory m (memory_of). `commons[m]` holds the images of the
  /// common tensors of IPU m; if `commons` is empty, they are in the arenas, too.
  HostImages(const Program& program, const std::vector<Arena>& arenas, const std::vector<CommonMemory>& commons)
      : program_(program),
        arenas_(arenas),
        commons_(commons),
        elsewhere_(static_cast<std::size_t>(program.tensors_size())) {}

  /// Returns the image of a tensor. If it is shared, a write to it ends the process. Requires: a step of the Program
  /// names the tensor.
  [[nodiscard]] std::span<std::byte> of(std::uint32_t tensor) const;

  /// Moves the image of a tensor to other bytes, or, if `to` is null, back to its own place. Copies nothing. Requires:
  /// the image is not shared.
  void move(std::uint32_t tensor, std::byte* to) { elsewhere_[tensor] = to; }

  /// Returns whether any image that is not in its own place shares bytes with the place of this tensor. Cost: a look at
  /// every tensor.
  [[nodiscard]] bool is_lent(std::uint32_t tensor) const;

  [[nodiscard]] bool is_shared(std::uint32_t tensor) const;

  /// Returns the writable form of a shared image. A replica writes only the elements that it owns. Requires: is_shared.
  [[nodiscard]] std::span<std::byte> writable(std::uint32_t tensor) const;

  /// Returns the bytes of this replica's arena at the tensor's address.
  [[nodiscard]] std::span<std::byte> in_arena(std::uint32_t tensor) const;

 private:
  const Program& program_;
  const std::vector<Arena>& arenas_;
  const std::vector<CommonMemory>& commons_;
  std::vector<std::byte*> elsewhere_;  ///< By tensor: where its image lies if it has moved; otherwise null.
};

/// Returns the bytes that the images of an IPU's common tensors need: the end of the highest one.
Bytes common_capacity(const Program& program, std::size_t ipu);

/// Gives the whole pages of `bytes` back to the system; they read as zeros afterwards.
void release_pages(std::span<std::byte> bytes);

/// One IPU's Streaming Memory, private to this process: peers never read it. Only touched pages use host memory.
class StreamingMemory {
 public:
  /// Returns zeroed bytes, valid for the lifetime of this object. Errors: kHostResources, with the size.
  Result<std::span<std::byte>> allocate(Bytes size);

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
};

/// The memories of one replica's IPUs. Tracks which bytes are in use, according to the tensors' placements. To read or
/// write a tensor, get its bytes from HostImages.
class DeviceMemory {
 public:
  /// `arenas[m]` is memory m (memory_of); the Program must outlive this object.
  DeviceMemory(const Program& program, std::vector<Arena> arenas) : program_(program), arenas_(std::move(arenas)) {}

  /// For each memory, the highest end of the tensors in a set.
  using Reach = std::vector<Bytes>;
  [[nodiscard]] Reach reach_of(std::span<const std::uint32_t> tensors) const;

  void use(const Reach& reach);

  void poison(std::uint32_t tensor) const;

  /// Fills all memory that the plan ever uses with NaN.
  void poison_planned() const;

  /// Returns, for each memory, the end of the highest byte ever in use.
  [[nodiscard]] std::vector<Bytes> high_water() const;

  [[nodiscard]] const std::vector<Arena>& arenas() const { return arenas_; }

 private:
  const Program& program_;
  std::vector<Arena> arenas_;
};

/// The memory of every tile of one replica's IPUs, for `memory.tiles = exact`: a tensor's bytes exist only at their
/// planned addresses on its tiles. The bytes of temporaries and buffers are filled with NaN in each step in which they
/// live. Kernels work on images, which are gathered from the tiles before a step and scattered to them after it. Cost:
/// as much of this machine's memory as the IPUs have, and two copies of every operand.
class TileMemory {
 public:
  /// Requires: the Program has a layout for each IPU, and outlives this object.
  explicit TileMemory(const Program& program);

  /// Gathers the image of a tensor from its tiles. `image` has the size of the tensor.
  void gather(std::uint32_t tensor, std::span<std::byte> image) const;

  /// Writes an image to its tensor's tiles.
  void scatter(std::uint32_t tensor, std::span<const std::byte> image);

  /// Fills the temporaries and buffers of a step with NaN.
  void begin(std::uint32_t step);

  void poison(std::uint32_t tensor);

  /// Returns, for each tile of an IPU, the end of the highest byte that was written or holds code, rounded up to 8 B.
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
    std::vector<std::vector<Block>> taken;  ///< Indexed by step.
    std::vector<Bytes> high_water;          ///< Indexed by tile.
  };

  static void mark(Ipu& ipu, const Block& block);

  void lay_out_tensor(std::uint32_t tensor, const proto::IpuMemory& memory, int claim);
  void lay_out(const proto::IpuMemory& memory, Ipu& ipu);

  const Program& program_;
  std::vector<Ipu> ipus_;
  std::vector<std::vector<Run>> runs_;  ///< Indexed by tensor.
};

}  // namespace poprun
