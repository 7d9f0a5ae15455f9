#include "launcher/screen/memory_bar.h"

#include <algorithm>

namespace poprun::launcher {

std::string memory_bar(const std::vector<BarPart>& parts, std::uint64_t limit, std::size_t width,
                       std::uint64_t scale) {
  std::uint64_t total = 0;
  for (const BarPart& part : parts) {
    total += part.bytes;
  }
  const std::uint64_t whole = std::max({total, limit, scale, std::uint64_t{1}});
  const std::size_t columns = std::max<std::size_t>(width, 2) - 1;  // One is the limit's.
  std::string bar;
  std::size_t part = 0;
  std::uint64_t end = parts.empty() ? 0 : parts[0].bytes;  // The part's.
  for (std::size_t column = 0; column < columns; ++column) {
    const std::uint64_t middle = (2 * column + 1) * whole / (2 * columns);
    while (part < parts.size() && end <= middle) {
      ++part;
      end += part < parts.size() ? parts[part].bytes : 0;
    }
    bar += part < parts.size() ? parts[part].letter : middle < limit ? '.' : ' ';
  }
  const auto mark = static_cast<std::size_t>((limit * columns + whole / 2) / whole);
  bar.insert(std::min(mark, bar.size()), "|");
  return bar.substr(0, bar.find_last_not_of(' ') + 1);
}

}  // namespace poprun::launcher
