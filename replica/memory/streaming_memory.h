#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "replica/base/error.h"
#include "replica/base/units.h"

namespace poprun {

/// The bytes of one IPU's Streaming Memory, this process's own: peers never read them. Only touched
/// pages cost this machine anything.
class StreamingMemory {
 public:
  /// Zeroed bytes, valid for the life of this object. Errors: kHostResources, with the size.
  Result<std::span<std::byte>> allocate(Bytes size);

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
};

}  // namespace poprun
