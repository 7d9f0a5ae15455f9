#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace poprun::launcher {

/// A stretch of a bar.
struct BarPart {
  char letter = ' ';
  std::uint64_t bytes = 0;
};

/// Bytes of a memory as a bar of `width` columns, one part after the other. A column shows what is
/// at its middle; '.' is free, and '|' is the limit, which parts may exceed:
///
///   TTTTTTTtttttWWWCX.............|        TTTTTTTTTTTTTTTTTTTtttttttt|ttWWW
///
/// The bar ends at the limit, or where it is exceeded at the end of the last part. `scale`: how
/// many bytes the width is at least.
std::string memory_bar(const std::vector<BarPart>& parts, std::uint64_t limit, std::size_t width,
                       std::uint64_t scale = 0);

}  // namespace poprun::launcher
