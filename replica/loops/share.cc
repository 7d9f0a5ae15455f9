#include "replica/loops/share.h"

#include <cstdint>
#include <span>

#include <fmt/format.h>

namespace poprun {

Status share_bytes(std::string& bytes, ReplicaId root, Communicator& communicator,
                   std::string_view name) {
  std::uint64_t size = bytes.size();
  POPRUN_TRY(communicator.broadcast(std::as_writable_bytes(std::span(&size, 1)), root,
                                    fmt::format("size of {}", name)));
  bytes.resize(size);
  return communicator.broadcast(std::as_writable_bytes(std::span(bytes)), root, name);
}

}  // namespace poprun
