#pragma once

#include <string>

#include "launcher/screen/profile_tables.h"
#include "proto/profile.pb.h"

namespace poprun::launcher {

/// A profile and the name of its file.
struct NamedProfile {
  const std::string& name;
  const proto::Profile& profile;
};

/// Shows two profiles in the layout of profile_screen, side by side with their differences. Bars and curves have one
/// scale for both. IPUs that only one profile has are left out, and a line says so.
///
/// Requires: both have reports.
std::string profile_comparison(const NamedProfile& source, const NamedProfile& target, const ProfileFrame& frame);

}  // namespace poprun::launcher
