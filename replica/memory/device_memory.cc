#include "replica/memory/device_memory.h"

#include <algorithm>

namespace poprun {
namespace {

Bytes bytes(std::uint64_t count) {
  return Bytes{static_cast<std::int64_t>(count)};
}

}  // namespace

DeviceMemory::Reach DeviceMemory::reach_of(std::span<const std::uint32_t> tensors) const {
  Reach reach(arenas_.size());
  for (const std::uint32_t id : tensors) {
    const proto::Tensor& tensor = program_.tensors(static_cast<int>(id));
    Bytes& end = reach.at(memory_of(program_, tensor));
    end = std::max(end, bytes(tensor.placement().offset() + tensor.bytes()));
  }
  return reach;
}

void DeviceMemory::use(const Reach& reach) {
  for (std::size_t memory = 0; memory < arenas_.size(); ++memory) {
    arenas_[memory].use(reach[memory]);
  }
}

void DeviceMemory::poison(std::uint32_t tensor) const {
  const proto::Tensor& t = program_.tensors(static_cast<int>(tensor));
  arenas_.at(memory_of(program_, t)).poison(bytes(t.placement().offset()), bytes(t.bytes()));
}

void DeviceMemory::poison_planned() const {
  const auto ipus = static_cast<std::size_t>(program_.memory_size());
  for (std::size_t ipu = 0; ipu < ipus; ++ipu) {
    const proto::IpuMemory& memory = program_.memory(static_cast<int>(ipu));
    arenas_[ipu].poison(Bytes{0}, bytes(memory.images_peak()));
    arenas_[ipus + ipu].poison(Bytes{0}, bytes(memory.streaming_peak()));
  }
}

std::vector<Bytes> DeviceMemory::high_water() const {
  std::vector<Bytes> marks;
  for (const Arena& arena : arenas_) {
    marks.push_back(arena.high_water());
  }
  return marks;
}

}  // namespace poprun
