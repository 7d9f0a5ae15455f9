#pragma once

#include <cstdint>
#include <string>

#include <google/protobuf/message.h>

#include "proto/profile.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Whether keys are written as in profile.json (stepSeconds) or as in the .proto file (step_seconds).
enum class JsonKeys : std::uint8_t { kCamelCase, kAsInProto };
enum class JsonEnums : std::uint8_t { kNames, kNumbers };

/// Formats the message as JSON with every field, even an empty one. Numbers are JSON numbers, and maps are sorted by
/// key. Protobuf itself would format 64-bit numbers as strings, and maps in any order. Errors: kBug if this fails.
Result<std::string> message_json(const google::protobuf::Message& message, JsonKeys keys = JsonKeys::kCamelCase,
                                 JsonEnums enums = JsonEnums::kNames);

/// Serialises a message with maps sorted by key, so that equal messages yield equal bytes.
std::string serialised(const google::protobuf::Message& message);

/// Reads a Profile from a file that is JSON (such as profile.json) or a serialised message (such as profile.pb).
/// Errors: kData, with `path`, if the file is unreadable or is not a Profile.
Result<proto::Profile> read_any_profile(const std::string& path);

/// Reads a Profile with a report. If `path` is a folder, reads the profile.pb in it. Errors: those of read_any_profile;
/// kData if the profile contains no report.
Result<proto::Profile> read_profile(const std::string& path);

/// Writes profile.pb and profile.json, each completely or not at all. Errors: those of write_whole_file.
Status write_profile(const std::string& folder, const proto::Profile& profile);

}  // namespace poprun::launcher
