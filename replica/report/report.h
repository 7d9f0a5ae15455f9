#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/report.pb.h"
#include "replica/device/device.h"
#include "replica/program/program.h"

namespace poprun {

/// Selects the tile whose liveness is reported.
struct ProfiledTile {
  std::optional<std::uint32_t> ipu = {};  ///< Nothing: of each.
  std::uint32_t tile = 0;
};

struct ReportOptions {
  std::string step_function = "train";       ///< Whose calls are counted.
  std::vector<std::string> categories = {};  ///< In this order, after those of tensors.
  std::vector<ProfiledTile> tiles = {};      ///< Besides the fullest one of each IPU.
};

/// Reports the memory and time of a Program, for people and tools: see proto/report.proto. IPUs without a layout of
/// their tiles are left out, with their variables. `device`: the Program's.
///
/// Requires: the device has the tiles. Deterministic. Cost: linear in classes times claims and steps.
proto::Report report(const Program& program, const Device& device, const ReportOptions& options = {});

}  // namespace poprun
