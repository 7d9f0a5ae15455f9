#include "collectives/local/pieces.h"

#include <cstring>

#include "collectives/patterns/slices.h"
#include "replica/base/error.h"

namespace poprun::collectives {

Pieces::Pieces(std::span<const std::span<float>> buffers) {
  for (const std::span<float> buffer : buffers) {
    append(buffer);
  }
}

void Pieces::append(std::span<float> buffer) {
  pieces_.push_back(std::as_writable_bytes(buffer));
  size_ += buffer.size_bytes();
}

template <typename Copy>
void Pieces::for_each_part(std::size_t begin, std::size_t count, const Copy& copy) const {
  POPRUN_CHECK(begin + count <= size_);
  const Slice wanted{begin, begin + count};
  std::size_t start = 0;
  for (const std::span<std::byte> piece : pieces_) {
    const Slice part = overlap(wanted, {start, start + piece.size()});
    if (part.size() > 0) {
      copy(piece.data() + (part.begin - start), part.begin - begin, part.size());
    }
    start += piece.size();
  }
}

void Pieces::copy_out(std::size_t begin, std::span<std::byte> to) const {
  for_each_part(begin, to.size(), [&](std::byte* piece, std::size_t offset, std::size_t count) {
    std::memcpy(to.data() + offset, piece, count);
  });
}

void Pieces::copy_in(std::size_t begin, std::span<const std::byte> from) const {
  for_each_part(begin, from.size(), [&](std::byte* piece, std::size_t offset, std::size_t count) {
    std::memcpy(piece, from.data() + offset, count);
  });
}

}  // namespace poprun::collectives
