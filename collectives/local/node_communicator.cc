#include "collectives/local/node_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "collectives/local/call.h"
#include "collectives/patterns/shares.h"

namespace poprun::collectives {
namespace {

/// Largest number of bytes that a replica may read in an all-reduce through mailboxes, in which it reads all payloads.
constexpr std::size_t kMailReadBytes = std::size_t{32} << 10U;

/// Returns how many bytes of each shard fit if one staging area holds a chunk of every shard. The result is a multiple
/// of a cache line.
std::size_t shard_chunk(std::size_t replicas) {
  return NodeSegment::kStagingBytes / replicas / kLineBytes * kLineBytes;
}

NodeCommunicator::Options with_numbers(NodeCommunicator::Options options, const NodeSegment& segment) {
  if (options.numbers.empty()) {
    options.numbers.resize(segment.replicas());
    std::iota(options.numbers.begin(), options.numbers.end(), std::size_t{0});
  }
  POPRUN_CHECK(options.numbers.size() == segment.replicas());
  if (options.log == nullptr) {
    options.log = std::make_shared<CallLog>();
  }
  return options;
}

}  // namespace

std::vector<Piece> find_pieces(const NodeSegment& segment, std::size_t replica, std::span<const Buffer> buffers) {
  std::vector<Piece> pieces;
  for (const Buffer& buffer : buffers) {
    if (!buffer.bytes.empty()) {
      pieces.push_back({.type = buffer.type,
                        .bytes = buffer.bytes,
                        .place = segment.find(replica, buffer.bytes),
                        .owner = buffer.owner});
    }
  }
  return pieces;
}

Call call_of_all_reduce(Reduction reduction, std::span<const Buffer> buffers, std::span<const Piece> pieces) {
  Call call{.kind = CallKind::kAllReduce, .reduction = reduction, .layout = kLayoutSeed};
  for (const Piece& piece : pieces) {
    call.bytes += piece.bytes.size();
    for (const std::uint64_t word :
         {static_cast<std::uint64_t>(piece.type), std::uint64_t{piece.bytes.size()}, std::uint64_t{piece.owner},
          static_cast<std::uint64_t>(piece.place.owner), static_cast<std::uint64_t>(piece.place.where)}) {
      call.layout = mix_layout(call.layout, word);
    }
  }
  for (const Buffer& buffer : buffers) {
    call.add_name(buffer.name);
  }
  return call;
}

NodeCommunicator::NodeCommunicator(NodeSegment& segment, const Options& options)
    : segment_(&segment),
      options_(with_numbers(options, segment)),
      rendezvous_({.memory = segment.control(),
                   .numbers = options_.numbers,
                   .among = options.among,
                   .self = options.self,
                   .deadline = options.deadline,
                   .last_excuse = options.last_excuse,
                   .log = options_.log,
                   .agree = options.agree}),
      sources_(segment.replicas()),
      targets_(segment.replicas()) {}

Result<std::span<std::byte>> NodeCommunicator::allocate(Bytes size) {
  POPRUN_CHECK(size >= Bytes{0});
  POPRUN_TRY(share_region({.kind = CallKind::kAllocate, .bytes = static_cast<std::uint64_t>(size.count())}, size));
  const Place newest{static_cast<std::int64_t>(segment_->region_count()) - 1, 0};
  return std::span(segment_->at(newest, options_.self), static_cast<std::size_t>(size.count()));
}

Result<CommonMemory> NodeCommunicator::allocate_common(Bytes size) {
  POPRUN_CHECK(size >= Bytes{0});
  const Call call{.kind = CallKind::kAllocateCommon, .bytes = static_cast<std::uint64_t>(size.count())};
  POPRUN_TRY(share_memory(call, std::max(size, Bytes{1}), /*has_file=*/true,
                          [&](SharedMemory memory) { return segment_->add_common(std::move(memory)); }));
  return segment_->newest_common(size);
}

Status NodeCommunicator::share_region(const Call& call, Bytes size) {
  const bool has_file = segment_->peers() == NodeSegment::Peers::kProcesses;
  return share_memory(call, segment_->region_size(size), has_file, [&](SharedMemory memory) {
    segment_->add_region(std::move(memory), size);
    return Status{};
  });
}

// Replica 0 creates the memory, the leader of every other process opens it, and the other replicas wait. The creator
// keeps its file open until all processes have opened it.
template <typename Keep>
Status NodeCommunicator::share_memory(const Call& call, const Result<Bytes>& total, bool has_file, const Keep& keep) {
  const bool creates = options_.self == 0;
  const bool opens = !creates && options_.self == options_.process_leader;
  Result<SharedMemory> memory = SharedMemory{};
  if (creates && total) {
    memory = has_file ? SharedMemory::create_for_processes(*total) : SharedMemory::create_for_threads(*total);
  }
  const FileAddress offer = memory ? memory->address() : FileAddress{};
  POPRUN_TRY(rendezvous_.open(call, {offer.process, offer.descriptor}));
  if (!total) {
    return rendezvous_.give_up(total.error());
  }
  const Place found = rendezvous_.place_of(0);
  if (opens && found.owner >= 0) {
    memory = SharedMemory::open({found.owner, found.where}, *total);
    if (!memory && memory.error().code == ErrorCode::kUnreachable) {
      // This process could open the segment, so the creator must have ended.
      const auto creator = static_cast<std::uint32_t>(options_.numbers.front());
      return rendezvous_.give_up({ErrorCode::kInfrastructure,
                                  rendezvous_.call_name() + ": replica " + std::to_string(creator) +
                                      " ended before its memory could be opened",
                                  {.missing = {creator}}});
    }
  }
  if (!memory) {
    return rendezvous_.give_up(memory.error());
  }
  if (memory->data() != nullptr) {
    if (const Status kept = keep(std::move(*memory)); !kept) {
      return rendezvous_.give_up(kept.error());
    }
  }
  Status status = rendezvous_.wait();
  if (creates || opens) {
    segment_->close_files();
  }
  return status;
}

Status NodeCommunicator::all_reduce(Reduction reduction, std::span<const Buffer> buffers) {
  POPRUN_TRY(check_reduction(reduction, buffers));
  const std::vector<Piece> pieces = find_pieces(*segment_, options_.self, buffers);
  return reduce_buffers(reduction, call_of_all_reduce(reduction, buffers, pieces), pieces,
                        [&](std::vector<Piece> placed) { reduce_placed(reduction, Pieces{std::move(placed)}); });
}

Status NodeCommunicator::reduce_to_owners(Reduction reduction, std::span<const Buffer> buffers) {
  POPRUN_TRY(check_reduction(reduction, buffers));
  const std::vector<Piece> pieces = find_pieces(*segment_, options_.self, buffers);
  Call call = call_of_all_reduce(reduction, buffers, pieces);
  call.kind = CallKind::kReduceToOwners;
  return reduce_buffers(reduction, call, pieces,
                        [&](const std::vector<Piece>& placed) { reduce_owned(reduction, placed); });
}

template <typename Reduce>
Status NodeCommunicator::reduce_buffers(Reduction reduction, const Call& call, std::span<const Piece> pieces,
                                        const Reduce& reduce) {
  if (call.bytes <= std::min(NodeSegment::kMailBytes, kMailReadBytes / size())) {
    const Pieces all{{pieces.begin(), pieces.end()}};
    all.copy_out(0, {next_mail(), all.size()});
    POPRUN_TRY(rendezvous_.open(call));
    reduce_mail(reduction, all);
    return {};
  }
  std::vector<Piece> placed;
  std::vector<Piece> elsewhere;
  for (const Piece& piece : pieces) {
    (piece.place.owner >= 0 ? placed : elsewhere).push_back(piece);
  }
  const Pieces others{std::move(elsewhere)};

  const auto staged = [&](Slice chunk) { return std::span(segment_->staging(options_.self), chunk.size()); };
  Slice chunk{0, std::min(others.size(), NodeSegment::kStagingBytes)};
  others.copy_out(chunk.begin, staged(chunk));
  POPRUN_TRY(rendezvous_.open(call));
  reduce(std::move(placed));
  while (true) {
    reduce_staged(reduction, others, chunk);
    POPRUN_TRY(rendezvous_.wait());
    others.copy_in(chunk.begin, staged(chunk));
    if (chunk.end == others.size()) {
      return {};
    }
    chunk = {chunk.end, std::min(others.size(), chunk.end + NodeSegment::kStagingBytes)};
    others.copy_out(chunk.begin, staged(chunk));
    POPRUN_TRY(rendezvous_.wait());
  }
}

void NodeCommunicator::reduce_owned(Reduction reduction, std::span<const Piece> placed) {
  for (const Piece& piece : placed) {
    const OwnedPart own = owned_part(piece.count(), size(), options_.self, piece.owner);
    const std::size_t offset = own.begin * size_of(piece.type);
    for (std::size_t r = 0; r < size(); ++r) {
      sources_[r] = segment_->at(piece.place, r) + offset;
    }
    std::byte* const target = piece.bytes.data() + offset;
    tree_reduce(reduction, piece.type, sources_, std::span(&target, 1), own.count);
  }
}

void NodeCommunicator::reduce_placed(Reduction reduction, const Pieces& pieces) {
  for (const Piece& part : pieces.parts(slice_of(pieces.size(), size(), options_.self))) {
    for (std::size_t r = 0; r < size(); ++r) {
      targets_[r] = segment_->at(part.place, r);
      sources_[r] = targets_[r];
    }
    tree_reduce(reduction, part.type, sources_, targets_, part.count());
  }
}

void NodeCommunicator::reduce_staged(Reduction reduction, const Pieces& pieces, Slice chunk) {
  const Slice mine = slice_of(chunk.size(), size(), options_.self);
  for (const Piece& part : pieces.parts({chunk.begin + mine.begin, chunk.begin + mine.end})) {
    for (std::size_t r = 0; r < size(); ++r) {
      targets_[r] = segment_->staging(r) + (part.whole.begin - chunk.begin);
      sources_[r] = targets_[r];
    }
    tree_reduce(reduction, part.type, sources_, targets_, part.count());
  }
}

void NodeCommunicator::reduce_mail(Reduction reduction, const Pieces& pieces) {
  for (const Piece& part : pieces.parts({0, pieces.size()})) {
    for (std::size_t r = 0; r < size(); ++r) {
      sources_[r] = mail_of(r) + part.whole.begin;
    }
    std::byte* const target = part.bytes.data();
    tree_reduce(reduction, part.type, sources_, std::span(&target, 1), part.count());
  }
}

bool NodeCommunicator::all_placed() const {
  for (std::size_t r = 0; r < size(); ++r) {
    if (rendezvous_.place_of(r).owner < 0) {
      return false;
    }
  }
  return true;
}

template <typename Exchange, typename Stage>
Status NodeCommunicator::in_chunks(std::size_t total, std::size_t chunk, const Exchange& exchange, const Stage& stage) {
  std::size_t begin = 0;
  while (true) {
    const std::size_t size = std::min(chunk, total - begin);
    exchange(begin, size);
    POPRUN_TRY(rendezvous_.wait());
    begin += size;
    if (begin == total) {
      return {};
    }
    stage(begin, std::min(chunk, total - begin));
    POPRUN_TRY(rendezvous_.wait());
  }
}

// The staging area holds one chunk of every replica's shard: [R, chunk].
Status NodeCommunicator::reduce_scatter(Reduction reduction, ElementType type, std::span<const std::byte> data,
                                        std::span<std::byte> shard, std::string_view name) {
  POPRUN_CHECK(data.size() == shard.size() * size() && shard.size() % size_of(type) == 0);
  POPRUN_TRY(check_reduction(reduction, type));
  const Call call = call_of_reduce_scatter(reduction, type, data, name);
  if (data.size() <= NodeSegment::kMailBytes) {
    std::ranges::copy(data, next_mail());
    POPRUN_TRY(rendezvous_.open(call));
    for (std::size_t r = 0; r < size(); ++r) {
      sources_[r] = mail_of(r) + options_.self * shard.size();
    }
    std::byte* const target = shard.data();
    tree_reduce(reduction, type, sources_, std::span(&target, 1), shard.size() / size_of(type));
    return {};
  }
  const Place place = segment_->find(options_.self, data);
  const std::size_t chunk = shard_chunk(size());
  const auto stage = [&](std::size_t begin, std::size_t count) {
    for (std::size_t r = 0; place.owner < 0 && r < size(); ++r) {
      std::copy_n(data.data() + r * shard.size() + begin, count, segment_->staging(options_.self) + r * chunk);
    }
  };
  const auto reduce = [&](std::size_t begin, std::size_t count) {
    for (std::size_t r = 0; r < size(); ++r) {
      const Place peer = rendezvous_.place_of(r);
      sources_[r] = peer.owner < 0 ? segment_->staging(r) + options_.self * chunk
                                   : segment_->at(peer, r) + options_.self * shard.size() + begin;
    }
    std::byte* const target = shard.data() + begin;
    tree_reduce(reduction, type, sources_, std::span(&target, 1), count / size_of(type));
  };

  stage(0, std::min(chunk, shard.size()));
  POPRUN_TRY(rendezvous_.open(call, place));
  return in_chunks(shard.size(), all_placed() ? shard.size() : chunk, reduce, stage);
}

Status NodeCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view name) {
  POPRUN_CHECK(all.size() == mine.size() * size());
  const Call call = call_of_all_gather(mine, name);
  if (mine.size() <= NodeSegment::kMailBytes) {
    std::ranges::copy(mine, next_mail());
    POPRUN_TRY(rendezvous_.open(call));
    for (std::size_t r = 0; r < size(); ++r) {
      std::copy_n(mail_of(r), mine.size(), all.data() + r * mine.size());
    }
    return {};
  }
  const Place place = segment_->find(options_.self, mine);
  const auto stage = [&](std::size_t begin, std::size_t count) {
    if (place.owner < 0) {
      std::copy_n(mine.data() + begin, count, segment_->staging(options_.self));
    }
  };
  // Each replica starts at its own index, so that they do not all read the same memory at the same time.
  const auto collect = [&](std::size_t begin, std::size_t count) {
    for (std::size_t i = 0; i < size(); ++i) {
      const std::size_t r = (options_.self + i) % size();
      const Place peer = rendezvous_.place_of(r);
      const std::byte* source = peer.owner < 0 ? segment_->staging(r) : segment_->at(peer, r) + begin;
      std::byte* target = all.data() + r * mine.size() + begin;
      if (source != target) {
        std::copy_n(source, count, target);
      }
    }
  };

  stage(0, std::min(NodeSegment::kStagingBytes, mine.size()));
  POPRUN_TRY(rendezvous_.open(call, place));
  return in_chunks(mine.size(), all_placed() ? mine.size() : NodeSegment::kStagingBytes, collect, stage);
}

Status NodeCommunicator::broadcast(std::span<std::byte> data, ReplicaId root, std::string_view name) {
  const std::size_t source = index_of(root);
  POPRUN_CHECK(source < size());
  const Call call = call_of_broadcast(data, options_.numbers[source], name);
  if (data.size() <= NodeSegment::kMailBytes) {
    if (options_.self == source) {
      std::ranges::copy(data, next_mail());
    }
    POPRUN_TRY(rendezvous_.open(call));
    if (options_.self != source) {
      std::copy_n(mail_of(source), data.size(), data.data());
    }
    return {};
  }
  const Place place = segment_->find(options_.self, data);
  const auto stage = [&](std::size_t begin, std::size_t count) {
    if (options_.self == source && place.owner < 0) {
      std::copy_n(data.data() + begin, count, segment_->staging(source));
    }
  };
  const auto copy = [&](std::size_t begin, std::size_t count) {
    if (options_.self == source) {
      return;
    }
    const Place origin = rendezvous_.place_of(source);
    std::copy_n(origin.owner < 0 ? segment_->staging(source) : segment_->at(origin, source) + begin, count,
                data.data() + begin);
  };

  stage(0, std::min(NodeSegment::kStagingBytes, data.size()));
  POPRUN_TRY(rendezvous_.open(call, place));
  const bool direct = rendezvous_.place_of(source).owner >= 0;
  return in_chunks(data.size(), direct ? data.size() : NodeSegment::kStagingBytes, copy, stage);
}

Result<std::unique_ptr<Communicator>> NodeCommunicator::group(Group group) {
  POPRUN_ASSIGN(const Members mine, members_of(group, size(), options_.self));
  const std::vector<std::size_t> members = mine.list();
  POPRUN_ASSIGN(NodeSegment* const segment, form_group(call_of_group(group), members, Bytes{0}));
  return std::make_unique<NodeCommunicator>(*segment, options_among(members));
}

Result<NodeSegment*> NodeCommunicator::form_group(const Call& call, const std::vector<std::size_t>& members,
                                                  Bytes wire) {
  POPRUN_TRY(share_region(call, NodeSegment::room_bytes(size(), wire)));
  NodeSegment& segment = segment_->group(segment_->region_count() - 1, members);
  if (members.front() == options_.self) {
    Rendezvous::initialise(segment.control(), members.size());
  }
  POPRUN_TRY(rendezvous_.wait());
  return &segment;
}

// The first member in this process maps new memory for the process. The replicas of a process have consecutive
// indices, and the leader is the first of them.
NodeCommunicator::Options NodeCommunicator::options_among(const std::vector<std::size_t>& members) const {
  const auto index_of_first_from = [&](std::size_t replica) {
    return static_cast<std::size_t>(std::ranges::lower_bound(members, replica) - members.begin());
  };
  Options options{.self = index_of_first_from(options_.self),
                  .process_leader = index_of_first_from(options_.process_leader),
                  .deadline = options_.deadline,
                  .log = options_.log,
                  .last_excuse = options_.last_excuse};
  for (const std::size_t member : members) {
    options.numbers.push_back(options_.numbers[member]);
  }
  options.among = among(options.numbers);
  return options;
}

}  // namespace poprun::collectives
