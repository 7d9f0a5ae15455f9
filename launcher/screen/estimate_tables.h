#pragma once

#include <string>
#include <vector>

#include "proto/answers.pb.h"

/// Formats estimates as `poprun-emu estimate` prints them: in 80 columns, except for lists of values and whole names.
namespace poprun::launcher {

struct EstimateFrame {
  bool by_layer = false;
  bool everything = false;   ///< Also show all blocks of the layers, and all IPUs, even if there are many.
  bool whole_names = false;  ///< Widen the first column instead of shortening names of layers and blocks.
};

/// Returns the number of parameters in each kind of block, the guide's totals, the job's own totals and the suggested
/// number of IPUs. If requested, a row per layer follows. If the job was compiled, rows for its IPUs follow, with their
/// sum and the estimate.
std::string estimate_tables(const proto::JobEstimate& job, const EstimateFrame& frame);

/// Returns a row for each value of the key and, if the values are whole numbers, the mean growth per unit from the
/// first row to the last. If the jobs were compiled, a second table shows the same for the bytes of each purpose.
/// Requires: there is one value per job; either all jobs were compiled, or none was.
std::string varied_table(const std::string& key, const std::vector<std::string>& values,
                         const proto::EstimateAnswer& answer);

}  // namespace poprun::launcher
