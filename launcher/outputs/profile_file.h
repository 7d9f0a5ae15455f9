#pragma once

#include <string>

#include <google/protobuf/message.h>

#include "proto/profile.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Formats the message as JSON: every field, even an empty one, every number as a number, and maps sorted by key.
/// Protobuf itself formats 64-bit numbers as strings, and maps in any order. Errors: kBug if it cannot be formatted.
Result<std::string> message_json(const google::protobuf::Message& message);

/// Reads a Profile, as JSON like profile.json or serialised like profile.pb; for a folder, reads its profile.pb.
/// Errors: kData with `path` if it cannot be read, is not a Profile, or contains no report.
Result<proto::Profile> read_profile(const std::string& path);

/// Writes profile.pb and profile.json, each completely or not at all. Errors: those of write_whole_file.
Status write_profile(const std::string& folder, const proto::Profile& profile);

}  // namespace poprun::launcher
