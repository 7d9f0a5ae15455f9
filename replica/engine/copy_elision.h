#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "replica/engine/device_memory.h"
#include "replica/program/program.h"

/// Copy elision: copies that the device makes, and the host need not. An outlined function computes on tensors of its
/// own. Each call is preceded by a copy of its arguments, and followed by a copy of its results:
///
///   step of the Program     device            host
///   f = copy(w)             w -> f            f's image is that of w, as long as f is read
///   call "outlined.0"       r = linear(f)     r's image is that of b from here, so that the function writes b
///   b = copy(r)             r -> b            the bytes are already there
///
/// Plan, addresses and device clock do not change: only the bytes in this machine's memory that stand for f and r do.
namespace poprun {

/// The image of a tensor becomes a part of another tensor's image. With `place` = `tensor`, it returns to its own.
struct ImageMove {
  std::uint32_t tensor = 0;
  std::uint32_t place = 0;
  std::size_t offset = 0;  ///< From the first byte of the place.
};

/// The moves to make before a step runs, keyed by the step's number.
using ImageMoves = std::map<std::uint32_t, std::vector<ImageMove>>;

/// Finds the copies that can be elided wherever their steps run:
///   - an argument's: while it may still be read, nothing writes the bytes from which it is copied;
///   - a result's: from the beginning of the call to the copy, nothing else touches the bytes to which it is copied.
/// Copies between IPUs, to or from Streaming Memory, and to variables are not elided. `images` are in their own places.
/// `is_view` returns whether a step does nothing since its output is a part of its input's image; such an output moves
/// with its input. Cost: a walk through all steps, of repeats two rounds, and of the steps of the call for each tensor
/// copied.
ImageMoves find_elided_copies(const Program& program, const HostImages& images,
                              const std::function<bool(const proto::Step&)>& is_view);

}  // namespace poprun
