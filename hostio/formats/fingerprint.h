#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace poprun::hostio {

/// A SHA-256 digest of the files' sizes and contents, in the order of their paths; of files over
/// 256 MiB only 256 pieces of 1 MiB, spread evenly, are read. Where files lie does not matter. What
/// cannot be read any more counts as empty. Cost: 0.2 s for 256 MiB in the page cache, on a
/// processor with SHA instructions.
std::string fingerprint_of(const std::set<std::filesystem::path>& files);

}  // namespace poprun::hostio
