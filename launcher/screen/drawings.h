#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/report.pb.h"

namespace poprun::launcher {

/// A step and its name, such as the name of the function that begins there.
struct NamedStep {
  std::uint32_t step = 0;
  std::string name;
};

struct CurveFrame {
  std::size_t width = 80;
  std::size_t rows = 8;     ///< Not counting the rows for marks, axis and names.
  std::uint64_t limit = 0;  ///< Size of the memory in bytes.
  std::uint64_t top = 0;    ///< Bytes that the highest row represents; 0: the value of top_of.
  std::size_t marks = 0;    ///< Number of peaks to mark. The marks are numbers, from 1.
};

/// Draws the live bytes at each step. A column shows the maximum of its steps. '=' means bytes that are always live,
/// '#' other bytes, and '!' bytes beyond the limit. ':' and '.' mean two thirds and one third of a row.
///
///      60.0 MiB |------1--------------------
///               |     :#          2
///               |    .##...     .#:    3
///               |==========================
///             0 +--------------------------
///                load train         forward.0
std::string liveness_curve(const proto::Liveness& liveness, const CurveFrame& frame,
                           const std::vector<NamedStep>& names);

/// Returns the bytes of a curve's highest row: the limit or, if the peak is above the limit or far below it, the peak.
std::uint64_t top_of(std::uint64_t peak, std::uint64_t limit);

/// Formats bytes of a memory of size `memory`: in KiB if the memory is smaller than 8 MiB, as a tile's is, else in MiB.
std::string bytes_label(std::uint64_t bytes, std::uint64_t memory);

/// Returns the live bytes at a step, including those that are always live.
std::uint64_t live_bytes(const proto::Liveness& liveness, std::uint32_t step);

std::uint64_t most_live_bytes(const proto::Liveness& liveness);

struct BarPart {
  char letter = ' ';
  std::uint64_t bytes = 0;
};

/// Draws the parts of a memory, one after the other, as a bar of `width` columns. A column shows the part at its
/// middle. '.' is free memory, and '|' is the limit, which the parts may exceed:
///
///     TTTTTTTtttttWWWCX.............|        TTTTTTTTTTTTTTTTTTTtttttttt|ttWWW
///
/// The bar ends at the limit or, if it is exceeded, at the end of the last part. The width represents at least `scale`
/// bytes.
std::string memory_bar(const std::vector<BarPart>& parts, std::uint64_t limit, std::size_t width,
                       std::uint64_t scale = 0);

}  // namespace poprun::launcher
