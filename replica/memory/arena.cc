#include "replica/memory/arena.h"

#include <algorithm>

#include "replica/base/error.h"

namespace poprun {

std::span<std::byte> Arena::at(Bytes offset, Bytes size) const {
  POPRUN_CHECK(offset >= Bytes{0} && size >= Bytes{0} && offset + size <= capacity());
  return bytes_.subspan(static_cast<std::size_t>(offset.count()),
                        static_cast<std::size_t>(size.count()));
}

void Arena::use(Bytes end) {
  POPRUN_CHECK(end <= capacity());
  high_water_ = std::max(high_water_, end);
}

void Arena::poison(Bytes offset, Bytes size) const {
  std::ranges::fill(at(offset, size), std::byte{0xFF});
}

}  // namespace poprun
