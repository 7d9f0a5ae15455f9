#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "replica/base/error.h"

/// Files for code that reads files, and what every error must be like.
namespace poprun::fuzz {

/// Returns the path of a file with these bytes that exists only in memory, until the next call.
inline std::filesystem::path file_with(std::span<const std::byte> bytes) {
  static const int file = memfd_create("input", 0);
  POPRUN_CHECK(file >= 0 && ftruncate(file, 0) == 0);
  POPRUN_CHECK(pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return "/proc/self/fd/" + std::to_string(file);
}

/// Checks that an error blames the data, in one line.
inline void check_error(const Error& error) {
  POPRUN_CHECK(error.code == ErrorCode::kData);
  POPRUN_CHECK(error.message.find('\n') == std::string::npos);
}

}  // namespace poprun::fuzz
