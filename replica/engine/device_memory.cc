#include "replica/engine/device_memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "replica/base/error.h"

namespace poprun {
namespace {

Bytes bytes(std::uint64_t count) {
  return Bytes{static_cast<std::int64_t>(count)};
}

}  // namespace

std::span<std::byte> Arena::at(Bytes offset, Bytes size) const {
  POPRUN_CHECK(offset >= Bytes{0} && size >= Bytes{0} && offset + size <= capacity());
  return bytes_.subspan(static_cast<std::size_t>(offset.count()), static_cast<std::size_t>(size.count()));
}

void Arena::use(Bytes end) {
  POPRUN_CHECK(end <= capacity());
  high_water_ = std::max(high_water_, end);
}

void Arena::poison(Bytes offset, Bytes size) const {
  std::ranges::fill(at(offset, size), std::byte{0xFF});
}

std::span<std::byte> HostImages::of(std::uint32_t tensor) const {
  const proto::Tensor& t = program_.tensors(static_cast<int>(tensor));
  return arenas_.at(memory_of(program_, t))
      .at(Bytes{static_cast<std::int64_t>(t.placement().offset())}, Bytes{static_cast<std::int64_t>(t.bytes())});
}

Result<std::span<std::byte>> StreamingMemory::allocate(Bytes size) {
  if (size == Bytes{}) {
    return std::span<std::byte>{};
  }
  const auto count = static_cast<std::size_t>(size.count());
  bytes_.reset(static_cast<std::byte*>(std::calloc(count, 1)));
  if (!bytes_) {
    return fail(ErrorCode::kHostResources,
                fmt::format("cannot allocate {} B for emulated Streaming Memory; use a machine with more memory, put "
                            "fewer replicas on it, or keep less off-chip ([memory])",
                            size.count()));
  }
  return std::span<std::byte>(bytes_.get(), count);
}

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
