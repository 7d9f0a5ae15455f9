#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "replica/engine/device_memory.h"
#include "replica/program/program.h"

/// Copy elision: the host need not make every copy that the device makes. An outlined function computes on tensors of
/// its own. Each call is preceded by a copy of its arguments, and followed by a copy of its results:
///
///   step of the Program     device            host
///   f = copy(w)             w -> f            f's image is now that of w
///   call "outlined.0"       r = linear(f)     r's image is now that of b, so the function writes b
///   b = copy(r)             r -> b            the bytes are already there
///
/// The plan, the addresses and the device clock do not change; only the location of images in this machine's memory
/// does.
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
/// `views` are the numbers of the steps that do nothing, because their outputs are parts of their inputs' images; such
/// outputs move with the inputs. Cost: a walk through all steps (two rounds of each repeat) and, for each tensor that
/// is copied, through the steps of the call.
ImageMoves find_elided_copies(const Program& program, const HostImages& images, const std::set<std::uint32_t>& views);

}  // namespace poprun
