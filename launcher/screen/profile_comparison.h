#pragma once

#include <string>

#include "launcher/screen/profile_tables.h"
#include "proto/profile.pb.h"

namespace poprun::launcher {

/// A profile with the name of its file.
struct NamedProfile {
  const std::string& name;
  const proto::Profile& profile;
};

/// Two profiles in the shape of profile_screen, beside each other with their differences. Bars and
/// curves have one scale for both. IPUs that only one has are left out, with a line that says so.
///
/// Requires: both have reports.
std::string profile_comparison(const NamedProfile& source, const NamedProfile& target,
                               const ProfileFrame& frame);

}  // namespace poprun::launcher
