#include "launcher/outputs/profile_file.h"

#include <filesystem>

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>

#include "launcher/outputs/message_json.h"
#include "launcher/outputs/read_file.h"
#include "launcher/outputs/result_files.h"

namespace poprun::launcher {
namespace {

constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 31;  // Protobuf's own limit.

bool parse(const std::string& bytes, proto::Profile& profile) {
  // A serialised Profile begins with the tag of its first field.
  return bytes.starts_with('{') ? google::protobuf::util::JsonStringToMessage(bytes, &profile).ok()
                                : profile.ParseFromString(bytes);
}

/// Equal profiles as equal bytes: maps by key.
std::string serialised(const proto::Profile& profile) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  profile.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

}  // namespace

Result<proto::Profile> read_profile(const std::string& path) {
  const bool is_folder = std::filesystem::is_directory(path);
  const std::string file = is_folder ? path + "/profile.pb" : path;
  POPRUN_ASSIGN(const std::string bytes, read_file(file, kBytesMax));
  proto::Profile profile;
  if (bytes.empty() || !parse(bytes, profile)) {
    return fail(ErrorCode::kData,
                fmt::format("{}: not a profile; poprun-emu profile writes profile.pb and "
                            "profile.json",
                            path));
  }
  if (!profile.has_report()) {
    return fail(ErrorCode::kData,
                fmt::format("{}: a profile of a run, without the report of its compiled job; "
                            "poprun-emu profile writes one with it",
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
