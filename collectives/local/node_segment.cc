#include "collectives/local/node_segment.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include <unistd.h>

namespace poprun::collectives {
namespace {

constexpr Bytes kPage{4096};
constexpr Bytes kNonceBytes{64};

Bytes control_bytes(std::size_t replicas) {
  return align_up(kNonceBytes + Rendezvous::bytes_needed(replicas), kPage);
}

Bytes segment_bytes(std::size_t replicas, Bytes wire) {
  return control_bytes(replicas) +
         Bytes{
             static_cast<std::int64_t>(2 * NodeSegment::kMailBytes + NodeSegment::kStagingBytes)} *
             static_cast<std::int64_t>(replicas) +
         wire;
}

Bytes stride_of(Bytes size) {
  return align_up(std::max(size, Bytes{1}), kPage);
}

}  // namespace

NodeSegment::NodeSegment(Peers peers, std::size_t replicas, SharedMemory memory)
    : peers_(peers), replicas_(replicas), memory_(std::move(memory)) {}

Result<std::unique_ptr<NodeSegment>> NodeSegment::create(Peers peers, std::size_t replicas,
                                                         Bytes wire) {
  const Bytes size = segment_bytes(replicas, wire);
  POPRUN_ASSIGN(SharedMemory memory, peers == Peers::kThreads
                                         ? SharedMemory::create_for_threads(size)
                                         : SharedMemory::create_for_processes(size));
  std::uint64_t nonce = 0;
  if (::getentropy(&nonce, sizeof(nonce)) != 0) {
    return fail(ErrorCode::kUnreachable, "the system has no random numbers (getentropy)");
  }
  std::memcpy(memory.data(), &nonce, sizeof(nonce));
  Rendezvous::initialise(memory.data() + kNonceBytes.count(), replicas);
  return std::unique_ptr<NodeSegment>(new NodeSegment(peers, replicas, std::move(memory)));
}

Result<std::unique_ptr<NodeSegment>> NodeSegment::open(FileAddress address, std::uint64_t nonce,
                                                       std::size_t replicas, Bytes wire) {
  POPRUN_ASSIGN(SharedMemory memory, SharedMemory::open(address, segment_bytes(replicas, wire)));
  std::unique_ptr<NodeSegment> segment(
      new NodeSegment(Peers::kProcesses, replicas, std::move(memory)));
  if (segment->nonce() != nonce) {
    return fail(ErrorCode::kUnreachable,
                "process " + std::to_string(address.process) +
                    " is not the peer that offered its memory; processes of one host must run in "
                    "one pid namespace");
  }
  return segment;
}

std::uint64_t NodeSegment::nonce() const {
  std::uint64_t nonce = 0;
  std::memcpy(&nonce, memory_.data(), sizeof(nonce));
  return nonce;
}

void NodeSegment::close_files() {
  memory_.close_file();
  for (Region& region : regions_) {
    region.memory.close_file();
  }
}

std::byte* NodeSegment::control() const {
  return memory_.data() + kNonceBytes.count();
}

std::byte* NodeSegment::mail(std::size_t replica, std::uint64_t sequence) const {
  return memory_.data() + control_bytes(replicas_).count() +
         (2 * replica + sequence % 2) * kMailBytes;
}

std::byte* NodeSegment::staging(std::size_t replica) const {
  return mail(replicas_, 0) + replica * kStagingBytes;
}

Result<Bytes> NodeSegment::region_size(Bytes size) const {
  const auto replicas = static_cast<std::int64_t>(replicas_);
  if (size.count() > std::numeric_limits<std::int64_t>::max() / 2 / replicas) {
    return fail(ErrorCode::kUnreachable, std::to_string(size.count()) + " B for each of " +
                                             std::to_string(replicas) +
                                             " replicas are more than the address space holds");
  }
  return stride_of(size) * replicas;
}

void NodeSegment::add_region(SharedMemory memory, Bytes size) {
  regions_.push_back({std::move(memory), static_cast<std::size_t>(size.count()),
                      static_cast<std::size_t>(stride_of(size).count())});
}

std::byte* NodeSegment::at(Place place, std::size_t replica) const {
  const Region& region = regions_[static_cast<std::size_t>(place.owner)];
  return region.memory.data() + replica * region.stride + place.where;
}

Place NodeSegment::find(std::size_t replica, std::span<const std::byte> bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    const Region& region = regions_[i];
    const auto base =
        reinterpret_cast<std::uintptr_t>(region.memory.data()) + replica * region.stride;
    if (begin >= base && begin - base <= region.size &&
        bytes.size() <= region.size - (begin - base)) {
      return {static_cast<std::int64_t>(i), static_cast<std::int64_t>(begin - base)};
    }
  }
  return {};
}

}  // namespace poprun::collectives
