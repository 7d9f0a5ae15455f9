#include "collectives/mpi/hosts_communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "collectives/local/group.h"
#include "collectives/local/tree_reduce.h"
#include "collectives/patterns/slices.h"

namespace poprun::collectives {
namespace {

/// Ticks that a post may travel: the wire has this many to work on.
constexpr std::size_t kTravel = 2;

/// Chunks that have a place of their own. One more tick passes until all have read from a place.
constexpr std::size_t kSlots = kTravel + 2;

/// A call has this many chunks, so that they overlap, but none smaller than `kLeastChunkBytes`.
constexpr std::size_t kLeastChunks = 8;
constexpr std::size_t kLeastChunkBytes = std::size_t{256} << 10U;

/// Part `part` of elements [0, count), cut at lines of sums.
Slice elements_of(std::size_t count, std::size_t parts, std::size_t part) {
  const Slice bytes = slice_of(count * kSumBytes, parts, part);
  return {bytes.begin / kSumBytes, bytes.end / kSumBytes};
}

/// Where the hosts' slices of elements [0, count) begin, and the last ends; cut at lines of sums.
std::vector<std::size_t> edges_of(std::size_t count, std::span<const double> shares) {
  constexpr std::size_t kLine = kLineBytes / kSumBytes;
  const std::size_t lines = (count + kLine - 1) / kLine;
  std::vector<std::size_t> edges = {0};
  double before = 0;
  for (const double share : shares.first(shares.size() - 1)) {
    before += share;
    edges.push_back(std::min(
        count,
        static_cast<std::size_t>(std::llround(before * static_cast<double>(lines))) * kLine));
  }
  edges.push_back(count);
  return edges;
}

std::vector<std::size_t> numbers_here(const HostPlan& plan) {
  std::vector<std::size_t> numbers;
  for (const std::size_t index : plan.replicas[plan.self]) {
    numbers.push_back(plan.numbers[index]);
  }
  return numbers;
}

std::size_t sums_before(const HostPlan& plan, std::size_t host) {
  std::size_t count = 0;
  for (std::size_t h = 0; h < host; ++h) {
    count += h == plan.self ? 0 : plan.subtrees[h].size();
  }
  return count;
}

/// Of the places of one chunk:   | sums | received sums | result |
std::size_t slot_bytes(const HostPlan& plan) {
  return (plan.subtrees[plan.self].size() + sums_before(plan, plan.subtrees.size()) + 1) *
         NodeSegment::kStagingBytes;
}

/// A host that waits for another gives it time to say first what it waits for itself.
std::chrono::milliseconds grace(std::chrono::milliseconds deadline) {
  return std::min(deadline / 4, std::chrono::milliseconds{5'000});
}

}  // namespace

//   | slot 0 | slot 1 | .. | announcements |
Bytes HostsCommunicator::wire_bytes(const HostPlan& plan) {
  return Bytes{
      static_cast<std::int64_t>(kSlots * slot_bytes(plan) + Announcements::bytes_needed(plan))};
}

HostsCommunicator::HostsCommunicator(NodeSegment& segment, std::shared_ptr<const HostPlan> plan,
                                     std::shared_ptr<MpiLink> link, int channel,
                                     const Options& options)
    : segment_(&segment),
      plan_(std::move(plan)),
      link_(std::move(link)),
      wire_(link_, plan_->processes, channel),
      announcements_(segment.wire() + kSlots * slot_bytes(*plan_), *plan_),
      carries_(options.local == options.process_leader),
      options_(options),
      node_(segment, {.self = options.local,
                      .process_leader = options.process_leader,
                      .deadline = options.deadline,
                      .numbers = numbers_here(*plan_),
                      .among = options.among,
                      .log = options.log,
                      .agree = [this](std::span<const Call> calls) { return agree(calls); }}) {
  POPRUN_CHECK(options.chunk_bytes <= NodeSegment::kStagingBytes &&
               options.chunk_bytes >= plan_->total() * kLineBytes);
}

ReplicaId HostsCommunicator::self() const {
  return static_cast<ReplicaId>(plan_->replicas[plan_->self][options_.local]);
}

/// The leaders of the hosts exchange what their replicas have announced.
Status HostsCommunicator::agree(std::span<const Call> calls) {
  call_ = node_.rendezvous().call_name();
  if (!carries_ || !wire_.leads()) {
    return meet();
  }
  announcements_.post(wire_, calls, payload_);
  POPRUN_TRY(arrive());
  const std::vector<Call> all = announcements_.calls();
  if (std::ranges::any_of(all, [&](const Call& call) { return call != all[0]; })) {
    return node_.rendezvous().give_up(
        {ErrorCode::kBug, *disagreement(node_.rendezvous().any_call_name(), plan_->numbers, all)});
  }
  return meet();
}

Status HostsCommunicator::meet() {
  return node_.rendezvous().wait(options_.deadline + 2 * grace(options_.deadline));
}

/// Waits for the wire, where this replica carries.
Status HostsCommunicator::arrive() {
  if (carries_) {
    const auto on_the_way = [this] { node_.rendezvous().on_the_way(); };
    if (Status status = wire_.wait(options_.deadline, grace(options_.deadline), call_, on_the_way);
        !status) {
      return node_.rendezvous().give_up(std::move(status).error());
    }
  }
  return {};
}

/// Passes a call's outcome on, and tells the other hosts of a failure: every replica does, since
/// the one that carries may be the one that is missing.
Status HostsCommunicator::settle(Status status) {
  if (!status && !told_) {
    told_ = true;
    wire_.tell(status.error());
  }
  return status;
}

Status HostsCommunicator::open(const Call& call, Place place) {
  return settle(node_.rendezvous().open(call, place));
}

/// The same with a payload, which must fit. After success all payloads have come.
Status HostsCommunicator::open_with(const Payload& payload, const Call& call) {
  payload_ = &payload;
  Status status = open(call);
  payload_ = nullptr;
  return status;
}

/// By host, of the sums of all its subtrees.
std::vector<std::size_t> HostsCommunicator::sums_bytes(std::size_t count) const {
  std::vector<std::size_t> bytes;
  for (std::size_t h = 0; h < hosts(); ++h) {
    bytes.push_back(sums_of(h) * count * kSumBytes);
  }
  return bytes;
}

/// The sums of my host's subtrees, from what its replicas have mailed: [subtree, element].
void HostsCommunicator::pack_sums(Reduction reduction, const Pieces& mailed, std::byte* sums) {
  const std::vector<Piece> parts = mailed.parts({0, mailed.size()});
  std::size_t replica = 0;  // Local index: subtrees of a host are in its order.
  for (const Subtree& subtree : plan_->subtrees[plan_->self]) {
    for (const Piece& part : parts) {
      sources_.clear();
      for (std::size_t i = 0; i < subtree.count; ++i) {
        sources_.push_back(node_.mail_of(replica + i) + part.whole.begin);
      }
      reduce_subtree(reduction, part.type, sources_, sums, part.count());
      sums += part.count() * kSumBytes;
    }
    replica += subtree.count;
  }
}

/// target = elements [first, first + count) of payloads of sums, of `total` elements each.
void HostsCommunicator::combine_payloads(Reduction reduction, ElementType type, std::size_t total,
                                         std::size_t first, std::size_t count, std::byte* target) {
  combine(
      reduction, type,
      [&](std::size_t host, std::size_t subtree) {
        return announcements_.payload_of(host) + (subtree * total + first) * kSumBytes;
      },
      target, count);
}

Status HostsCommunicator::run(const Job& job) {
  const std::size_t count = job.chunks.size();
  const std::size_t to_combine = job.reduces ? kTravel + 1 : 0;
  const std::size_t to_take = to_combine + (job.gathers ? kTravel : 0);
  const auto is_chunk = [&](std::size_t tick, std::size_t delay) {
    return tick >= delay && tick - delay < count;
  };
  const auto sums = [&](std::size_t tick) { return job.reduces && is_chunk(tick, 0); };
  const auto posts = [&](std::size_t tick) {
    return sums(tick) || (job.gathers && is_chunk(tick, to_combine));
  };
  for (std::size_t tick = 0; count > 0 && tick < count + to_take; ++tick) {
    if (sums(tick)) {
      POPRUN_TRY(sum(job, tick));
    }
    if (is_chunk(tick, to_combine)) {
      make_result(job, tick - to_combine);
    }
    const bool arrives = tick >= kTravel && posts(tick - kTravel);
    if (arrives) {
      POPRUN_TRY(arrive());
    }
    if (arrives || sums(tick) || is_chunk(tick, to_combine)) {
      POPRUN_TRY(meet());
    }
    if (carries_ && posts(tick)) {
      Transfers transfers;
      if (sums(tick)) {
        add_sums(job, tick, transfers);
      }
      if (job.gathers && is_chunk(tick, to_combine)) {
        add_result(job, tick - to_combine, transfers);
      }
      wire_.post(transfers.outgoing, transfers.incoming);
    }
    if (is_chunk(tick, to_take)) {
      const std::size_t index = tick - to_take;
      job.take(index, job.chunks[index], slot(index).result);
    }
  }
  return {};
}

HostsCommunicator::Slot HostsCommunicator::slot(std::size_t index) const {
  std::byte* const sums = segment_->wire() + index % kSlots * slot_bytes(*plan_);
  std::byte* const received = sums + sums_of(plan_->self) * NodeSegment::kStagingBytes;
  return {sums, received, received + sums_before(*plan_, hosts()) * NodeSegment::kStagingBytes};
}

/// My part of the chunk, all subtrees of my host. Sums lie by host, subtree, element.
Status HostsCommunicator::sum(const Job& job, std::size_t index) {
  const Chunk& chunk = job.chunks[index];
  const bool placed = chunk.pieces->placed(chunk.bytes);
  if (!placed) {
    chunk.pieces->copy_out(chunk.bytes.begin,
                           {segment_->staging(options_.local), chunk.bytes.size()});
    POPRUN_TRY(meet());
  }
  const Slice mine = elements_of(chunk.edges.back(), locals(), options_.local);
  for (std::size_t h = 0; h < hosts(); ++h) {
    const Slice range = overlap(mine, {chunk.edges[h], chunk.edges[h + 1]});
    if (range.size() > 0) {
      sum_range(job.reduction, chunk, h, range, placed, slot(index).sums);
    }
  }
  return {};
}

void HostsCommunicator::sum_range(Reduction reduction, const Chunk& chunk, std::size_t host,
                                  Slice range, bool placed, std::byte* sums) {
  const std::size_t begin = chunk.bytes.begin;
  const Slice bytes{begin + range.begin * chunk.width, begin + range.end * chunk.width};
  for (const Piece& part : chunk.pieces->parts(bytes)) {
    const std::size_t element = (part.whole.begin - begin) / chunk.width;
    std::size_t replica = 0;  // Local index: subtrees of a host are in its order.
    for (std::size_t s = 0; s < sums_of(plan_->self); ++s) {
      sources_.clear();
      for (std::size_t i = 0; i < plan_->subtrees[plan_->self][s].count; ++i, ++replica) {
        sources_.push_back(placed ? segment_->at(part.place, replica)
                                  : segment_->staging(replica) + (part.whole.begin - begin));
      }
      const std::size_t at = sums_of(plan_->self) * chunk.edges[host] + s * chunk.slice(host) +
                             (element - chunk.edges[host]);
      reduce_subtree(reduction, part.type, sources_, sums + at * kSumBytes, part.count());
    }
  }
}

/// My part of my host's slice: from the sums of all hosts, or what I bring into it.
void HostsCommunicator::make_result(const Job& job, std::size_t index) {
  const Chunk& chunk = job.chunks[index];
  const auto [sums, received, result] = slot(index);
  if (!job.reduces) {
    job.fill(index, result + chunk.edges[plan_->self] * chunk.width);
    return;
  }
  const std::size_t slice = chunk.slice(plan_->self);
  const Slice mine = elements_of(slice, locals(), options_.local);
  combine(
      job.reduction, chunk.type,
      [&, at = slot(index)](std::size_t host, std::size_t subtree) {
        const std::byte* const from =
            host == plan_->self ? at.sums + sums_of(host) * chunk.edges[host] * kSumBytes
                                : at.received + sums_before(*plan_, host) * slice * kSumBytes;
        return from + (subtree * slice + mine.begin) * kSumBytes;
      },
      result + (chunk.edges[plan_->self] + mine.begin) * chunk.width, mine.size());
}

/// target = what `count` elements of the sums of all hosts come to, up the tree. sum_at(host,
/// subtree) is where those of a subtree are.
template <typename SumAt>
void HostsCommunicator::combine(Reduction reduction, ElementType type, const SumAt& sum_at,
                                std::byte* target, std::size_t count) {
  struct Leaf {
    Subtree subtree;
    const std::byte* sum;
  };
  std::vector<Leaf> leaves;
  for (std::size_t h = 0; h < hosts(); ++h) {
    for (std::size_t s = 0; s < sums_of(h); ++s) {
      leaves.push_back({plan_->subtrees[h][s], sum_at(h, s)});
    }
  }
  std::ranges::sort(leaves, {}, [](const Leaf& leaf) { return leaf.subtree.first; });
  std::vector<std::size_t> counts;
  sources_.clear();
  for (const Leaf& leaf : leaves) {
    sources_.push_back(leaf.sum);
    counts.push_back(leaf.subtree.count);
  }
  combine_subtrees(reduction, type, sources_, counts, target, count);
}

void HostsCommunicator::add_sums(const Job& job, std::size_t index, Transfers& transfers) const {
  const Chunk& chunk = job.chunks[index];
  const auto [sums, received, result] = slot(index);
  const std::size_t slice = chunk.slice(plan_->self);
  const std::size_t mine = sums_of(plan_->self);
  for (std::size_t h = 0; h < hosts(); ++h) {
    if (h != plan_->self) {
      transfers.outgoing.push_back(
          {h, {sums + mine * chunk.edges[h] * kSumBytes, mine * chunk.slice(h) * kSumBytes}});
      transfers.incoming.push_back({h,
                                    {received + sums_before(*plan_, h) * slice * kSumBytes,
                                     sums_of(h) * slice * kSumBytes}});
    }
  }
}

void HostsCommunicator::add_result(const Job& job, std::size_t index, Transfers& transfers) const {
  const Chunk& chunk = job.chunks[index];
  std::byte* const result = slot(index).result;
  const auto slice_of_host = [&](std::size_t h) {
    return std::span(result + chunk.edges[h] * chunk.width, chunk.slice(h) * chunk.width);
  };
  for (std::size_t h = 0; h < hosts(); ++h) {
    if (h != plan_->self) {
      transfers.outgoing.push_back({h, slice_of_host(plan_->self)});
      transfers.incoming.push_back({h, slice_of_host(h)});
    }
  }
}

Result<std::span<std::byte>> HostsCommunicator::allocate(Bytes size) {
  Result<std::span<std::byte>> memory = node_.allocate(size);
  if (!memory) {
    static_cast<void>(settle(tl::unexpected<Error>{memory.error()}));
  }
  return memory;
}

Status HostsCommunicator::barrier() {
  return settle(node_.barrier());
}

Result<std::unique_ptr<Communicator>> HostsCommunicator::group(Group group) {
  POPRUN_ASSIGN(const Members mine, members_of(group, size(), index_of(self())));
  Result<std::unique_ptr<Communicator>> communicator = form_group(group, mine);
  if (!communicator) {
    static_cast<void>(settle(tl::unexpected<Error>{communicator.error()}));
  }
  return communicator;
}

Result<std::unique_ptr<Communicator>> HostsCommunicator::form_group(Group group, Members mine) {
  const auto plan = std::make_shared<const HostPlan>(plan_->among(mine.list()));
  std::vector<std::size_t> members;  // Those on this host, by local index.
  Bytes wire{0};                     // Enough for every group that has some here.
  for (std::size_t i = 0; i < locals(); ++i) {
    const std::size_t replica = plan_->replicas[plan_->self][i];
    if (mine.contains(replica)) {
      members.push_back(i);
    }
    POPRUN_ASSIGN(const Members theirs, members_of(group, size(), replica));
    wire = std::max(wire, wire_bytes(plan_->among(theirs.list())));
  }
  POPRUN_ASSIGN(NodeSegment* const segment, node_.form_group(call_of_group(group), members, wire));
  POPRUN_ASSIGN(const int channel, agree_on_channel(mine));
  NodeCommunicator::Options options = node_.options_among(members);
  options.among = among(plan->numbers);
  if (plan->hosts() == 1) {
    return std::make_unique<NodeCommunicator>(*segment, options);
  }
  return std::make_unique<HostsCommunicator>(*segment, plan, link_, channel,
                                             Options{.local = options.self,
                                                     .process_leader = options.process_leader,
                                                     .among = options.among,
                                                     .log = options.log,
                                                     .deadline = options_.deadline,
                                                     .chunk_bytes = options_.chunk_bytes});
}

/// The first member of each group chooses a number.
Result<int> HostsCommunicator::agree_on_channel(Members mine) {
  const std::size_t index = index_of(self());
  const int choice = index == mine.first ? link_->new_channel(plan_->numbers[index]) : 0;
  std::vector<int> choices(size());
  POPRUN_TRY(all_gather(std::as_bytes(std::span(&choice, 1)),
                        std::as_writable_bytes(std::span(choices)), "channel"));
  return choices[mine.first];
}

/// Of `bytes` in all, as float32 data.
std::size_t HostsCommunicator::chunk_of(std::size_t bytes) const {
  const std::size_t least = std::max(kLeastChunkBytes, plan_->total() * kLineBytes);
  return std::min(options_.chunk_bytes, std::max(least, bytes / kLeastChunks));
}

/// The chunks of an all-reduce: one type each, slices as the plan shares them out.
std::vector<HostsCommunicator::Chunk> HostsCommunicator::chunks_of(const Pieces& pieces) const {
  std::vector<Chunk> chunks;
  for (const Piece& type : pieces.types()) {
    const std::size_t width = size_of(type.type);
    const std::size_t sums = type.whole.size() / width * kSumBytes;
    const std::size_t limit = chunk_of(sums) / kLineBytes * kLineBytes / kSumBytes;
    for (std::size_t begin = type.whole.begin; begin < type.whole.end; begin += limit * width) {
      const std::size_t end = std::min(type.whole.end, begin + limit * width);
      chunks.push_back({.type = type.type,
                        .width = width,
                        .edges = edges_of((end - begin) / width, plan_->shares),
                        .pieces = &pieces,
                        .bytes = {begin, end}});
    }
  }
  return chunks;
}

Status HostsCommunicator::all_reduce(Reduction reduction, std::span<const Buffer> buffers) {
  POPRUN_TRY(check_reduction(reduction, buffers));
  std::vector<Piece> found = find_pieces(*segment_, options_.local, buffers);
  const Call call = call_of_all_reduce(reduction, buffers, found);
  const Pieces pieces{std::move(found)};
  const std::size_t total = pieces.count();
  if (const std::vector<std::size_t> payloads = sums_bytes(total); announcements_.fit(payloads)) {
    pieces.copy_out(0, {node_.next_mail(), pieces.size()});
    const auto pack = [&](std::byte* sums) { pack_sums(reduction, pieces, sums); };
    POPRUN_TRY(open_with({payloads, pack}, call));
    std::size_t first = 0;
    for (const Piece& part : pieces.parts({0, pieces.size()})) {
      combine_payloads(reduction, part.type, total, first, part.count(), part.bytes.data());
      first += part.count();
    }
    return {};
  }
  POPRUN_TRY(open(call));
  return settle(run({.reduction = reduction,
                     .reduces = true,
                     .gathers = true,
                     .chunks = chunks_of(pieces),
                     .take = [&](std::size_t, const Chunk& chunk, std::byte* result) {
                       pieces.copy_in(chunk.bytes.begin, {result, chunk.bytes.size()});
                     }}));
}

// A chunk is some elements of every replica's shard, those of one host after those of another.
Status HostsCommunicator::reduce_scatter(Reduction reduction, ElementType type,
                                         std::span<const std::byte> data,
                                         std::span<std::byte> shard, std::string_view name) {
  POPRUN_CHECK(data.size() == shard.size() * size() && shard.size() % size_of(type) == 0);
  POPRUN_TRY(check_reduction(reduction, type));
  const Call call = call_of_reduce_scatter(reduction, type, data, name);
  // NOLINTNEXTLINE: only read. An all-reduce's pieces are written, these are not.
  auto* const bytes = const_cast<std::byte*>(data.data());
  const std::size_t total = data.size() / size_of(type);
  if (const std::vector<std::size_t> payloads = sums_bytes(total); announcements_.fit(payloads)) {
    std::ranges::copy(data, node_.next_mail());
    const Pieces mailed{{{type, {bytes, data.size()}, {}}}};
    const auto pack = [&](std::byte* sums) { pack_sums(reduction, mailed, sums); };
    POPRUN_TRY(open_with({payloads, pack}, call));
    const std::size_t count = total / size();
    combine_payloads(reduction, type, total, index_of(self()) * count, count, shard.data());
    return {};
  }
  const Place mine = segment_->find(options_.local, data);
  POPRUN_TRY(open(call, mine));
  Place place = mine;
  for (std::size_t i = 0; i < locals(); ++i) {
    place = node_.rendezvous().place_of(i) == place ? place : Place{};
  }
  const std::size_t width = size_of(type);
  const std::size_t step = chunk_of(data.size() / width * kSumBytes) / kSumBytes / size() * width;
  const auto size_at = [&](std::size_t index) {
    return std::min(step, shard.size() - index * step);
  };
  std::vector<Pieces> pieces((shard.size() + step - 1) / step);
  std::vector<Chunk> chunks;
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    Chunk& chunk = chunks.emplace_back(
        Chunk{.type = type, .width = width, .edges = {0}, .pieces = &pieces[index]});
    std::vector<Piece> runs;
    for (const std::vector<std::size_t>& group : plan_->replicas) {
      for (const std::size_t r : group) {
        const std::size_t at = r * shard.size() + index * step;
        runs.push_back({type,
                        {bytes + at, size_at(index)},
                        {place.owner, place.where + static_cast<std::int64_t>(at)}});
      }
      chunk.edges.push_back(chunk.edges.back() + group.size() * size_at(index) / width);
    }
    pieces[index] = Pieces{std::move(runs)};
    chunk.bytes = {0, pieces[index].size()};
  }
  return settle(run({.reduction = reduction,
                     .reduces = true,
                     .chunks = std::move(chunks),
                     .take = [&](std::size_t index, const Chunk& chunk, std::byte* result) {
                       std::memcpy(shard.data() + index * step,
                                   result + chunk.edges[plan_->self] * width +
                                       options_.local * size_at(index),
                                   size_at(index));
                     }}));
}

Status HostsCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                                     std::string_view name) {
  POPRUN_CHECK(all.size() == mine.size() * size());
  const Call call = call_of_all_gather(mine, name);
  std::vector<std::size_t> payloads;
  for (const std::vector<std::size_t>& group : plan_->replicas) {
    payloads.push_back(group.size() * mine.size());
  }
  if (announcements_.fit(payloads)) {
    std::ranges::copy(mine, node_.next_mail());
    const auto pack = [&](std::byte* shards) {
      for (std::size_t i = 0; i < locals(); ++i) {
        shards = std::copy_n(node_.mail_of(i), mine.size(), shards);
      }
    };
    POPRUN_TRY(open_with({payloads, pack}, call));
    for (std::size_t h = 0; h < hosts(); ++h) {
      for (std::size_t i = 0; i < plan_->replicas[h].size(); ++i) {
        std::copy_n(announcements_.payload_of(h) + i * mine.size(), mine.size(),
                    all.data() + plan_->replicas[h][i] * mine.size());
      }
    }
    return {};
  }
  POPRUN_TRY(open(call));
  const std::size_t step = chunk_of(all.size()) / size();
  const auto size_at = [&](std::size_t index) {
    return std::min(step, mine.size() - index * step);
  };
  std::vector<Chunk> chunks((mine.size() + step - 1) / step, Chunk{.edges = {0}});
  for (std::size_t index = 0; index < chunks.size(); ++index) {
    for (const std::vector<std::size_t>& group : plan_->replicas) {
      std::vector<std::size_t>& edges = chunks[index].edges;
      edges.push_back(edges.back() + group.size() * size_at(index));
    }
  }
  const auto fill = [&](std::size_t index, std::byte* slice) {
    std::memcpy(slice + options_.local * size_at(index), mine.data() + index * step,
                size_at(index));
  };
  const auto take = [&](std::size_t index, const Chunk&, const std::byte* result) {
    for (const std::vector<std::size_t>& group : plan_->replicas) {
      for (const std::size_t r : group) {
        std::memcpy(all.data() + r * mine.size() + index * step, result, size_at(index));
        result += size_at(index);
      }
    }
  };
  return settle(run({.gathers = true, .chunks = std::move(chunks), .fill = fill, .take = take}));
}

Status HostsCommunicator::broadcast(std::span<std::byte> data, ReplicaId root,
                                    std::string_view name) {
  POPRUN_CHECK(index_of(root) < size());
  const Call call = call_of_broadcast(data, plan_->numbers[index_of(root)], name);
  const std::size_t source = index_of(root);
  std::vector<std::size_t> payloads;
  for (const std::vector<std::size_t>& group : plan_->replicas) {
    payloads.push_back(std::ranges::binary_search(group, source) ? data.size() : 0);
  }
  if (announcements_.fit(payloads)) {
    if (self() == root) {
      std::ranges::copy(data, node_.next_mail());
    }
    const auto pack = [&](std::byte* payload) {
      const std::vector<std::size_t>& here = plan_->replicas[plan_->self];
      const auto local = std::ranges::lower_bound(here, source) - here.begin();
      if (payloads[plan_->self] > 0) {
        std::copy_n(node_.mail_of(static_cast<std::size_t>(local)), data.size(), payload);
      }
    };
    POPRUN_TRY(open_with({payloads, pack}, call));
    for (std::size_t h = 0; self() != root && h < hosts(); ++h) {
      std::copy_n(announcements_.payload_of(h), payloads[h], data.data());
    }
    return {};
  }
  POPRUN_TRY(open(call));
  const std::size_t step = chunk_of(data.size());
  const auto size_at = [&](std::size_t index) {
    return std::min(step, data.size() - index * step);
  };
  std::vector<Chunk> chunks((data.size() + step - 1) / step, Chunk{.edges = {0}});
  for (std::size_t index = 0; index < chunks.size(); ++index) {
    for (const std::size_t payload : payloads) {
      std::vector<std::size_t>& edges = chunks[index].edges;
      edges.push_back(edges.back() + (payload > 0 ? size_at(index) : 0));
    }
  }
  const auto fill = [&](std::size_t index, std::byte* slice) {
    if (self() == root) {
      std::memcpy(slice, data.data() + index * step, size_at(index));
    }
  };
  const auto take = [&](std::size_t index, const Chunk&, const std::byte* result) {
    if (self() != root) {
      std::memcpy(data.data() + index * step, result, size_at(index));
    }
  };
  return settle(run({.gathers = true, .chunks = std::move(chunks), .fill = fill, .take = take}));
}

}  // namespace poprun::collectives
