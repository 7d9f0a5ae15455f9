#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace poprun::hostio {

/// A SHA-256 digest of the files' sizes and contents, in the order of their paths; of large files
/// only 64 pieces of 64 KiB, spread evenly, are read. Where files lie does not matter. What cannot
/// be read any more counts as empty.
std::string fingerprint_of(const std::set<std::filesystem::path>& files);

}  // namespace poprun::hostio
