#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/report.pb.h"

namespace poprun::launcher {

/// A mark at a step, such as the beginning of a function.
struct NamedStep {
  std::uint32_t step = 0;
  std::string name;
};

struct CurveFrame {
  std::size_t width = 80;
  std::size_t rows = 8;     ///< Not counting the rows for marks, axis and names.
  std::uint64_t limit = 0;  ///< Size of the memory in bytes.
  std::uint64_t top = 0;    ///< Bytes of the highest row; 0: top_of the curve.
  std::size_t marks = 0;    ///< Number of peaks to mark, numbered from 1.
};

/// Draws live bytes over the steps; a column shows the maximum over its steps. '=' stands for bytes that are always
/// live, '#' for the others, and '!' for bytes beyond the limit; ':' and '.' fill two thirds and one third of a row.
///
///      60.0 MiB |------1--------------------
///               |     :#          2
///               |    .##...     .#:    3
///               |==========================
///             0 +--------------------------
///                load train         forward.0
std::string liveness_curve(const proto::Liveness& liveness, const CurveFrame& frame,
                           const std::vector<NamedStep>& names);

/// Returns the bytes that the highest row stands for: the limit, or the peak if it is above the limit or far below.
std::uint64_t top_of(std::uint64_t peak, std::uint64_t limit);

/// Formats bytes of a memory: in KiB if `memory` is less than 8 MiB, as for a tile, else in MiB.
std::string bytes_label(std::uint64_t bytes, std::uint64_t memory);

/// Returns the live bytes at a step, including those that are always live.
std::uint64_t live_bytes(const proto::Liveness& liveness, std::uint32_t step);

std::uint64_t most_live_bytes(const proto::Liveness& liveness);

struct BarPart {
  char letter = ' ';
  std::uint64_t bytes = 0;
};

/// Draws bytes of a memory as a bar of `width` columns, one part after the other. A column shows the part at its
/// middle; '.' is free, and '|' is the limit, which parts may exceed:
///
///     TTTTTTTtttttWWWCX.............|        TTTTTTTTTTTTTTTTTTTtttttttt|ttWWW
///
/// The bar ends at the limit or, if it is exceeded, at the end of the last part. `scale` is the smallest number of
/// bytes that the width stands for.
std::string memory_bar(const std::vector<BarPart>& parts, std::uint64_t limit, std::size_t width,
                       std::uint64_t scale = 0);

}  // namespace poprun::launcher
