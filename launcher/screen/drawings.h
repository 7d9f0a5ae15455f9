#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/report.pb.h"

namespace poprun::launcher {

/// Something at a step: where a function begins.
struct NamedStep {
  std::uint32_t step = 0;
  std::string name;
};

struct CurveFrame {
  std::size_t width = 80;
  std::size_t rows = 8;     ///< Without those of marks, axis and names.
  std::uint64_t limit = 0;  ///< Bytes of the memory.
  std::uint64_t top = 0;    ///< Bytes of the highest row; 0: top_of the curve.
  std::size_t marks = 0;    ///< So many peaks are marked, with numbers from 1.
};

/// Live bytes over the steps, a column being the most of its steps: '=' is always live, '#' is not,
/// and '!' is beyond the limit. ':' and '.' are two and one thirds of a row.
///
///    60.0 MiB |------1--------------------
///             |     :#          2
///             |    .##...     .#:    3
///             |==========================
///           0 +--------------------------
///              load train         forward.0
std::string liveness_curve(const proto::Liveness& liveness, const CurveFrame& frame,
                           const std::vector<NamedStep>& names);

/// What the highest row stands for: the limit, or the peak where that is far below or above it.
std::uint64_t top_of(std::uint64_t peak, std::uint64_t limit);

/// Bytes of a memory: of one that is smaller than 8 MiB, such as a tile's, in KiB, else in MiB.
std::string bytes_label(std::uint64_t bytes, std::uint64_t memory);

/// Bytes at a step, with those always live.
std::uint64_t live_bytes(const proto::Liveness& liveness, std::uint32_t step);

/// The most of them.
std::uint64_t most_live_bytes(const proto::Liveness& liveness);

/// A stretch of a bar.
struct BarPart {
  char letter = ' ';
  std::uint64_t bytes = 0;
};

/// Bytes of a memory as a bar of `width` columns, one part after the other. A column shows what is
/// at its middle; '.' is free, and '|' is the limit, which parts may exceed:
///
///   TTTTTTTtttttWWWCX.............|        TTTTTTTTTTTTTTTTTTTtttttttt|ttWWW
///
/// The bar ends at the limit, or where it is exceeded at the end of the last part. `scale`: how
/// many bytes the width is at least.
std::string memory_bar(const std::vector<BarPart>& parts, std::uint64_t limit, std::size_t width,
                       std::uint64_t scale = 0);

}  // namespace poprun::launcher
