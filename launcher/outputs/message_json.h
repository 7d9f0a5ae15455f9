#pragma once

#include <string>

#include <google/protobuf/message.h>

#include "replica/base/error.h"

namespace poprun::launcher {

/// The message as JSON: every field, also an empty one, and every number as a number. Protobuf's
/// own JSON has those of 64 bits as strings.
///
/// Errors: kBug, it cannot be written so.
Result<std::string> message_json(const google::protobuf::Message& message);

}  // namespace poprun::launcher
