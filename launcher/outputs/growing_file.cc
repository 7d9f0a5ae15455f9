#include "launcher/outputs/growing_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "replica/base/rare.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr double kBetweenTriesSeconds = 1;

std::error_code synced(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some file systems do not support syncing a folder, and do not need it.
  const bool done = descriptor >= 0 && (fsync(descriptor) == 0 || errno == EINVAL);
  const int reason = errno;
  if (descriptor >= 0) {
    close(descriptor);
  }
  return done ? std::error_code{} : std::error_code(reason, std::generic_category());
}

/// Returns the size of the lines in `text` that end within its first `size` bytes.
std::size_t whole_lines(std::string_view text, std::size_t size) {
  const std::size_t last = text.substr(0, size).rfind('\n');
  return last == std::string_view::npos ? 0 : last + 1;
}

}  // namespace

tl::unexpected<Error> cannot_write(const std::string& path, int reason) {
  Error error{ErrorCode::kInfrastructure, fmt::format("{} cannot be written: {}", path, std::strerror(reason))};
  if (reason == ENOSPC || reason == EDQUOT) {
    error.facts.shortage.emplace();
  }
  return tl::unexpected<Error>{std::move(error)};
}

Status write_at(int file, const std::string& path, std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno != EINTR) {
      return cannot_write(path, errno);
    }
    const std::size_t count = written < 0 ? 0 : static_cast<std::size_t>(written);
    bytes.remove_prefix(count);
    offset += count;
  }
  return {};
}

Status sync_folder(const std::string& folder) {
  const std::error_code error = synced(folder);
  return error ? cannot_write(folder, error.value()) : Status{};
}

std::error_code make_folder(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> parents;  // Folders in which a new folder is created.
  for (fs::path missing = fs::absolute(folder, error).lexically_normal();
       missing.has_relative_path() && !fs::exists(missing, error); missing = missing.parent_path()) {
    parents.push_back(missing.parent_path());
  }
  fs::create_directories(folder, error);
  for (auto parent = parents.begin(); !error && parent != parents.end(); ++parent) {
    error = synced(*parent);
  }
  return error;
}

void GrowingFile::append(std::string_view lines) {
  if (waiting() + lines.size() > waiting_bytes_max_ && waiting() > 0) {
    left_out_ += static_cast<std::uint64_t>(std::ranges::count(lines, '\n'));
    return;
  }
  fresh_ += lines;
}

Status GrowingFile::flush(std::chrono::milliseconds patience) {
  if (running_.valid() && !disk_->is_done(running_, patience)) {
    return {};
  }
  hand_over();
  if (!disk_->is_done(running_, patience)) {
    return {};
  }
  waiting_bytes_ = lines_->waiting.size();
  return std::exchange(running_, {}).get();
}

void GrowingFile::hand_over() {
  waiting_bytes_ += fresh_.size();
  running_ = disk_->post(
      [lines = lines_, fresh = std::exchange(fresh_, {}), left_out = std::exchange(left_out_, 0)]() -> Status {
        lines->waiting += fresh;
        lines->left_out += left_out;
        return lines->write();
      });
}

GrowingFile::Lines::~Lines() {
  if (file >= 0) {
    close(file);
  }
}

Status GrowingFile::Lines::write() {
  if (file < 0) {
    POPRUN_TRY(open());
  }
  POPRUN_TRY(write_waiting());
  if (left_out > 0) {
    waiting = fmt::format("# {} left out here: the disk accepted no data\n", counted(left_out, "line"));
    left_out = 0;
  }
  return write_waiting();
}

Status GrowingFile::Lines::finish() {
  POPRUN_TRY(write());
  return fsync(file) == 0 ? Status{} : cannot_write(path, errno);
}

Status GrowingFile::Lines::open() {
  const int fresh = goes_on ? 0 : O_TRUNC;
  file = ::open(path.c_str(), O_WRONLY | O_CREAT | fresh | O_CLOEXEC, 0666);
  if (file < 0) {
    return cannot_write(path, errno);
  }
  size = lseek(file, 0, SEEK_END);
  return {};
}

Status GrowingFile::Lines::write_waiting() {
  std::size_t written = 0;
  int reason = 0;
  while (written < waiting.size() && reason == 0) {
    const ssize_t bytes =
        pwrite(file, waiting.data() + written, waiting.size() - written, size + static_cast<off_t>(written));
    if (bytes < 0 && errno != EINTR) {
      reason = errno;
    }
    written += bytes < 0 ? 0 : static_cast<std::size_t>(bytes);
  }
  const std::size_t kept = unit == Unit::kRecord ? (reason == 0 ? written : 0) : whole_lines(waiting, written);
  size += static_cast<off_t>(kept);
  waiting.erase(0, kept);
  if (reason != 0) {
    POPRUN_RARE("disk.full");
    static_cast<void>(ftruncate(file, size) == 0);  // Shrinking a file does not fail.
    return cannot_write(path, reason);
  }
  return {};
}

Saving::Saving(DiskThread& disk, Write write) : disk_(disk), write_(std::move(write)) {
  begin();
}

Saving::~Saving() {
  given_up_ = true;
  if (running_.valid()) {
    running_.wait();
  }
}

void Saving::begin() {
  running_ = disk_.post([this] { return write_(given_up_); });
}

void Saving::refresh(double now) {
  if (done_) {
    return;
  }
  if (!running_.valid()) {
    if (now - failed_at_ >= kBetweenTriesSeconds) {
      begin();
    }
    return;
  }
  if (running_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout) {
    return;
  }
  const Status written = std::exchange(running_, {}).get();
  done_ = written.has_value();
  if (!done_) {
    POPRUN_RARE("results.not-saved");
  }
  failure_ = done_ ? std::nullopt : std::optional(written.error());
  failed_at_ = now;
}

}  // namespace poprun::launcher
