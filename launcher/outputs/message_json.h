#pragma once

#include <string>

#include <google/protobuf/message.h>

#include "replica/base/error.h"

namespace poprun::launcher {

/// The message as JSON: every field, also an empty one, every number as a number, and maps by key.
/// Protobuf's own JSON has numbers of 64 bits as strings, and maps in any order.
///
/// Errors: kBug, it cannot be written so.
Result<std::string> message_json(const google::protobuf::Message& message);

}  // namespace poprun::launcher
