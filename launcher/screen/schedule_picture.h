#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "proto/answers.pb.h"

namespace poprun::launcher {

struct PictureFrame {
  std::size_t width = std::numeric_limits<std::size_t>::max();  ///< Columns.
  bool all_ipus = true;  ///< If false and there are many IPUs, show only those that `listed_rows` selects.
};

/// Draws the work of each IPU, with one row per IPU and one column per cycle. A is the forward pass of a stage, G its
/// backward pass, and R the recomputation before the backward pass. Each letter is followed by the number of the
/// micro-batch, counted from 1. U is the update. For 2 IPUs and 3 micro-batches:
///
///   IPU 0 | A1 A2   A3G1 G2   G3 U
///   IPU 1 |    A1G1 A2G2 A3G3 U
///
/// Leaves out middle cycles that do not fit in the frame; a line below says how many. Returns "" if there are no
/// cycles.
std::string schedule_picture(const proto::StageSchedule& schedule, const PictureFrame& frame = {});

}  // namespace poprun::launcher
