#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "replica/memory/arena.h"
#include "replica/program/program.h"

namespace poprun {

/// Which bytes of this machine hold a tensor for kernels, host and peers: its image, with all
/// elements in one piece. Where the tensor lies on the device is its Placement, which DeviceMemory
/// handles.
///
/// An image is the tensor's own place in its IPU's arena, so that law 2 is executed and not just
/// planned: tensors that share bytes in the plan really do overwrite each other.
class HostImages {
 public:
  /// Both must outlive this. `arenas[m]` is memory m (memory_of).
  HostImages(const Program& program, const std::vector<Arena>& arenas)
      : program_(program), arenas_(arenas) {}

  /// The image of a tensor; it never moves. Requires: a step of the Program names the tensor.
  [[nodiscard]] std::span<std::byte> of(std::uint32_t tensor) const;

 private:
  const Program& program_;
  const std::vector<Arena>& arenas_;
};

}  // namespace poprun
