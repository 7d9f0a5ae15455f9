#include "launcher/outputs/checkpoint_files.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/outputs/profile_file.h"
#include "launcher/outputs/read_file.h"
#include "launcher/outputs/result_files.h"
#include "replica/base/sha256.h"
#include "replica/base/text.h"
#include "replica/choices/choices.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kManifestBytesMax = 16 << 20;

tl::unexpected<Error> unreadable(const std::string& path, std::string_view reason) {
  return fail(ErrorCode::kHostResources, fmt::format("{}: cannot be read: {}", path, reason));
}

Error as_unreadable(Error error) {
  error.code = ErrorCode::kHostResources;
  return error;
}

/// Returns the size of a regular file. Errors: those of read_checkpoint.
Result<std::uint64_t> size_of(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? fail(ErrorCode::kData, fmt::format("{}: the file is missing", path))
                           : unreadable(path, std::strerror(errno));
  }
  if (!S_ISREG(found.st_mode)) {
    return unreadable(path, S_ISDIR(found.st_mode) ? "it is a directory" : "it is not a file");
  }
  return static_cast<std::uint64_t>(found.st_size);
}

Status check_file(const std::string& folder, const proto::CheckpointFile& file) {
  const std::string path = fmt::format("{}/{}", folder, file.name());
  POPRUN_ASSIGN(const std::uint64_t size, size_of(path));
  if (size != file.bytes()) {
    return fail(ErrorCode::kData, fmt::format("{}: the file has {} B, but the manifest lists {} B", path, grouped(size),
                                              grouped(file.bytes())));
  }
  POPRUN_ASSIGN(const std::string digest, sha256_of_file(path).map_error(as_unreadable));
  if (digest != file.sha256()) {
    return fail(ErrorCode::kData,
                fmt::format("{}: the SHA-256 is {}, but the manifest lists {}", path, digest, file.sha256()));
  }
  return {};
}

/// Returns whether `text` fits `checksum`, which was computed with an empty string in place of the checksum itself.
bool fits_its_checksum(std::string text, const std::string& checksum) {
  const std::string field = "\n \"sha256\": \"";  // The checksums of files are indented further.
  const std::size_t at = text.find(field + checksum + '"');
  if (checksum.empty() || at == std::string::npos) {
    return false;
  }
  text.erase(at + field.size(), checksum.size());
  return sha256_of(text) == checksum;
}

Result<Checkpoint> read_manifest(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kManifestFile);
  POPRUN_TRY(size_of(path).map([](std::uint64_t) {}));
  POPRUN_ASSIGN(const std::string text, read_file(path, kManifestBytesMax).map_error(as_unreadable));
  Checkpoint checkpoint{.folder = folder, .manifest = {}};
  proto::CheckpointManifest& manifest = checkpoint.manifest;
  google::protobuf::util::JsonParseOptions lenient;
  lenient.ignore_unknown_fields = true;
  if (!google::protobuf::util::JsonStringToMessage(text, &manifest, lenient).ok()) {
    return fail(ErrorCode::kData, fmt::format("{}: this is not a checkpoint manifest", path));
  }
  if (!fits_its_checksum(text, manifest.sha256())) {
    return fail(ErrorCode::kData, fmt::format("{}: the file does not match its own checksum", path));
  }
  POPRUN_ASSIGN(const std::string as_we_write_it, manifest_text(manifest));
  checkpoint.is_of_this_build =
      manifest.format() == kCheckpointFormat && manifest.version() == POPRUN_VERSION && text == as_we_write_it;
  return checkpoint;
}

/// Clears the fields in which two runs of the same job may differ.
void even_out(proto::RunConfig& config) {
  config.mutable_topology()->clear_num_instances();
  config.mutable_topology()->clear_instance_host();
  config.clear_report();
  config.mutable_data()->clear_prefetch_batches();
  config.mutable_model()->clear_initial_weights();
  config.mutable_memory()->clear_private_images();
  config.mutable_device()->clear_watts();
  config.mutable_device()->clear_price();
  config.mutable_topology()->clear_timed_replicas();  // This and the next change only the device clock.
  config.clear_what_if();
  config.clear_corruption();
}

/// Returns the first difference in a form such as "training.learning-rate: 0.05 -> 0.1", or "" if there is none.
std::string difference(const proto::RunConfig& then, const proto::RunConfig& now) {
  std::string text;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&text);
  if (differencer.Compare(then, now)) {
    return "";
  }
  std::string first = text.substr(0, text.find('\n'));
  first.erase(0, first.find(": ") + 2);
  std::replace(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(first.find(':')), '_', '-');
  return first;
}

struct OpenFile {
  int number;
  explicit OpenFile(int opened) : number(opened) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (number >= 0) {
      close(number);
    }
  }
};

}  // namespace

std::uint64_t step_of(const std::string& folder) {
  constexpr std::string_view kPrefix = "step-";
  const std::string name = fs::path(folder).filename();
  std::uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const bool is_one = name.starts_with(kPrefix) && name.size() > kPrefix.size();
  const auto [stop, error] = std::from_chars(name.data() + (is_one ? kPrefix.size() : 0), end, step);
  return is_one && error == std::errc{} && stop == end ? step : 0;
}

std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (step_of(entry->path()) > 0) {
      found.push_back(entry->path());
    }
  }
  std::ranges::sort(found, std::greater{}, step_of);
  return found;
}

Status check_can_list(const std::string& folder) {
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  const bool is_there = error && error != std::errc::no_such_file_or_directory;
  return is_there ? unreadable(folder, error.message()) : Status{};
}

Result<std::string> manifest_text(proto::CheckpointManifest manifest) {
  manifest.clear_sha256();
  POPRUN_ASSIGN(const std::string bare, message_json(manifest));
  manifest.set_sha256(sha256_of(bare));
  return message_json(manifest);
}

Result<Checkpoint> read_checkpoint(const std::string& folder) {
  POPRUN_ASSIGN(Checkpoint checkpoint, read_manifest(folder));
  if (!checkpoint.is_of_this_build) {
    return checkpoint;
  }
  for (const char* name : {kStateFile, kMetricsFile}) {
    const auto file = std::ranges::find(checkpoint.manifest.files(), name, &proto::CheckpointFile::name);
    if (file == checkpoint.manifest.files().end()) {
      return fail(ErrorCode::kData, fmt::format("{}/{}: the manifest does not list {}", folder, kManifestFile, name));
    }
    POPRUN_TRY(check_file(folder, *file));
  }
  return checkpoint;
}

Status check_same_job(const Checkpoint& checkpoint, const proto::RunConfig& config, const std::string& onnx_sha256) {
  const proto::CheckpointManifest& manifest = checkpoint.manifest;
  if (manifest.version() != POPRUN_VERSION) {
    return fail(ErrorCode::kUsage,
                fmt::format("--resume {}: the checkpoint was written by poprun-emu {}, and this version ({}) may "
                            "compute different bits; use that version, or start over from the weights",
                            checkpoint.folder, manifest.version(), POPRUN_VERSION));
  }
  if (!checkpoint.is_of_this_build) {
    return fail(ErrorCode::kUsage, fmt::format("--resume {}: the checkpoint was written by a different build of "
                                               "poprun-emu {}, whose options or checkpoint format differ; use that "
                                               "build, or start over from the weights",
                                               checkpoint.folder, POPRUN_VERSION));
  }
  proto::RunConfig then = manifest.config();
  proto::RunConfig now = config;
  even_out(then);
  even_out(now);
  if (!onnx_sha256.empty() && !manifest.onnx_sha256().empty()) {
    if (onnx_sha256 != manifest.onnx_sha256()) {
      return fail(ErrorCode::kData,
                  fmt::format("--resume {}: {} is not the checkpoint's model; restore the old file, or start over",
                              checkpoint.folder, now.model().onnx()));
    }
    now.mutable_model()->set_onnx(then.model().onnx());
    now.mutable_model()->set_name(then.model().name());
  }
  const std::string constant = word_of(RateSchedule::kConstant);
  if (now.training().schedule() == constant && then.training().schedule() == constant) {
    then.mutable_training()->set_steps(now.training().steps());
    then.mutable_training()->set_epochs(now.training().epochs());
  }
  if (const std::string found = difference(then, now); !found.empty()) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("--resume {}: this job differs from the checkpoint's: {}; restore the old value, or start over",
                    checkpoint.folder, found));
  }
  return {};
}

Result<bool> copy_lines(const std::string& from, const std::string& to, std::uint64_t lines) {
  constexpr std::size_t kPieceBytes = 1 << 20;
  const OpenFile source(open(from.c_str(), O_RDONLY | O_CLOEXEC));
  const OpenFile target(open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (target.number < 0) {
    return cannot_write(to, errno);
  }
  std::string piece(kPieceBytes, '\0');
  std::uint64_t written = 0;
  while (lines > 0) {
    const ssize_t got = read(source.number, piece.data(), piece.size());
    if (got <= 0) {
      return false;
    }
    std::size_t end = 0;
    while (end < static_cast<std::size_t>(got) && lines > 0) {
      lines -= piece[end++] == '\n' ? 1U : 0U;
    }
    POPRUN_TRY(write_at(target.number, to, std::string_view(piece).substr(0, end), written));
    written += end;
  }
  if (fsync(target.number) != 0) {
    return cannot_write(to, errno);
  }
  return true;
}

void remove_checkpoint(const std::string& checkpoint) {
  const std::string none = checkpoint + ".old.part";
  std::error_code unused;
  fs::remove_all(none, unused);
  fs::rename(checkpoint, none, unused);
  // Without this sync, a crash might leave the final name on a folder that lacks some files.
  if (sync_folder(fs::absolute(checkpoint).parent_path())) {
    fs::remove_all(none, unused);
  }
}

void remove_parts(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with("step-") && name.ends_with(".part")) {
      std::error_code unused;
      fs::remove_all(entry->path(), unused);
    }
  }
}

Status add_to_manifest(const std::string& folder, const char* name, proto::CheckpointManifest& manifest) {
  const std::string path = fmt::format("{}/{}", folder, name);
  std::error_code error;
  proto::CheckpointFile& file = *manifest.add_files();
  file.set_name(name);
  file.set_bytes(fs::file_size(path, error));
  POPRUN_ASSIGN(*file.mutable_sha256(), sha256_of_file(path));
  return {};
}

}  // namespace poprun::launcher
