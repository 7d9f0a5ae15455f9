#include "launcher/outputs/growing_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace poprun::launcher {
namespace {

constexpr double kBetweenTriesSeconds = 1;

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
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some file systems do not support syncing a folder, and do not need it.
  const bool synced = descriptor >= 0 && (fsync(descriptor) == 0 || errno == EINVAL);
  const int reason = errno;
  if (descriptor >= 0) {
    close(descriptor);
  }
  return synced ? Status{} : cannot_write(folder, reason);
}

GrowingFile::GrowingFile(GrowingFile&& other) noexcept
    : path_(std::move(other.path_)),
      waiting_bytes_max_(other.waiting_bytes_max_),
      goes_on_(other.goes_on_),
      file_(std::exchange(other.file_, -1)),
      size_(other.size_),
      waiting_(std::move(other.waiting_)),
      left_out_(other.left_out_) {}

GrowingFile& GrowingFile::operator=(GrowingFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(waiting_bytes_max_, other.waiting_bytes_max_);
  std::swap(goes_on_, other.goes_on_);
  std::swap(file_, other.file_);
  std::swap(size_, other.size_);
  std::swap(waiting_, other.waiting_);
  std::swap(left_out_, other.left_out_);
  return *this;
}

GrowingFile::~GrowingFile() {
  if (file_ >= 0) {
    close(file_);
  }
}

void GrowingFile::append(std::string_view lines) {
  if (waiting_.size() + lines.size() > waiting_bytes_max_ && !waiting_.empty()) {
    left_out_ += static_cast<std::uint64_t>(std::ranges::count(lines, '\n'));
    return;
  }
  waiting_ += lines;
}

Status GrowingFile::flush() {
  if (file_ < 0) {
    POPRUN_TRY(open());
  }
  POPRUN_TRY(write_waiting());
  if (left_out_ > 0) {
    waiting_ = fmt::format("# {} lines are missing here: the disk was full\n", left_out_);
    left_out_ = 0;
  }
  return write_waiting();
}

Status GrowingFile::open() {
  const int fresh = goes_on_ ? 0 : O_TRUNC;
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | fresh | O_CLOEXEC, 0666);
  if (file_ < 0) {
    return cannot_write(path_, errno);
  }
  size_ = lseek(file_, 0, SEEK_END);
  return {};
}

Status GrowingFile::write_waiting() {
  std::size_t written = 0;
  int reason = 0;
  while (written < waiting_.size() && reason == 0) {
    const ssize_t bytes =
        pwrite(file_, waiting_.data() + written, waiting_.size() - written, size_ + static_cast<off_t>(written));
    if (bytes < 0 && errno != EINTR) {
      reason = errno;
    }
    written += bytes < 0 ? 0 : static_cast<std::size_t>(bytes);
  }
  const std::size_t whole = waiting_.rfind('\n', written == 0 ? 0 : written - 1);
  const std::size_t kept = written == 0 || whole == std::string::npos ? 0 : whole + 1;
  size_ += static_cast<off_t>(kept);
  waiting_.erase(0, kept);
  if (reason != 0) {
    static_cast<void>(ftruncate(file_, size_) == 0);  // Shrinking a file does not fail.
    return cannot_write(path_, reason);
  }
  return {};
}

Saving::Saving(Write write) : write_(std::move(write)) {
  begin();
}

Saving::~Saving() {
  given_up_ = true;
}

void Saving::begin() {
  const auto task = [this] { return write_(given_up_); };
  try {
    running_ = std::async(std::launch::async, task);
  } catch (const std::system_error&) {  // No thread can be started here.
    running_ = std::async(std::launch::deferred, task);
  }
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
  const Status written = running_.get();
  done_ = written.has_value();
  failure_ = done_ ? std::nullopt : std::optional(written.error());
  failed_at_ = now;
}

}  // namespace poprun::launcher
