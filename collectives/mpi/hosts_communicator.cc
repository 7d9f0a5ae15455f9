#include "collectives/mpi/hosts_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "collectives/local/call.h"

namespace poprun::collectives {
namespace {

std::vector<std::size_t> numbers_here(const HostPlan& plan) {
  std::vector<std::size_t> numbers;
  for (const std::size_t index : plan.replicas[plan.self]) {
    numbers.push_back(plan.numbers[index]);
  }
  return numbers;
}

std::vector<std::size_t> replicas_by_host(const HostPlan& plan) {
  std::vector<std::size_t> counts;
  for (const std::vector<std::size_t>& here : plan.replicas) {
    counts.push_back(here.size());
  }
  return counts;
}

/// Returns, for each host h, the number of bytes: `copies[h]` times `bytes`.
std::vector<std::size_t> bytes_of(std::vector<std::size_t> copies, std::size_t bytes) {
  for (std::size_t& count : copies) {
    count *= bytes;
  }
  return copies;
}

}  // namespace

// The wire area:   | chunks | announcements |
Bytes HostsCommunicator::wire_bytes(const HostPlan& plan) {
  return Bytes{static_cast<std::int64_t>(ChunkPipeline::bytes_needed(plan) + Announcements::bytes_needed(plan))};
}

HostsCommunicator::HostsCommunicator(NodeSegment& segment, std::shared_ptr<const HostPlan> plan,
                                     std::shared_ptr<MpiLink> link, int channel, const Options& options)
    : segment_(&segment),
      plan_(std::move(plan)),
      link_(std::move(link)),
      announcements_(segment.wire() + ChunkPipeline::bytes_needed(*plan_), *plan_),
      options_(options),
      node_(segment, {.self = options.local,
                      .process_leader = options.process_leader,
                      .deadline = options.deadline,
                      .numbers = numbers_here(*plan_),
                      .among = options.among,
                      .log = options.log,
                      .agree = [this](std::span<const Call> calls) { return agree(calls); },
                      .last_excuse = link_->last_excuse()}),
      exchange_(link_, *plan_, channel, node_.rendezvous(), options.local == options.process_leader, options.deadline),
      sums_(*plan_),
      chunks_(segment, *plan_, exchange_, sums_, options.local, options.chunk_bytes) {}

/// Exchanges the announcements of the hosts' replicas between the hosts' leaders.
Status HostsCommunicator::agree(std::span<const Call> calls) {
  exchange_.begin_call();
  if (!exchange_.leads()) {
    return exchange_.meet();
  }
  announcements_.post(exchange_.wire(), calls, payload_);
  POPRUN_TRY(exchange_.arrive());
  const std::vector<Call> all = announcements_.calls();
  if (std::ranges::any_of(all, [&](const Call& call) { return call != all[0]; })) {
    return node_.rendezvous().give_up(
        {ErrorCode::kBug, *disagreement(node_.rendezvous().any_call_name(), plan_->numbers, all)});
  }
  return exchange_.meet();
}

/// Opens a call with a payload, which must fit. After success, all payloads have arrived.
Status HostsCommunicator::open_with(const Payload& payload, const Call& call) {
  payload_ = &payload;
  Status status = open(call);
  payload_ = nullptr;
  return status;
}

/// Returns, for each host, the size of the sums of all its subtrees.
std::vector<std::size_t> HostsCommunicator::sums_bytes(std::size_t count) const {
  std::vector<std::size_t> sums;
  for (std::size_t h = 0; h < hosts(); ++h) {
    sums.push_back(sums_.count(h));
  }
  return bytes_of(std::move(sums), count * kSumBytes);
}

/// Computes the sums of this host's subtrees from its replicas' mailboxes: [subtree, element].
void HostsCommunicator::pack_sums(Reduction reduction, const Pieces& mailed, std::byte* sums) {
  const std::vector<Piece> parts = mailed.parts({0, mailed.size()});
  for (std::size_t s = 0; s < sums_.count(plan_->self); ++s) {
    for (const Piece& part : parts) {
      const auto source_of = [&](std::size_t replica) { return node_.mail_of(replica) + part.whole.begin; };
      sums_.reduce(reduction, part.type, s, source_of, sums, part.count());
      sums += part.count() * kSumBytes;
    }
  }
}

/// Combines elements [first, first + count) of all hosts' sums, which have `total` elements each, into `target`.
void HostsCommunicator::combine_payloads(Reduction reduction, ElementType type, std::size_t total, std::size_t first,
                                         std::size_t count, std::byte* target) {
  sums_.combine(
      reduction, type,
      [&](std::size_t host, std::size_t subtree) {
        return announcements_.payload_of(host) + (subtree * total + first) * kSumBytes;
      },
      target, count);
}

Result<std::unique_ptr<Communicator>> HostsCommunicator::group(Group group) {
  if (group.kind == Group::Kind::kHost) {
    return settled(form_host());
  }
  POPRUN_ASSIGN(const Members mine, members_of(group, size(), index_of(self())));
  return settled(form_group(group, mine));
}

Result<CommonMemory> HostsCommunicator::allocate_common(Bytes /*size*/) {
  return fail(ErrorCode::kUsage, "replicas on " + std::to_string(hosts()) +
                                     " hosts have no memory in common; allocate it in Group::host()");
}

Result<std::unique_ptr<Communicator>> HostsCommunicator::form_host() {
  std::vector<std::size_t> members(locals());
  std::iota(members.begin(), members.end(), std::size_t{0});
  POPRUN_ASSIGN(NodeSegment* const segment, node_.form_group(call_of_group(Group::host()), members, Bytes{0}));
  return std::make_unique<NodeCommunicator>(*segment, node_.options_among(members));
}

Result<std::unique_ptr<Communicator>> HostsCommunicator::form_group(Group group, Members mine) {
  const auto plan = std::make_shared<const HostPlan>(plan_->among(mine.list()));
  std::vector<std::size_t> members;  // Local indices of the members on this host.
  Bytes wire{0};                     // Enough for every group with a member here.
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

/// The first member of each group chooses its channel number.
Result<int> HostsCommunicator::agree_on_channel(Members mine) {
  const std::size_t index = index_of(self());
  const int choice = index == mine.first ? link_->new_channel(plan_->numbers[index]) : 0;
  std::vector<int> choices(size());
  POPRUN_TRY(all_gather(std::as_bytes(std::span(&choice, 1)), std::as_writable_bytes(std::span(choices)), "channel"));
  return choices[mine.first];
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
  const auto take = [&](const Chunk& chunk, std::byte* result) {
    pieces.copy_in(chunk.bytes.begin, {result, chunk.bytes.size()});
  };
  return exchange_.settle(chunks_.run(
      {.reduction = reduction, .reduces = true, .gathers = true, .chunks = chunks_.cut(pieces), .take = take}));
}

/// Returns bytes `part` of every replica's shard of `data`, host after host.
Pieces HostsCommunicator::pieces_of_shards(const Piece& data, Slice part) const {
  std::vector<Piece> pieces;
  for (const std::vector<std::size_t>& group : plan_->replicas) {
    for (const std::size_t r : group) {
      const std::size_t at = data.bytes.size() / size() * r + part.begin;
      pieces.push_back({data.type,
                        data.bytes.subspan(at, part.size()),
                        {data.place.owner, data.place.where + static_cast<std::int64_t>(at)}});
    }
  }
  return Pieces{std::move(pieces)};
}

// Each chunk contains some elements of every replica's shard.
Status HostsCommunicator::reduce_scatter(Reduction reduction, ElementType type, std::span<const std::byte> data,
                                         std::span<std::byte> shard, std::string_view name) {
  POPRUN_CHECK(data.size() == shard.size() * size() && shard.size() % size_of(type) == 0);
  POPRUN_TRY(check_reduction(reduction, type));
  const Call call = call_of_reduce_scatter(reduction, type, data, name);
  // NOLINTNEXTLINE: the bytes are only read here, because only an all-reduce writes to pieces.
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
  const std::size_t step = chunks_.chunk_bytes(data.size() / width * kSumBytes) / kSumBytes / size() * width;
  std::vector<Chunk> chunks = ChunkPipeline::cut(shard.size(), step, replicas_by_host(*plan_), width);
  std::vector<Pieces> pieces(chunks.size());
  for (std::size_t index = 0; index < chunks.size(); ++index) {
    Chunk& chunk = chunks[index];
    pieces[index] = pieces_of_shards({type, {bytes, data.size()}, place}, chunk.part);
    chunk.type = type;
    chunk.pieces = &pieces[index];
    chunk.bytes = {0, pieces[index].size()};
  }
  const auto take = [&](const Chunk& chunk, const std::byte* result) {
    std::memcpy(shard.data() + chunk.part.begin,
                result + chunk.edges[plan_->self] * width + options_.local * chunk.part.size(), chunk.part.size());
  };
  return exchange_.settle(
      chunks_.run({.reduction = reduction, .reduces = true, .chunks = std::move(chunks), .take = take}));
}

Status HostsCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view name) {
  POPRUN_CHECK(all.size() == mine.size() * size());
  const Call call = call_of_all_gather(mine, name);
  const std::vector<std::size_t> shards = replicas_by_host(*plan_);
  if (const auto payloads = bytes_of(shards, mine.size()); announcements_.fit(payloads)) {
    std::ranges::copy(mine, node_.next_mail());
    const auto pack = [&](std::byte* payload) {
      for (std::size_t i = 0; i < locals(); ++i) {
        payload = std::copy_n(node_.mail_of(i), mine.size(), payload);
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
  const std::size_t step = chunks_.chunk_bytes(all.size()) / size();
  const auto fill = [&](const Chunk& chunk, std::byte* slice) {
    std::memcpy(slice + options_.local * chunk.part.size(), mine.data() + chunk.part.begin, chunk.part.size());
  };
  const auto take = [&](const Chunk& chunk, const std::byte* result) {
    for (const std::vector<std::size_t>& group : plan_->replicas) {
      for (const std::size_t r : group) {
        std::memcpy(all.data() + r * mine.size() + chunk.part.begin, result, chunk.part.size());
        result += chunk.part.size();
      }
    }
  };
  return exchange_.settle(chunks_.run(
      {.gathers = true, .chunks = ChunkPipeline::cut(mine.size(), step, shards), .fill = fill, .take = take}));
}

Status HostsCommunicator::broadcast(std::span<std::byte> data, ReplicaId root, std::string_view name) {
  POPRUN_CHECK(index_of(root) < size());
  const Call call = call_of_broadcast(data, plan_->numbers[index_of(root)], name);
  const std::size_t source = index_of(root);
  std::vector<std::size_t> copies;  // One copy, on the root's host.
  for (const std::vector<std::size_t>& group : plan_->replicas) {
    copies.push_back(std::ranges::binary_search(group, source) ? 1 : 0);
  }
  if (const auto payloads = bytes_of(copies, data.size()); announcements_.fit(payloads)) {
    if (self() == root) {
      std::ranges::copy(data, node_.next_mail());
    }
    const auto pack = [&](std::byte* payload) {
      const std::vector<std::size_t>& here = plan_->replicas[plan_->self];
      const auto local = std::ranges::lower_bound(here, source) - here.begin();
      if (copies[plan_->self] > 0) {
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
  const auto fill = [&](const Chunk& chunk, std::byte* slice) {
    if (self() == root) {
      std::memcpy(slice, data.data() + chunk.part.begin, chunk.part.size());
    }
  };
  const auto take = [&](const Chunk& chunk, const std::byte* result) {
    if (self() != root) {
      std::memcpy(data.data() + chunk.part.begin, result, chunk.part.size());
    }
  };
  const std::size_t step = chunks_.chunk_bytes(data.size());
  return exchange_.settle(chunks_.run(
      {.gathers = true, .chunks = ChunkPipeline::cut(data.size(), step, copies), .fill = fill, .take = take}));
}

}  // namespace poprun::collectives
