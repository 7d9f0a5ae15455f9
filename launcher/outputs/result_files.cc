#include "launcher/outputs/result_files.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kResults[] = {"weights.safetensors", "outputs.npy", "metrics.csv", "profile.json", "profile.pb"};

/// Files about an earlier run that a later one may replace.
constexpr const char* kNotResults[] = {"failure.txt", "report.html", "memory-tiles.pickle", "memory.pickle"};

constexpr std::size_t kPieceBytes = 16 << 20;  // Bytes written between two checks for cancellation.
constexpr std::size_t kLogWaitingBytesMax = 64 << 10;

/// Returns the free bytes available to this user on the disk of `folder`, if the file system reports them.
std::optional<std::uint64_t> free_bytes(const fs::path& folder) {
  struct statvfs disk {};
  const bool tells = statvfs(folder.c_str(), &disk) == 0 && disk.f_blocks > 0;
  return tells ? std::optional(disk.f_bavail * disk.f_frsize) : std::nullopt;
}

/// Adds the needed and the free bytes to the error if too few are free. Otherwise, adds only the needed bytes, and only
/// if the error records a shortage.
Status with_room(Error error, const fs::path& path, std::uint64_t needed) {
  const std::optional<std::uint64_t> free = free_bytes(path.parent_path());
  if (free && *free < needed) {
    error.message += fmt::format("; it needs {}, but only {} is free", mebibytes_text(needed), mebibytes_text(*free));
    error.facts.shortage =
        Shortage{.needed = Bytes{static_cast<std::int64_t>(needed)}, .had = Bytes{static_cast<std::int64_t>(*free)}};
  } else if (error.facts.shortage) {
    error.facts.shortage->needed = Bytes{static_cast<std::int64_t>(needed)};
  }
  return tl::unexpected<Error>{std::move(error)};
}

tl::unexpected<Error> cannot_make(const std::string& folder, const std::error_code& reason) {
  return fail(ErrorCode::kUsage, fmt::format("--output-dir {} cannot be created: {}", folder, reason.message()));
}

/// Creates a file as a test, since permission bits are unreliable for root and on read-only file systems.
Status try_to_write(const fs::path& folder) {
  const std::string probe = folder / fmt::format(".poprun-emu-{}", getpid());
  const int descriptor = open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return fail(ErrorCode::kUsage, fmt::format("--output-dir {}: no file can be created in this folder: {}",
                                               folder.string(), std::strerror(errno)));
  }
  close(descriptor);
  unlink(probe.c_str());
  return {};
}

/// Writes `parts` to `descriptor`, syncs it, and closes it, even after an error.
Status write_and_sync(int descriptor, const std::string& path, const std::vector<std::string_view>& parts,
                      const std::atomic<bool>* given_up) {
  int reason = 0;
  for (std::string_view part : parts) {
    while (reason == 0 && !part.empty()) {
      const ssize_t written = write(descriptor, part.data(), std::min(part.size(), kPieceBytes));
      if (written < 0 && errno != EINTR) {
        reason = errno;
      }
      part.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
      reason = given_up != nullptr && *given_up ? ECANCELED : reason;
    }
  }
  if (reason == 0 && fsync(descriptor) != 0) {
    reason = errno;
  }
  if (close(descriptor) != 0 && reason == 0) {
    reason = errno;
  }
  return reason == 0 ? Status{} : cannot_write(path, reason);
}

void remove_files(const fs::path& folder, std::string_view prefix, std::string_view suffix) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with(prefix) && name.ends_with(suffix)) {
      std::error_code unused;
      fs::remove(entry->path(), unused);
    }
  }
}

template <typename Metrics>
std::string row_of(const Metrics& metrics, std::string_view split) {
  const std::string accuracy = metrics.accuracy() < 0 ? "" : fmt::format("{:.9g}", metrics.accuracy());
  return fmt::format("{},{},{},{:.9g},{},{:.9g},{:.9g}\n", metrics.step(), metrics.epoch(), split, metrics.loss(),
                     accuracy, metrics.wall_seconds(), metrics.device_seconds());
}

void set_attempt_aside(const fs::path& path) {
  std::error_code unused;
  if (!fs::exists(path / "failure.txt", unused) &&
      (!fs::exists(path / "logs", unused) || fs::is_empty(path / "logs", unused))) {
    return;
  }
  int number = 1;
  while (fs::exists(path / "attempts" / std::to_string(number), unused)) {
    ++number;
  }
  const fs::path aside = path / "attempts" / std::to_string(number);
  fs::create_directories(aside, unused);
  for (const char* trace : {"failure.txt", "logs"}) {
    fs::rename(path / trace, aside / trace, unused);
  }
}

}  // namespace

Traces traces_of(const proto::RunConfig& config) {
  return config.has_check() ? Traces{"check-logs", "check-failure.txt"} : Traces{"logs", "failure.txt"};
}

Result<FolderLock> take_output_folder(const std::string& folder, bool overwrite, std::string_view logs, bool sets_aside,
                                      FolderLock held) {
  std::error_code error;
  const fs::path path(folder);
  if (const std::error_code refused = make_folder(folder)) {
    return cannot_make(folder, refused);
  }
  const bool is_own = held.is_of(folder);
  POPRUN_ASSIGN(FolderLock taken, FolderLock::take("--output-dir", folder, std::move(held)));
  // No other job uses the folder now, so any files that a killed job had begun to write can be removed.
  for (const char* result : kResults) {
    remove_files(path, result, ".part");
  }
  remove_files(path, "dump-step-", ".part");
  remove_files(path, ".poprun-emu-", "");
  for (const char* result : kResults) {
    if (!overwrite && !is_own && fs::exists(path / result, error)) {
      return fail(ErrorCode::kUsage, fmt::format("--output-dir {} holds the results of an earlier run ({}); choose a "
                                                 "different folder, or add --overwrite to replace them",
                                                 folder, result));
    }
  }
  if (sets_aside) {
    set_attempt_aside(path);
  }
  fs::create_directories(path / logs, error);
  if (error) {
    return cannot_make(folder, error);
  }
  POPRUN_TRY(try_to_write(path));
  POPRUN_TRY(try_to_write(path / logs));
  return taken;
}

Status check_room(const std::string& folder, std::uint64_t bytes) {
  const std::optional<std::uint64_t> available = free_bytes(folder);
  if (!available) {
    return {};
  }
  std::uint64_t free = *available;
  for (const char* result : kResults) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(fs::path(folder) / result, error);
    free += error ? 0 : size;
  }
  if (free >= bytes) {
    return {};
  }
  return fail(ErrorCode::kInfrastructure,
              fmt::format("--output-dir {}: the weights need {}, but the folder's disk has only {} free; make room, or "
                          "choose a different folder",
                          folder, mebibytes_text(bytes), mebibytes_text(free)),
              {.shortage = Shortage{.needed = Bytes{static_cast<std::int64_t>(bytes)},
                                    .had = Bytes{static_cast<std::int64_t>(free)}}});
}

Status clear_results(const std::string& folder, const std::string& kept, bool of_steps) {
  const fs::path path(folder);
  for (const char* result : kResults) {
    std::error_code error;
    if (!kept.empty() && fs::equivalent(path / result, kept, error)) {
      continue;
    }
    fs::remove(path / result, error);
    if (error) {
      return fail(ErrorCode::kInfrastructure,
                  fmt::format("{} of an earlier run cannot be removed: {}; choose a different folder",
                              (path / result).string(), error.message()));
    }
  }
  std::error_code unused;
  for (const char* const other : kNotResults) {
    fs::remove(path / other, unused);
  }
  if (of_steps) {
    fs::remove(path / kTraceFile, unused);
    remove_files(path, "dump-step-", ".safetensors");
  }
  return {};
}

Status write_whole_file(const std::string& path, const std::vector<std::string_view>& parts,
                        const std::atomic<bool>* given_up) {
  std::uint64_t needed = 0;
  for (const std::string_view part : parts) {
    needed += part.size();
  }
  if (const std::optional<std::uint64_t> free = free_bytes(fs::path(path).parent_path()); free && *free < needed) {
    return with_room(cannot_write(path, ENOSPC).value(), path, needed);
  }
  const std::string temporary = fmt::format("{}.{:08x}.part", path, std::random_device()());
  const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return with_room(cannot_write(path, errno).value(), path, needed);
  }
  Status written = write_and_sync(descriptor, path, parts, given_up);
  if (written && std::rename(temporary.c_str(), path.c_str()) != 0) {
    written = cannot_write(path, errno);
  }
  if (!written) {
    unlink(temporary.c_str());
    return with_room(written.error(), path, needed);
  }
  return sync_folder(fs::absolute(path).parent_path());
}

std::string metrics_header() {
  return "step,epoch,split,loss,accuracy,wall_seconds,device_seconds\n";
}

std::string metrics_row(const proto::StepMetrics& metrics) {
  return row_of(metrics, "train");
}

std::string metrics_row(const proto::EvaluationMetrics& metrics) {
  return row_of(metrics, "test");
}

Status WeightsCollector::take(const proto::TensorChunk& chunk) {
  if (!open_) {
    tensors_.push_back({chunk.name(), dtype_of(chunk.type()), {chunk.shape().begin(), chunk.shape().end()}, ""});
  }
  Tensor& tensor = tensors_.back();
  if (tensor.name != chunk.name()) {
    return fail(ErrorCode::kBug,
                fmt::format("weights: a chunk of '{}' arrived before '{}' ended", chunk.name(), tensor.name));
  }
  tensor.data += chunk.data();
  open_ = !chunk.last();
  if (open_) {
    return {};
  }
  const std::optional<std::uint64_t> needed = tensor_bytes(tensor.dtype, tensor.shape);
  if (needed == tensor.data.size()) {
    return {};
  }
  const Tensor refused = std::move(tensor);
  tensors_.pop_back();
  return fail(ErrorCode::kBug,
              fmt::format("weights: '{}' {} [{}] {}", refused.name, chunk.type(), fmt::join(refused.shape, ", "),
                          needed ? fmt::format("needs {} B, but {} B arrived", *needed, refused.data.size())
                                 : "has an unknown type or shape"));
}

std::size_t WeightsCollector::keep_complete() {
  if (std::exchange(open_, false)) {
    tensors_.pop_back();
  }
  return tensors_.size();
}

void WeightsCollector::sort_by_name() {
  std::ranges::sort(tensors_.begin(), tensors_.end() - (open_ ? 1 : 0), {}, &Tensor::name);
}

Status WeightsCollector::write(const std::string& path, const std::atomic<bool>* given_up) const {
  if (open_) {
    return fail(ErrorCode::kBug, fmt::format("weights: '{}' is not complete", tensors_.back().name));
  }
  const std::string header = safetensors_header(tensors_);
  std::vector<std::string_view> parts = {header};
  for (const Tensor& tensor : tensors_) {
    parts.emplace_back(tensor.data);
  }
  return write_whole_file(path, parts, given_up);
}

std::string ReplicaLogs::path(std::uint32_t replica) const {
  const std::size_t digits = std::max<std::size_t>(2, std::to_string(replicas_ - 1).size());
  return fmt::format("{}/replica-{:0{}}.log", folder_, replica, digits);
}

void ReplicaLogs::write(std::uint32_t replica, std::string_view line) {
  constexpr std::chrono::milliseconds kNoWait{0};
  if (files_.empty()) {
    disk_.post([folder = folder_]() -> Status {
      remove_files(folder, "replica-", ".log");
      return {};
    });
  }
  auto file = files_.find(replica);
  if (file == files_.end()) {
    file = files_.emplace(replica, GrowingFile(disk_, path(replica), kLogWaitingBytesMax)).first;
  }
  if (file->second.waiting() > kLogWaitingBytesMax / 2) {
    static_cast<void>(file->second.flush());  // Waits briefly for a slow disk, rather than lose lines.
  }
  file->second.append(fmt::format("{}\n", line));
  waiting_ = true;
  static_cast<void>(file->second.flush(kNoWait));  // `flush` reports the error.
}

Status ReplicaLogs::flush() {
  if (!waiting_) {
    return {};
  }
  Status first;
  waiting_ = false;
  for (auto& [replica, file] : files_) {
    const Status flushed = file.flushed() ? Status{} : file.flush();
    first = first ? flushed : first;
    waiting_ = waiting_ || !file.flushed();
  }
  return first;
}

void ReplicaLogs::hand_over() {
  for (auto& [replica, file] : files_) {
    file.hand_over();
  }
}

}  // namespace poprun::launcher
