#pragma once

#include <string>

#include "launcher/screen/profile_tables.h"
#include "proto/profile.pb.h"

namespace poprun::launcher {

/// A profile as a person looks at it: a bar of each IPU's memory, and of its fullest tile's, by
/// category with the limit; the bytes of categories; tile balance; liveness over the steps with the
/// operators at its peaks; the largest variables at the peak; the operators that take longest. Of
/// more than four IPUs only the fullest one has all of that.
///
/// Requires: the profile has a report. Lines are as wide as the frame, which is 80 columns at
/// least.
std::string profile_screen(const proto::Profile& profile, const ProfileFrame& frame);

}  // namespace poprun::launcher
