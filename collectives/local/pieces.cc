#include "collectives/local/pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "replica/base/error.h"

namespace poprun::collectives {

Pieces::Pieces(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
  std::ranges::stable_sort(pieces_, [](const Piece& a, const Piece& b) {
    return size_of(a.type) != size_of(b.type) ? size_of(a.type) > size_of(b.type) : a.type < b.type;
  });
  for (Piece& piece : pieces_) {
    POPRUN_CHECK(piece.bytes.size() % size_of(piece.type) == 0);
    piece.whole = {size_, size_ + piece.bytes.size()};
    size_ = piece.whole.end;
  }
}

std::size_t Pieces::count() const {
  std::size_t count = 0;
  for (const Piece& piece : pieces_) {
    count += piece.count();
  }
  return count;
}

std::vector<Piece> Pieces::parts(Slice bytes) const {
  POPRUN_CHECK(bytes.end <= size_);
  std::vector<Piece> parts;
  for (const Piece& piece : pieces_) {
    const Slice part = overlap(bytes, piece.whole);
    if (part.size() > 0) {
      const std::size_t offset = part.begin - piece.whole.begin;
      const Place place{piece.place.owner, piece.place.where + static_cast<std::int64_t>(offset)};
      parts.push_back({piece.type, piece.bytes.subspan(offset, part.size()), place, part});
    }
  }
  return parts;
}

std::vector<Piece> Pieces::types() const {
  std::vector<Piece> types;
  for (const Piece& piece : pieces_) {
    if (!types.empty() && types.back().type == piece.type) {
      types.back().whole.end = piece.whole.end;
    } else {
      types.push_back({piece.type, {}, {}, piece.whole});
    }
  }
  return types;
}

bool Pieces::placed(Slice bytes) const {
  return std::ranges::all_of(pieces_, [&](const Piece& piece) {
    return piece.place.owner >= 0 || overlap(bytes, piece.whole).size() == 0;
  });
}

void Pieces::copy_out(std::size_t begin, std::span<std::byte> to) const {
  for (const Piece& part : parts({begin, begin + to.size()})) {
    std::memcpy(to.data() + (part.whole.begin - begin), part.bytes.data(), part.bytes.size());
  }
}

void Pieces::copy_in(std::size_t begin, std::span<const std::byte> from) const {
  for (const Piece& part : parts({begin, begin + from.size()})) {
    std::memcpy(part.bytes.data(), from.data() + (part.whole.begin - begin), part.bytes.size());
  }
}

}  // namespace poprun::collectives
