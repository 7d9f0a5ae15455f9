#include "collectives/local/node_segment.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace poprun::collectives {
namespace {

std::string failed(const std::string& what, Bytes size) {
  return "cannot " + what + " " + std::to_string(size.count()) +
         " B of memory for the exchange: " + std::strerror(errno);
}

constexpr Bytes kPage{4096};
constexpr Bytes kNonceBytes = kPage;  ///< The page with the nonce, before the rooms.

// The low bits of `Place::owner` contain a region's index within its segment. The bits above them contain the number of
// levels from the group up to that segment.
constexpr std::int64_t kSegmentAbove = std::int64_t{1} << 32;

Bytes control_bytes(std::size_t replicas) {
  return align_up(Rendezvous::bytes_needed(replicas), kPage);
}

Bytes segment_bytes(std::size_t replicas, Bytes wire) {
  return kNonceBytes + NodeSegment::room_bytes(replicas, wire) * static_cast<std::int64_t>(replicas);
}

Bytes stride_of(Bytes size) {
  return align_up(std::max(size, Bytes{1}), kPage);
}

}  // namespace

SharedMemory::~SharedMemory() {
  close_file();
  if (data_ != nullptr) {
    ::munmap(data_, size_);
  }
}

Result<SharedMemory> SharedMemory::create_for_threads(Bytes size) {
  SharedMemory memory;
  POPRUN_TRY(memory.map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1));
  return memory;
}

Result<SharedMemory> SharedMemory::create_for_processes(Bytes size) {
  SharedMemory memory;
  memory.file_ = ::memfd_create("poprun-exchange", MFD_CLOEXEC);
  if (memory.file_ < 0) {
    return fail(ErrorCode::kHostResources,
                failed("create", size) + "; check ulimit -n, or use --num-instances 1, which needs no file");
  }
  if (::ftruncate(memory.file_, size.count()) != 0) {
    return fail(ErrorCode::kHostResources, failed("reserve", size) + "; check ulimit -f");
  }
  POPRUN_TRY(memory.map(size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file_));
  return memory;
}

Result<SharedMemory> SharedMemory::open(FileAddress address, Bytes size) {
  const std::string path = "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.descriptor);
  SharedMemory memory;
  memory.file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (memory.file_ < 0) {
    const bool lacks = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return fail(lacks ? ErrorCode::kHostResources : ErrorCode::kUnreachable,
                failed("open " + path + " as", size) +
                    "; processes on one host must run as one user in the same pid namespace");
  }
  struct stat status {};
  if (::fstat(memory.file_, &status) != 0 || status.st_size != size.count()) {
    return fail(ErrorCode::kUnreachable, path + " holds " + std::to_string(status.st_size) +
                                             " B, but the peer's memory has " + std::to_string(size.count()) +
                                             " B; check that the processes are in the same pid namespace");
  }
  POPRUN_TRY(memory.map(size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file_));
  return memory;
}

Result<SharedMemory> SharedMemory::read_only() const {
  POPRUN_CHECK(file_ >= 0);
  SharedMemory memory;
  POPRUN_TRY(memory.map(Bytes{static_cast<std::int64_t>(size_)}, PROT_READ, MAP_SHARED, file_));
  return memory;
}

FileAddress SharedMemory::address() const {
  return file_ < 0 ? FileAddress{} : FileAddress{::getpid(), file_};
}

void SharedMemory::close_file() {
  if (file_ >= 0) {
    ::close(file_);
    file_ = -1;
  }
}

Status SharedMemory::map(Bytes size, int protection, int flags, int file) {
  const auto length = static_cast<std::size_t>(size.count());
  void* data = ::mmap(nullptr, length, protection, flags | MAP_NORESERVE, file, 0);
  if (data == MAP_FAILED) {  // NOLINT: the macro casts an integer to a pointer.
    return fail(ErrorCode::kHostResources, failed("map", size) + "; check ulimit -v");
  }
  data_ = static_cast<std::byte*>(data);
  size_ = length;
  return {};
}

void SharedMemory::swap(SharedMemory& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(file_, other.file_);
}

NodeSegment::NodeSegment(Peers peers, std::size_t replicas, Bytes wire, SharedMemory memory)
    : peers_(peers), replicas_(replicas), memory_(std::move(memory)) {
  const auto stride = static_cast<std::size_t>(room_bytes(replicas, wire).count());
  for (std::size_t r = 0; r < replicas; ++r) {
    rooms_.push_back(memory_.data() + kNonceBytes.count() + r * stride);
  }
}

NodeSegment::NodeSegment(const NodeSegment& parent, std::size_t region, std::vector<std::size_t> members)
    : peers_(parent.peers_), replicas_(members.size()), parent_(&parent), members_(std::move(members)) {
  for (const std::size_t member : members_) {
    rooms_.push_back(parent.regions_[region].at(member));
  }
}

Bytes NodeSegment::room_bytes(std::size_t replicas, Bytes wire) {
  const Bytes here{static_cast<std::int64_t>(2 * kMailBytes + kStagingBytes)};
  return align_up(control_bytes(replicas) + here + wire, kPage);
}

NodeSegment& NodeSegment::group(std::size_t region, const std::vector<std::size_t>& members) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<NodeSegment>& segment = groups_[{region, members.front()}];
  if (segment == nullptr) {
    segment.reset(new NodeSegment(*this, region, members));
  }
  return *segment;
}

Result<std::unique_ptr<NodeSegment>> NodeSegment::create(Peers peers, std::size_t replicas, Bytes wire) {
  const Bytes size = segment_bytes(replicas, wire);
  POPRUN_ASSIGN(SharedMemory memory, peers == Peers::kThreads ? SharedMemory::create_for_threads(size)
                                                              : SharedMemory::create_for_processes(size));
  std::uint64_t nonce = 0;
  if (::getentropy(&nonce, sizeof(nonce)) != 0) {
    return fail(ErrorCode::kHostResources, "the operating system did not provide random numbers (getentropy)");
  }
  std::memcpy(memory.data(), &nonce, sizeof(nonce));
  std::unique_ptr<NodeSegment> segment(new NodeSegment(peers, replicas, wire, std::move(memory)));
  Rendezvous::initialise(segment->control(), replicas);
  return segment;
}

Result<std::unique_ptr<NodeSegment>> NodeSegment::open(FileAddress address, std::uint64_t nonce, std::size_t replicas,
                                                       Bytes wire) {
  POPRUN_ASSIGN(SharedMemory memory, SharedMemory::open(address, segment_bytes(replicas, wire)));
  std::unique_ptr<NodeSegment> segment(new NodeSegment(Peers::kProcesses, replicas, wire, std::move(memory)));
  if (segment->nonce() != nonce) {
    return fail(ErrorCode::kUnreachable,
                "process " + std::to_string(address.process) +
                    " is not the peer that offered its memory; processes on one host must run in "
                    "the same pid namespace");
  }
  return segment;
}

std::uint64_t NodeSegment::nonce() const {
  std::uint64_t nonce = 0;
  std::memcpy(&nonce, memory_.data(), sizeof(nonce));
  return nonce;
}

void NodeSegment::close_files() {
  const std::lock_guard lock(mutex_);
  memory_.close_file();
  for (Region& region : regions_) {
    region.memory.close_file();
  }
  for (Common& common : commons_) {
    common.writable.close_file();
  }
}

std::byte* NodeSegment::mail(std::size_t replica, std::uint64_t sequence) const {
  return rooms_[replica] + control_bytes(replicas_).count() + sequence % 2 * kMailBytes;
}

Result<Bytes> NodeSegment::region_size(Bytes size) const {
  const auto replicas = static_cast<std::int64_t>(replicas_);
  if (size.count() > std::numeric_limits<std::int64_t>::max() / 2 / replicas) {
    return fail(ErrorCode::kHostResources, std::to_string(size.count()) + " B for each of " + std::to_string(replicas) +
                                               " replicas do not fit in the address space");
  }
  return stride_of(size) * replicas;
}

void NodeSegment::add_region(SharedMemory memory, Bytes size) {
  const std::lock_guard lock(mutex_);
  regions_.push_back(
      {std::move(memory), static_cast<std::size_t>(size.count()), static_cast<std::size_t>(stride_of(size).count())});
}

std::size_t NodeSegment::region_count() const {
  const std::lock_guard lock(mutex_);
  return regions_.size();
}

Status NodeSegment::add_common(SharedMemory memory) {
  POPRUN_ASSIGN(SharedMemory image, memory.read_only());
  const std::lock_guard lock(mutex_);
  commons_.push_back({std::move(memory), std::move(image)});
  return {};
}

CommonMemory NodeSegment::newest_common(Bytes size) const {
  const std::lock_guard lock(mutex_);
  const auto count = static_cast<std::size_t>(size.count());
  return {{commons_.back().image.data(), count}, {commons_.back().writable.data(), count}};
}

std::byte* NodeSegment::at(Place place, std::size_t replica) const {
  if (place.owner >= kSegmentAbove) {
    return parent_->at({place.owner - kSegmentAbove, place.where}, members_[replica]);
  }
  const std::lock_guard lock(mutex_);
  return regions_[static_cast<std::size_t>(place.owner)].at(replica) + place.where;
}

Place NodeSegment::find(std::size_t replica, std::span<const std::byte> bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      const Region& region = regions_[i];
      const auto base = reinterpret_cast<std::uintptr_t>(region.at(replica));
      if (begin >= base && begin - base <= region.size && bytes.size() <= region.size - (begin - base)) {
        return {static_cast<std::int64_t>(i), static_cast<std::int64_t>(begin - base)};
      }
    }
  }
  Place place = parent_ == nullptr ? Place{} : parent_->find(members_[replica], bytes);
  if (place.owner >= 0) {
    place.owner += kSegmentAbove;
  }
  return place;
}

}  // namespace poprun::collectives
