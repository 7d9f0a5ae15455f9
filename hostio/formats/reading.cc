#include "hostio/formats/reading.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun::hostio {
namespace {

Status changed(const std::filesystem::path& file) {
  return fail(ErrorCode::kData, fmt::format("{}: changed while the data server was reading it; restart the job when "
                                            "nothing is writing to the file any more",
                                            file.string()));
}

std::int64_t nanoseconds(const struct timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Reading::Stamp Reading::stamp_of(const struct stat& facts) {
  return {.device = facts.st_dev,
          .inode = facts.st_ino,
          .size = facts.st_size,
          .modified_ns = nanoseconds(facts.st_mtim),
          .changed_ns = nanoseconds(facts.st_ctim)};
}

Status Reading::opened(const std::filesystem::path& file, const struct stat& facts) {
  // Each byte is read twice, once for the dataset and once for its fingerprint.
  constexpr std::uint64_t kPasses = 2;
  const auto [at, is_new] = files_.emplace(file, stamp_of(facts));
  if (is_new) {
    expect(kPasses * static_cast<std::uint64_t>(facts.st_size));
  }
  return at->second == stamp_of(facts) ? Status{} : changed(file);
}

Status Reading::check_unchanged() const {
  for (const auto& [file, stamp] : files_) {
    struct stat facts {};
    if (::stat(file.c_str(), &facts) != 0 || stamp_of(facts) != stamp) {
      return changed(file);
    }
  }
  return {};
}

std::vector<std::filesystem::path> Reading::files() const {
  std::vector<std::filesystem::path> files;
  for (const auto& [file, stamp] : files_) {
    files.push_back(file);
  }
  return files;
}

unsigned Reading::percent() const {
  constexpr double kMost = 99;
  const auto expected = static_cast<double>(expected_);
  const double now = expected == 0 ? 0 : std::min(kMost, static_cast<double>(work_) * 100 / expected);
  unsigned highest = percent_;
  while (highest < static_cast<unsigned>(now) && !percent_.compare_exchange_weak(highest, static_cast<unsigned>(now))) {
  }
  return percent_;
}

}  // namespace poprun::hostio
