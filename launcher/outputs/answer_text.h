#pragma once

#include <cstdint>
#include <string>

#include <google/protobuf/message.h>

/// The text of messages that answer scripts. They have a field `schema`, which these functions set.
namespace poprun::launcher {

/// The value of `schema`. Later versions may add fields; if one is removed or changes its meaning, this number rises.
inline constexpr std::uint32_t kAnswerSchema = 1;

/// Formats an answer as JSON, with the names of its fields as keys. It must be valid UTF-8.
std::string json_text(const google::protobuf::Message& answer);

/// Formats an answer as CSV (RFC 4180): a heading, and a row for each element of its list `models`, `jobs`, `rows` or
/// `runs`, or one row if it has none of these lists. Inner messages become columns "outer.inner", and lists of numbers
/// or texts become "first;second". Other lists of messages are left out.
std::string csv_text(const google::protobuf::Message& answer);

}  // namespace poprun::launcher
