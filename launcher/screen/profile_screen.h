#pragma once

#include <string>

#include "launcher/screen/profile_tables.h"
#include "proto/profile.pb.h"

namespace poprun::launcher {

/// Formats a profile for human readers. Bars show, by category, the memory of each IPU and of its fullest tile, with
/// the limit. They are followed by the bytes of each category, the tile balance, the liveness over the steps with the
/// operators at its peaks, the largest variables at the peak, and the operators that take longest. If there are more
/// than four IPUs, details are shown only for the fullest one, unless `frame.everything` is set. Lines fill the frame,
/// or 80 columns if the frame is narrower. Requires: the profile has a report.
std::string profile_screen(const proto::Profile& profile, const ProfileFrame& frame);

struct NamedProfile {
  const std::string& name;
  const proto::Profile& profile;
};

/// Shows two profiles side by side, in the layout of profile_screen, with their differences. Bars and curves have the
/// same scale in both. IPUs in only one profile are left out, and a line says so. Requires: both have reports.
std::string profile_comparison(const NamedProfile& source, const NamedProfile& target, const ProfileFrame& frame);

}  // namespace poprun::launcher
