#include "launcher/outputs/npy.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "launcher/outputs/growing_file.h"

namespace poprun::launcher {
namespace {

struct Element {
  std::string_view type;
  std::string_view descr;  ///< NumPy's name for the type.
  std::uint64_t bytes;
};

constexpr std::array<Element, 4> kElements = {
    {{"f32", "<f4", 4}, {"f16", "<f2", 2}, {"i32", "<i4", 4}, {"u8", "|u1", 1}}};

/// Returns the file's header: magic, version, length, and a Python dictionary that ends at a multiple of 64 bytes.
std::string header_of(std::string_view descr, std::span<const std::int64_t> shape) {
  constexpr std::size_t kPreamble = 10;
  constexpr std::size_t kAlignment = 64;
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                                 fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  text.append(kAlignment - (kPreamble + text.size() + 1) % kAlignment, ' ');
  text += '\n';
  std::string header = "\x93NUMPY";
  header += '\x01';
  header += '\0';
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace

Result<NpyFile> NpyFile::create(const std::string& path, std::string_view type, std::span<const std::int64_t> shape) {
  for (const Element& element : kElements) {
    if (element.type != type) {
      continue;
    }
    NpyFile file;
    file.path_ = path;
    file.data_bytes_ = element.bytes;
    for (const std::int64_t size : shape) {
      file.data_bytes_ *= static_cast<std::uint64_t>(size);
    }
    if (file.data_bytes_ > 0) {
      file.row_bytes_ = file.data_bytes_ / static_cast<std::uint64_t>(shape[0]);
    }
    const std::string header = header_of(element.descr, shape);
    file.header_bytes_ = header.size();
    const int opened = open(file.temporary().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    file.file_.reset(opened < 0 ? nullptr : fdopen(opened, "w"));
    const auto size = static_cast<off_t>(file.header_bytes_ + file.data_bytes_);
    if (file.file_ == nullptr || ftruncate(fileno(file.file_.get()), size) != 0) {
      return file.failed();
    }
    // If the file system can reserve space, a full disk is reported now.
    if (fallocate(fileno(file.file_.get()), 0, 0, size) != 0 && errno == ENOSPC) {
      return file.failed();
    }
    POPRUN_TRY(write_at(fileno(file.file_.get()), path, header, 0));
    return file;
  }
  return fail(ErrorCode::kBug, fmt::format("{}: the element type '{}' is unknown", path, type));
}

NpyFile::~NpyFile() {
  if (file_ != nullptr) {
    unlink(temporary().c_str());
  }
}

Status NpyFile::write(std::uint64_t offset, std::string_view data) {
  if (offset > data_bytes_ || data.size() > data_bytes_ - offset) {
    return fail(ErrorCode::kBug, fmt::format("{}: {} B arrived for offset {} of an array of {} B", path_, data.size(),
                                             offset, data_bytes_));
  }
  bytes_written_ += data.size();
  return write_at(fileno(file_.get()), path_, data, header_bytes_ + offset);
}

Status NpyFile::finish() {
  if (bytes_written_ != data_bytes_) {
    return fail(ErrorCode::kBug,
                fmt::format("{}: {} B of outputs arrived, but {} B are needed", path_, bytes_written_, data_bytes_));
  }
  if (fsync(fileno(file_.get())) != 0 || std::rename(temporary().c_str(), path_.c_str()) != 0) {
    return failed();
  }
  file_.reset();
  return sync_folder(std::filesystem::absolute(path_).parent_path());
}

tl::unexpected<Error> NpyFile::failed() const {
  return fail(ErrorCode::kInfrastructure, fmt::format("{} cannot be written: {}", path_, std::strerror(errno)));
}

}  // namespace poprun::launcher
