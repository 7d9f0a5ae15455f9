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
    Bytes& end = reach.at(tensor.placement().ipu());
    end = std::max(end, bytes(tensor.placement().offset() + tensor.bytes()));
  }
  return reach;
}

void DeviceMemory::use(const Reach& reach) {
  for (std::size_t ipu = 0; ipu < arenas_.size(); ++ipu) {
    arenas_[ipu].use(reach[ipu]);
  }
}

void DeviceMemory::poison(std::uint32_t tensor) const {
  const proto::Tensor& t = program_.tensors(static_cast<int>(tensor));
  arenas_.at(t.placement().ipu()).poison(bytes(t.placement().offset()), bytes(t.bytes()));
}

void DeviceMemory::poison_planned() const {
  for (std::size_t ipu = 0; ipu < arenas_.size(); ++ipu) {
    arenas_[ipu].poison(Bytes{0}, bytes(program_.memory(static_cast<int>(ipu)).images_peak()));
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
