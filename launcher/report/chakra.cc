#include "launcher/report/chakra.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <nlohmann/json.hpp>

#include "launcher/outputs/result_files.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kNpusMax = 1024;

/// The groups of NPUs that take part in collectives, numbered from 1 in the order of their first use, as ASTRA-sim
/// expects.
class Groups {
 public:
  Groups(std::uint32_t ipus, std::uint32_t replicas) : ipus_(ipus), replicas_(replicas) {}

  /// Returns the number of the group "IPU/SIZE" of a replica.
  std::string number(const std::string& name, std::uint32_t replica) {
    const std::size_t slash = name.find('/');
    const auto ipu = static_cast<std::uint32_t>(std::stoul(name.substr(0, slash)));
    const auto size = static_cast<std::uint32_t>(std::stoul(name.substr(slash + 1)));
    const std::uint32_t first = replica / size * size;
    const auto [found, is_new] = numbers_.try_emplace({first * ipus_ + ipu, size}, std::to_string(numbers_.size() + 1));
    if (is_new) {
      for (std::uint32_t r = first; r < std::min(first + size, replicas_); ++r) {
        members_[found->second].push_back(r * ipus_ + ipu);
      }
    }
    return found->second;
  }

  [[nodiscard]] std::string json() const { return members_.dump(1) + "\n"; }

 private:
  std::uint32_t ipus_;
  std::uint32_t replicas_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> numbers_;  ///< By first NPU and size.
  nlohmann::ordered_json members_ = nlohmann::ordered_json::object();
};

/// Returns the file of an IPU of a replica.
std::string file_of(const proto::ChakraTrace& ipu, std::uint32_t ipus, std::uint32_t replica, Groups& groups) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  ChakraProtoMsg::GlobalMetadata metadata;
  metadata.set_version("0.0.4");
  google::protobuf::util::SerializeDelimitedToCodedStream(metadata, &out);
  for (ChakraProtoMsg::Node node : ipu.nodes()) {
    for (ChakraProtoMsg::AttributeProto& attribute : *node.mutable_attr()) {
      if (attribute.name() == "comm_src" || attribute.name() == "comm_dst") {
        attribute.set_int32_val(attribute.int32_val() + static_cast<std::int32_t>(replica * ipus));
      } else if (attribute.name() == "pg_name") {
        attribute.set_string_val(groups.number(attribute.string_val(), replica));
      }
    }
    google::protobuf::util::SerializeDelimitedToCodedStream(node, &out);
  }
  out.Trim();
  return bytes;
}

/// Makes the folder, and removes earlier traces from it.
Status prepare(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  std::vector<fs::path> earlier;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("step.") && name.ends_with(".et")) {
      earlier.push_back(entry->path());
    }
  }
  for (auto path = earlier.begin(); !error && path != earlier.end(); ++path) {
    fs::remove(*path, error);
  }
  if (error) {
    return fail(ErrorCode::kUsage, fmt::format("--chakra = {}: the folder cannot be written ({}); give another one",
                                               folder.string(), error.message()));
  }
  return {};
}

}  // namespace

Result<std::string> write_chakra(const std::string& folder, const std::vector<proto::ChakraTrace>& ipus,
                                 std::uint32_t replicas) {
  const auto count = static_cast<std::uint32_t>(ipus.size());
  const std::uint64_t npus = std::uint64_t{replicas} * count;
  if (npus > kNpusMax) {
    return fail(ErrorCode::kUsage,
                fmt::format("--chakra writes a file for each IPU of each replica, at most {}, but the job has {}; use "
                            "fewer replicas (-n {}), since the steps of all are alike",
                            grouped(kNpusMax), grouped(npus), std::max(kNpusMax / count, 1U)));
  }
  const fs::path path(folder);
  POPRUN_TRY(prepare(path));
  Groups groups(count, replicas);
  std::vector<std::string> first;
  for (std::uint32_t r = 0; r < replicas; ++r) {
    for (std::uint32_t k = 0; k < count; ++k) {
      const fs::path file = path / fmt::format("step.{}.et", r * count + k);
      std::string bytes = file_of(ipus[k], count, r, groups);
      std::error_code error;
      if (r > 0 && bytes == first[k]) {
        fs::create_symlink(fmt::format("step.{}.et", k), file, error);
        if (!error) {
          continue;
        }
      }
      POPRUN_TRY(write_whole_file(file.string(), {bytes}));
      if (r == 0) {
        first.push_back(std::move(bytes));
      }
    }
  }
  POPRUN_TRY(write_whole_file((path / "comm_groups.json").string(), {groups.json()}));
  return fmt::format("execution traces of {} in {}/step.*.et", counted(npus, "NPU"), folder);
}

}  // namespace poprun::launcher
