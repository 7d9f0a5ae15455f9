#include "collectives/local/pieces.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "replica/base/error.h"

namespace poprun::collectives {

Pieces::Pieces(std::span<const Buffer> buffers) : pieces_(buffers.begin(), buffers.end()) {
  std::ranges::stable_sort(pieces_, std::greater{},
                           [](const Buffer& buffer) { return size_of(buffer.type); });
  for (const Buffer& buffer : pieces_) {
    POPRUN_CHECK(buffer.bytes.size() % size_of(buffer.type) == 0);
    size_ += buffer.bytes.size();
  }
}

/// visit(piece, its bytes that are meant, where they are in the whole).
template <typename Visit>
void Pieces::for_each_part(Slice bytes, const Visit& visit) const {
  POPRUN_CHECK(bytes.end <= size_);
  std::size_t start = 0;
  for (const Buffer& piece : pieces_) {
    const Slice part = overlap(bytes, {start, start + piece.bytes.size()});
    if (part.size() > 0) {
      visit(piece, piece.bytes.subspan(part.begin - start, part.size()), part);
    }
    start += piece.bytes.size();
  }
}

std::vector<Extent> Pieces::extents(Slice bytes) const {
  std::vector<Extent> extents;
  for_each_part(bytes, [&](const Buffer& piece, std::span<std::byte>, Slice part) {
    if (!extents.empty() && extents.back().type == piece.type) {
      extents.back().bytes.end = part.end;
    } else {
      extents.push_back({piece.type, part});
    }
  });
  return extents;
}

void Pieces::copy_out(std::size_t begin, std::span<std::byte> to) const {
  for_each_part({begin, begin + to.size()},
                [&](const Buffer&, std::span<std::byte> bytes, Slice part) {
                  std::memcpy(to.data() + (part.begin - begin), bytes.data(), bytes.size());
                });
}

void Pieces::copy_in(std::size_t begin, std::span<const std::byte> from) const {
  for_each_part({begin, begin + from.size()},
                [&](const Buffer&, std::span<std::byte> bytes, Slice part) {
                  std::memcpy(bytes.data(), from.data() + (part.begin - begin), bytes.size());
                });
}

}  // namespace poprun::collectives
