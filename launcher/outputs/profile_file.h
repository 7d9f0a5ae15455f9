#pragma once

#include <string>

#include "proto/profile.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// A Profile as it is in profile.json, or serialised, as in profile.pb; that of a folder is its
/// profile.pb.
///
/// Errors
///   kData  `path`: why it cannot be read, or that it is no Profile or one without a report.
Result<proto::Profile> read_profile(const std::string& path);

/// Writes profile.pb and profile.json, each whole or not at all. Errors: those of write_whole_file.
Status write_profile(const std::string& folder, const proto::Profile& profile);

}  // namespace poprun::launcher
