#include "collectives/mpi/spread_communicator.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "collectives/local/tree_reduce.h"
#include "collectives/patterns/slices.h"

namespace poprun::collectives {
namespace {

/// Of one replica's data, exchanged at a time.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20U;

/// Bytes of a slice among others, so that each begins at a line.
std::size_t padded(Slice slice) {
  return (slice.size() + kLineBytes - 1) / kLineBytes * kLineBytes;
}

std::span<std::byte> part_of(std::vector<std::byte>& bytes, std::size_t begin, std::size_t size) {
  return std::span(bytes).subspan(begin, size);
}

}  // namespace

SpreadProcess::SpreadProcess(std::unique_ptr<PeerExchange> exchange,
                             std::chrono::milliseconds deadline)
    : exchange_(std::move(exchange)), deadline_(deadline) {
  for (const Member& member : exchange_->members()) {
    replicas_ += member.count;
  }
  jobs_.resize(member().count);
  outgoing_.resize(processes());
  incoming_.resize(processes());
}

Result<std::unique_ptr<SpreadProcess>> SpreadProcess::create(std::unique_ptr<PeerExchange> exchange,
                                                             std::chrono::milliseconds deadline) {
  std::unique_ptr<SpreadProcess> process(new SpreadProcess(std::move(exchange), deadline));
  const std::size_t local = process->jobs_.size();
  POPRUN_ASSIGN(process->control_,
                SharedMemory::create_for_threads(Rendezvous::bytes_needed(local)));
  Rendezvous::initialise(process->control(), local);
  return process;
}

Status SpreadProcess::lead(const Call& call, std::uint64_t sequence) {
  limit_ = Clock::now() + deadline_;
  Status status = agree(call, sequence);
  if (status) {
    status = carry_out(call);
  }
  if (!status && status.error().code == ErrorCode::kInfrastructure) {
    status.error().message = std::string(name_of(call.kind)) + " " + std::to_string(sequence) +
                             ": " + status.error().message + " within " + describe(deadline_);
  }
  return status;
}

Status SpreadProcess::agree(const Call& call, std::uint64_t sequence) {
  sent_.resize(sizeof(Call));
  std::memcpy(sent_.data(), &call, sizeof(Call));
  received_.resize(processes() * sizeof(Call));
  for (std::size_t p = 0; p < processes(); ++p) {
    outgoing_[p] = sent_;
    incoming_[p] = part_of(received_, p * sizeof(Call), sizeof(Call));
  }
  POPRUN_TRY(exchange());
  std::vector<Call> calls;
  for (std::size_t p = 0; p < processes(); ++p) {
    Call theirs;
    std::memcpy(&theirs, incoming_[p].data(), sizeof(Call));
    calls.insert(calls.end(), exchange_->members()[p].count, theirs);
  }
  if (const auto message = disagreement(sequence, 0, calls)) {
    return fail(ErrorCode::kBug, *message);
  }
  return {};
}

Status SpreadProcess::carry_out(const Call& call) {
  switch (call.kind) {
    case CallKind::kAllReduce:
      return all_reduce(call);
    case CallKind::kReduceScatter:
      return reduce_scatter(call);
    case CallKind::kAllGather:
      return all_gather(call);
    case CallKind::kBroadcast:
      return broadcast(call);
    case CallKind::kAllocate:
    case CallKind::kBarrier:
      return {};
  }
  return {};
}

Status SpreadProcess::all_reduce(const Call& call) {
  std::vector<const std::byte*> sources(replicas_);
  for (std::size_t begin = 0; begin < call.bytes; begin += kChunkBytes) {
    const std::size_t size = std::min(kChunkBytes, call.bytes - begin);
    const Slice mine = slice_of(size, processes(), exchange_->self());
    sent_.resize(member().count * (size + processes() * kLineBytes));
    received_.resize(replicas_ * padded(mine));
    std::size_t at = 0;
    for (std::size_t q = 0; q < processes(); ++q) {
      const Slice slice = slice_of(size, processes(), q);
      outgoing_[q] = part_of(sent_, at, member().count * padded(slice));
      for (const Job& job : jobs_) {
        job.buffers.copy_out(begin + slice.begin, part_of(sent_, at, slice.size()));
        at += padded(slice);
      }
      const Member& peer = exchange_->members()[q];
      incoming_[q] = part_of(received_, peer.first * padded(mine), peer.count * padded(mine));
    }
    POPRUN_TRY(exchange());

    result_.resize(size);
    sent_.resize(mine.size());
    for (const Extent& extent : jobs_[0].buffers.extents({begin + mine.begin, begin + mine.end})) {
      const std::size_t offset = extent.bytes.begin - begin - mine.begin;
      for (std::size_t r = 0; r < replicas_; ++r) {
        sources[r] = received_.data() + r * padded(mine) + offset;
      }
      std::byte* const target = sent_.data() + offset;
      tree_reduce(call.reduction, extent.type, sources, std::span(&target, 1),
                  extent.bytes.size() / size_of(extent.type));
    }
    for (std::size_t q = 0; q < processes(); ++q) {
      const Slice slice = slice_of(size, processes(), q);
      outgoing_[q] = sent_;
      incoming_[q] = part_of(result_, slice.begin, slice.size());
    }
    POPRUN_TRY(exchange());
    for (const Job& job : jobs_) {
      job.buffers.copy_in(begin, result_);
    }
  }
  return {};
}

// A message from p to q is [replicas of p, replicas of q, row]: for each of p's replicas the bytes
// of the shards of q's.
Status SpreadProcess::reduce_scatter(const Call& call) {
  const std::size_t shard = call.bytes / replicas_;
  const std::size_t chunk = std::max(kLineBytes, kChunkBytes / replicas_ / kLineBytes * kLineBytes);
  const ElementType type = jobs_[0].type;
  std::vector<const std::byte*> sources(replicas_);
  for (std::size_t begin = 0; begin < shard; begin += chunk) {
    const std::size_t row = std::min(chunk, shard - begin);
    const std::size_t local = member().count;
    sent_.resize(local * replicas_ * row);
    received_.resize(local * replicas_ * row);
    std::size_t at = 0;
    for (std::size_t q = 0; q < processes(); ++q) {
      const Member& peer = exchange_->members()[q];
      outgoing_[q] = part_of(sent_, at, local * peer.count * row);
      incoming_[q] = part_of(received_, peer.first * local * row, peer.count * local * row);
      for (const Job& job : jobs_) {
        for (std::size_t r = peer.first; r < peer.first + peer.count; ++r) {
          std::memcpy(sent_.data() + at, job.source.data() + r * shard + begin, row);
          at += row;
        }
      }
    }
    POPRUN_TRY(exchange());
    for (std::size_t i = 0; i < local; ++i) {
      for (std::size_t r = 0; r < replicas_; ++r) {
        sources[r] = received_.data() + (r * local + i) * row;
      }
      std::byte* const target = jobs_[i].target.data() + begin;
      tree_reduce(call.reduction, type, sources, std::span(&target, 1), row / size_of(type));
    }
  }
  return {};
}

Status SpreadProcess::all_gather(const Call& call) {
  const std::size_t total = call.bytes;
  for (std::size_t begin = 0; begin < total; begin += kChunkBytes) {
    const std::size_t count = std::min(kChunkBytes, total - begin);
    sent_.resize(member().count * count);
    received_.resize(replicas_ * count);
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      std::memcpy(sent_.data() + i * count, jobs_[i].source.data() + begin, count);
    }
    for (std::size_t q = 0; q < processes(); ++q) {
      const Member& peer = exchange_->members()[q];
      outgoing_[q] = sent_;
      incoming_[q] = part_of(received_, peer.first * count, peer.count * count);
    }
    POPRUN_TRY(exchange());
    for (const Job& job : jobs_) {
      for (std::size_t r = 0; r < replicas_; ++r) {
        std::memcpy(job.target.data() + r * total + begin, received_.data() + r * count, count);
      }
    }
  }
  return {};
}

Status SpreadProcess::broadcast(const Call& call) {
  const std::size_t root = index_of(call.root);
  const bool sends = root >= member().first && root < member().first + member().count;
  for (std::size_t begin = 0; begin < call.bytes; begin += kChunkBytes) {
    const std::size_t count = std::min(kChunkBytes, call.bytes - begin);
    received_.resize(count);
    if (sends) {
      std::memcpy(received_.data(), jobs_[root - member().first].target.data() + begin, count);
    }
    for (std::size_t q = 0; q < processes(); ++q) {
      const Member& peer = exchange_->members()[q];
      const bool is_root = root >= peer.first && root < peer.first + peer.count;
      const bool to_peer = sends && !is_root;
      outgoing_[q] = std::span(received_).first(to_peer ? count : 0);
      incoming_[q] = std::span(received_).first(!sends && is_root ? count : 0);
    }
    POPRUN_TRY(exchange());
    for (const Job& job : jobs_) {
      std::memcpy(job.target.data() + begin, received_.data(), count);
    }
  }
  return {};
}

Status SpreadProcess::exchange() {
  return exchange_->exchange(outgoing_, incoming_, limit_);
}

SpreadCommunicator::SpreadCommunicator(SpreadProcess& process, std::size_t local)
    : process_(&process),
      local_(local),
      rendezvous_({.memory = process.control(),
                   .replicas = process.member().count,
                   .self = local,
                   .first = process.member().first,
                   .deadline = process.deadline()}) {}

ReplicaId SpreadCommunicator::self() const {
  return static_cast<ReplicaId>(process_->member().first + local_);
}

Status SpreadCommunicator::run(const Call& call, SpreadProcess::Job job) {
  process_->job(local_) = std::move(job);
  POPRUN_TRY(rendezvous_.open(call));
  if (local_ == 0) {
    if (Status status = process_->lead(call, rendezvous_.sequence()); !status) {
      return rendezvous_.give_up(std::move(status).error());
    }
  }
  // The leader has the deadline for its part, and speaks first where that is not enough.
  return rendezvous_.wait(process_->deadline());
}

Result<std::span<std::byte>> SpreadCommunicator::allocate(Bytes size) {
  POPRUN_CHECK(size >= Bytes{0});
  POPRUN_TRY(
      run({.kind = CallKind::kAllocate, .bytes = static_cast<std::uint64_t>(size.count())}, {}));
  POPRUN_ASSIGN(SharedMemory memory, SharedMemory::create_for_threads(std::max(size, Bytes{1})));
  allocated_.push_back(std::move(memory));
  return std::span(allocated_.back().data(), static_cast<std::size_t>(size.count()));
}

Status SpreadCommunicator::all_reduce(Reduction reduction, std::span<const Buffer> buffers) {
  POPRUN_TRY(check_reduction(reduction, buffers));
  return run(call_of_all_reduce(reduction, buffers), {.buffers = Pieces(buffers)});
}

Status SpreadCommunicator::reduce_scatter(Reduction reduction, ElementType type,
                                          std::span<const std::byte> data,
                                          std::span<std::byte> shard) {
  POPRUN_CHECK(data.size() == shard.size() * size() && shard.size() % size_of(type) == 0);
  POPRUN_TRY(check_reduction(reduction, type));
  return run(call_of_reduce_scatter(reduction, type, data),
             {.source = data, .target = shard, .type = type});
}

Status SpreadCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  POPRUN_CHECK(all.size() == mine.size() * size());
  return run({.kind = CallKind::kAllGather, .bytes = mine.size()}, {.source = mine, .target = all});
}

Status SpreadCommunicator::broadcast(std::span<std::byte> data, ReplicaId root) {
  POPRUN_CHECK(index_of(root) < size());
  return run({.kind = CallKind::kBroadcast, .root = root, .bytes = data.size()}, {.target = data});
}

Status SpreadCommunicator::barrier() {
  return run({.kind = CallKind::kBarrier}, {});
}

}  // namespace poprun::collectives
