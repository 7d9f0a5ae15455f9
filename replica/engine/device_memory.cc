#include "replica/engine/device_memory.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

#include "replica/program/mapping.h"

namespace poprun {
namespace {

Bytes bytes(std::uint64_t count) {
  return Bytes{static_cast<std::int64_t>(count)};
}

constexpr std::byte kPoison{0xFF};  // NaN in every float format.
constexpr Bytes kWord{8};           // Bytes that a tile loads at a time.

std::uint32_t steps_of(const Program& program) {
  std::uint32_t steps = 0;
  for (const proto::IpuMemory& memory : program.memory()) {
    for (const proto::TileClaim& claim : memory.layout().claims()) {
      steps = std::max(steps, claim.lives(claim.lives_size() - 1).last() + 1);
    }
  }
  return steps;
}

/// Returns the bytes of a tensor's image in common memory.
template <typename Memory>
Memory image_in(Memory memory, const proto::Tensor& tensor) {
  return memory.subspan(tensor.placement().offset(), tensor.bytes());
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

bool HostImages::is_shared(std::uint32_t tensor) const {
  return !commons_.empty() && program_.tensors(static_cast<int>(tensor)).common();
}

std::span<std::byte> HostImages::of(std::uint32_t tensor) const {
  if (elsewhere_[tensor] != nullptr) {
    return {elsewhere_[tensor], program_.tensors(static_cast<int>(tensor)).bytes()};
  }
  if (!is_shared(tensor)) {
    return in_arena(tensor);
  }
  const proto::Tensor& t = program_.tensors(static_cast<int>(tensor));
  const std::span<const std::byte> image = image_in(commons_.at(memory_of(program_, t)).image, t);
  // NOLINTNEXTLINE: kernels take the addresses of all operands in this form; the pages are read-only.
  return {const_cast<std::byte*>(image.data()), image.size()};
}

std::span<std::byte> HostImages::writable(std::uint32_t tensor) const {
  const proto::Tensor& t = program_.tensors(static_cast<int>(tensor));
  return image_in(commons_.at(memory_of(program_, t)).writable, t);
}

bool HostImages::is_lent(std::uint32_t tensor) const {
  const std::span<const std::byte> place = in_arena(tensor);
  for (std::uint32_t other = 0; other < elsewhere_.size(); ++other) {
    const std::byte* begin = elsewhere_[other];
    if (begin != nullptr && begin < place.data() + place.size() && place.data() < begin + of(other).size()) {
      return true;
    }
  }
  return false;
}

Bytes common_capacity(const Program& program, std::size_t ipu) {
  std::uint64_t end = 0;
  for (const proto::Tensor& tensor : program.tensors()) {
    if (tensor.common() && memory_of(program, tensor) == ipu) {
      end = std::max(end, tensor.placement().offset() + tensor.bytes());
    }
  }
  return bytes(end);
}

void release_pages(std::span<std::byte> bytes) {
  constexpr std::uintptr_t kPage = 4096;
  const auto begin = (reinterpret_cast<std::uintptr_t>(bytes.data()) + kPage - 1) / kPage * kPage;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size()) / kPage * kPage;
  if (begin >= end) {
    return;
  }
  // NOLINTNEXTLINE: the first whole page of the bytes.
  auto* const pages = reinterpret_cast<void*>(begin);
  if (::madvise(pages, end - begin, MADV_REMOVE) != 0) {  // Memory of threads is not a file.
    ::madvise(pages, end - begin, MADV_DONTNEED);
  }
}

std::span<std::byte> HostImages::in_arena(std::uint32_t tensor) const {
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
                fmt::format("cannot allocate {} B for emulated Streaming Memory; use a machine with more memory, run "
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

TileMemory::TileMemory(const Program& program)
    : program_(program), runs_(static_cast<std::size_t>(program.tensors_size())) {
  const std::uint32_t steps = steps_of(program);
  for (const proto::IpuMemory& memory : program.memory()) {
    Ipu& ipu = ipus_.emplace_back();
    const std::size_t tiles = memory.capacity() / memory.bytes_per_tile();
    ipu.bytes_per_tile = static_cast<std::size_t>(tile_capacity(memory).count());
    ipu.bytes.assign(tiles * ipu.bytes_per_tile, kPoison);
    ipu.taken.resize(steps);
    ipu.high_water.resize(tiles);
    lay_out(memory, ipu);
  }
}

void TileMemory::lay_out(const proto::IpuMemory& memory, Ipu& ipu) {
  const proto::TileLayout& layout = memory.layout();
  for (int i = 0; i < layout.claims_size(); ++i) {
    const proto::TileClaim& claim = layout.claims(i);
    for (const std::uint32_t tensor : claim.tensors()) {
      lay_out_tensor(tensor, memory, i);
    }
    if (!claim.tensors().empty()) {
      continue;
    }
    const bool whole_run =
        claim.lives_size() == 1 && claim.lives(0).first() == 0 && claim.lives(0).last() + 1 == ipu.taken.size();
    for (const proto::TileClass& one : layout.classes()) {
      for (const std::uint32_t tile : one.tiles()) {
        const Block block{tile * ipu.bytes_per_tile + one.offsets(i), one.bytes(i)};
        if (block.bytes == 0) {
          continue;
        }
        if (whole_run) {  // Code is present before the first step.
          mark(ipu, block);
          continue;
        }
        for (const proto::Span& span : claim.lives()) {
          for (std::uint32_t step = span.first(); step <= span.last(); ++step) {
            ipu.taken[step].push_back(block);
          }
        }
      }
    }
  }
}

void TileMemory::mark(Ipu& ipu, const Block& block) {
  const std::size_t tile = block.tile_byte / ipu.bytes_per_tile;
  const std::size_t end = block.tile_byte + block.bytes - tile * ipu.bytes_per_tile;
  ipu.high_water[tile] = std::max(ipu.high_water[tile], align_up(Bytes{static_cast<std::int64_t>(end)}, kWord));
}

void TileMemory::lay_out_tensor(std::uint32_t tensor, const proto::IpuMemory& memory, int claim) {
  const proto::Tensor& source = program_.tensors(static_cast<int>(tensor));
  const Mapping mapping = from_proto(source.mapping());
  const auto tiles = static_cast<std::int64_t>(memory.capacity() / memory.bytes_per_tile());
  const std::int64_t computing = tiles - program_.device().io_tiles();
  const auto bytes_per_tile = static_cast<std::size_t>(tile_capacity(memory).count());
  std::vector<std::size_t> next(static_cast<std::size_t>(tiles));  // Indexed by tile.
  for (const proto::TileClass& one : memory.layout().classes()) {
    for (const std::uint32_t tile : one.tiles()) {
      next[tile] = tile * bytes_per_tile + one.offsets(claim);
    }
  }
  const auto width = source.bytes() / static_cast<std::uint64_t>(mapping.elements());
  visit_elements(mapping, computing, [&](std::int64_t tile, ElementRange range) {
    const std::size_t bytes = static_cast<std::size_t>(range.count) * width;
    std::size_t& at = next[static_cast<std::size_t>(tile)];
    runs_[tensor].push_back({at, static_cast<std::size_t>(range.begin) * width, bytes});
    at += bytes;
  });
}

void TileMemory::gather(std::uint32_t tensor, std::span<std::byte> image) const {
  const Ipu& ipu = ipus_.at(program_.tensors(static_cast<int>(tensor)).placement().ipu());
  for (const Run& run : runs_[tensor]) {
    std::memcpy(&image[run.image_byte], &ipu.bytes[run.tile_byte], run.bytes);
  }
}

void TileMemory::scatter(std::uint32_t tensor, std::span<const std::byte> image) {
  Ipu& ipu = ipus_.at(program_.tensors(static_cast<int>(tensor)).placement().ipu());
  for (const Run& run : runs_[tensor]) {
    std::memcpy(&ipu.bytes[run.tile_byte], &image[run.image_byte], run.bytes);
    mark(ipu, {run.tile_byte, run.bytes});
  }
}

void TileMemory::begin(std::uint32_t step) {
  for (Ipu& ipu : ipus_) {
    for (const Block& block : ipu.taken[step]) {
      std::memset(&ipu.bytes[block.tile_byte], static_cast<int>(kPoison), block.bytes);
      mark(ipu, block);
    }
  }
}

void TileMemory::poison(std::uint32_t tensor) {
  Ipu& ipu = ipus_.at(program_.tensors(static_cast<int>(tensor)).placement().ipu());
  for (const Run& run : runs_[tensor]) {
    std::memset(&ipu.bytes[run.tile_byte], static_cast<int>(kPoison), run.bytes);
  }
}

}  // namespace poprun
