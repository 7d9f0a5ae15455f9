#include "launcher/outputs/message_json.h"

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

namespace poprun::launcher {
namespace {

using google::protobuf::FieldDescriptor;
using Json = nlohmann::ordered_json;

void put_numbers(const google::protobuf::Descriptor& type, Json& object);

/// By key: maps come in any order.
Json sorted(const Json& map) {
  return nlohmann::json(map);
}

/// A field's value, or one of its values where it repeats.
void put_numbers(const FieldDescriptor& field, Json& value) {
  const bool is_integer = field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
                          field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
  if (is_integer && value.is_string()) {
    value = Json::parse(value.get<std::string>());
  } else if (field.message_type() != nullptr && value.is_object()) {
    put_numbers(*field.message_type(), value);
  }
}

void put_numbers(const google::protobuf::Descriptor& type, Json& object) {
  for (int k = 0; k < type.field_count(); ++k) {
    const FieldDescriptor& field = *type.field(k);
    const auto value = object.find(field.json_name());
    if (value == object.end()) {
      continue;
    }
    if (field.is_map()) {
      *value = sorted(*value);
      for (Json& entry : *value) {
        put_numbers(*field.message_type()->map_value(), entry);
      }
    } else if (field.is_repeated()) {
      for (Json& entry : *value) {
        put_numbers(field, entry);
      }
    } else {
      put_numbers(field, *value);
    }
  }
}

}  // namespace

Result<std::string> message_json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) {
    return fail(ErrorCode::kBug, status.ToString());
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return fail(ErrorCode::kBug, "Protobuf's JSON does not parse");
  }
  put_numbers(*message.GetDescriptor(), json);
  return json.dump(1) + "\n";
}

}  // namespace poprun::launcher
