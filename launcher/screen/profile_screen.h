#pragma once

#include <string>

#include "launcher/screen/profile_tables.h"
#include "proto/profile.pb.h"

namespace poprun::launcher {

/// Shows a profile to a person: bars for each IPU's memory and for that of its fullest tile, by category, with the
/// limit; the bytes of categories; tile balance; liveness over the steps with the operators at its peaks; the largest
/// variables at the peak; the operators that take longest. Of more than four IPUs, only the fullest gets all of these.
/// Requires: the profile has a report. Lines are as wide as the frame, at least 80 columns.
std::string profile_screen(const proto::Profile& profile, const ProfileFrame& frame);

struct NamedProfile {
  const std::string& name;
  const proto::Profile& profile;
};

/// Shows two profiles in the layout of profile_screen, side by side with their differences. Bars and curves have the
/// same scale. IPUs that only one profile has are left out, and a line says so. Requires: both have reports.
std::string profile_comparison(const NamedProfile& source, const NamedProfile& target, const ProfileFrame& frame);

}  // namespace poprun::launcher
