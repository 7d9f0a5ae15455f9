#include "launcher/outputs/profile_file.h"

#include <filesystem>

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

#include "launcher/outputs/read_file.h"
#include "launcher/outputs/result_files.h"

namespace poprun::launcher {
namespace {

using google::protobuf::FieldDescriptor;
using Json = nlohmann::ordered_json;

void put_numbers(const google::protobuf::Descriptor& type, Json& object);

Json sorted(const Json& map) {
  return nlohmann::json(map);
}

/// Converts 64-bit integers from JSON strings to JSON numbers, in a field's value or in an element of a repeated field.
void put_numbers(const FieldDescriptor& field, Json& value) {
  const bool is_integer =
      field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 || field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
  if (is_integer && value.is_string()) {
    value = Json::parse(value.get<std::string>());
  } else if (field.message_type() != nullptr && value.is_object()) {
    put_numbers(*field.message_type(), value);
  }
}

void put_numbers(const google::protobuf::Descriptor& type, Json& object) {
  for (int k = 0; k < type.field_count(); ++k) {
    const FieldDescriptor& field = *type.field(k);
    const auto camel = object.find(field.json_name());
    const auto value = camel == object.end() ? object.find(field.name()) : camel;
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

constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 31;  // Protobuf's own limit.

bool parse(const std::string& bytes, proto::Profile& profile) {
  // A serialised Profile begins with the tag of its first field, which is not '{'.
  return bytes.starts_with('{') ? google::protobuf::util::JsonStringToMessage(bytes, &profile).ok()
                                : profile.ParseFromString(bytes);
}

}  // namespace

Result<std::string> message_json(const google::protobuf::Message& message, JsonKeys keys, JsonEnums enums) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = keys == JsonKeys::kAsInProto;
  options.always_print_enums_as_ints = enums == JsonEnums::kNumbers;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) {
    return fail(ErrorCode::kBug, status.ToString());
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return fail(ErrorCode::kBug, "Protobuf's JSON cannot be parsed");
  }
  put_numbers(*message.GetDescriptor(), json);
  return json.dump(1) + "\n";
}

std::string serialised(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

Result<proto::Profile> read_any_profile(const std::string& path) {
  POPRUN_ASSIGN(const std::string bytes, read_file(path, kBytesMax));
  proto::Profile profile;
  if (bytes.empty() || !parse(bytes, profile)) {
    return fail(ErrorCode::kData,
                fmt::format("{}: this is not a profile; poprun-emu profile writes profile.pb and profile.json", path));
  }
  return profile;
}

Result<proto::Profile> read_profile(const std::string& path) {
  const bool is_folder = std::filesystem::is_directory(path);
  POPRUN_ASSIGN(proto::Profile profile, read_any_profile(is_folder ? path + "/profile.pb" : path));
  if (!profile.has_report()) {
    return fail(ErrorCode::kData, fmt::format("{}: this profile of a run contains no report of the compiled job; "
                                              "poprun-emu profile writes profiles that contain one",
                                              path));
  }
  return profile;
}

Status write_profile(const std::string& folder, const proto::Profile& profile) {
  POPRUN_TRY(write_whole_file(fmt::format("{}/profile.pb", folder), {serialised(profile)}));
  POPRUN_ASSIGN(const std::string json, message_json(profile));
  return write_whole_file(fmt::format("{}/profile.json", folder), {json});
}

}  // namespace poprun::launcher
