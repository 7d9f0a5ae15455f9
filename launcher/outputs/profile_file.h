#pragma once

#include <string>

#include <google/protobuf/message.h>

#include "proto/profile.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// The message as JSON: every field, also an empty one, every number as a number, and maps by key.
/// Protobuf's own JSON has numbers of 64 bits as strings, and maps in any order.
///
/// Errors: kBug, it cannot be written so.
Result<std::string> message_json(const google::protobuf::Message& message);

/// A Profile as it is in profile.json, or serialised, as in profile.pb; that of a folder is its
/// profile.pb.
///
/// Errors
///   kData  `path`: why it cannot be read, or that it is no Profile or one without a report.
Result<proto::Profile> read_profile(const std::string& path);

/// Writes profile.pb and profile.json, each whole or not at all. Errors: those of write_whole_file.
Status write_profile(const std::string& folder, const proto::Profile& profile);

}  // namespace poprun::launcher
