#include "replica/memory/host_images.h"

namespace poprun {

std::span<std::byte> HostImages::of(std::uint32_t tensor) const {
  const proto::Tensor& t = program_.tensors(static_cast<int>(tensor));
  return arenas_.at(memory_of(program_, t))
      .at(Bytes{static_cast<std::int64_t>(t.placement().offset())},
          Bytes{static_cast<std::int64_t>(t.bytes())});
}

}  // namespace poprun
