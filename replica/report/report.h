#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/report.pb.h"
#include "replica/device/device.h"
#include "replica/program/program.h"

namespace poprun {

struct ProfiledTile {
  std::optional<std::uint32_t> ipu = {};  ///< Every IPU if not set.
  std::uint32_t tile = 0;
};

struct ReportOptions {
  std::string step_function = "train";       ///< Function whose run the table of operators counts.
  std::vector<std::string> categories = {};  ///< In this order, after the kinds of tensors.
  std::vector<ProfiledTile> tiles = {};      ///< In addition to the fullest tile of each IPU.
};

/// Reports the memory and time of a Program, for people and tools: see proto/report.proto. Leaves out IPUs whose tiles
/// have no layout, and their variables. Requires: `device` is the Program's and has the tiles in `options`.
/// Deterministic. Cost: linear in classes times claims and steps.
proto::Report report(const Program& program, const Device& device, const ReportOptions& options = {});

/// Returns only the program tree and the timeline of the report, with at most `bars_max` bars.
proto::Report step_report(const Program& program, const std::string& step_function, int bars_max);

}  // namespace poprun
