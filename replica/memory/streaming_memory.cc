#include "replica/memory/streaming_memory.h"

#include <fmt/format.h>

namespace poprun {

Result<std::span<std::byte>> StreamingMemory::allocate(Bytes size) {
  if (size == Bytes{}) {
    return std::span<std::byte>{};
  }
  const auto count = static_cast<std::size_t>(size.count());
  bytes_.reset(static_cast<std::byte*>(std::calloc(count, 1)));
  if (!bytes_) {
    return fail(ErrorCode::kHostResources,
                fmt::format("no memory for {} B of emulated Streaming Memory; use a machine with "
                            "more memory, fewer replicas on it, or keep less off the chip "
                            "([memory])",
                            size.count()));
  }
  return std::span<std::byte>(bytes_.get(), count);
}

}  // namespace poprun
