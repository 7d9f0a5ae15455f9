#include "collectives/mpi/chunk_pipeline.h"

#include <algorithm>
#include <cmath>

namespace poprun::collectives {
namespace {

/// Number of ticks that a post may take on the wire. The wire therefore carries the posts of this many ticks.
constexpr std::size_t kTravel = 2;

/// Number of slots, one per chunk in progress. One more tick passes until all replicas have read a slot.
constexpr std::size_t kSlots = kTravel + 2;

/// A call is cut into at least this many chunks, so that they overlap, unless chunks fall below `kLeastChunkBytes`.
constexpr std::size_t kLeastChunks = 8;
constexpr std::size_t kLeastChunkBytes = std::size_t{256} << 10U;

/// Returns part `part` of elements [0, count), cut so that sums begin at cache lines.
Slice elements_of(std::size_t count, std::size_t parts, std::size_t part) {
  const Slice bytes = slice_of(count * kSumBytes, parts, part);
  return {bytes.begin / kSumBytes, bytes.end / kSumBytes};
}

/// Returns the first element of each host's slice of [0, count), and the last slice's end. Sums begin at cache lines.
std::vector<std::size_t> edges_of(std::size_t count, std::span<const double> shares) {
  constexpr std::size_t kLine = kLineBytes / kSumBytes;
  const std::size_t lines = (count + kLine - 1) / kLine;
  std::vector<std::size_t> edges = {0};
  double before = 0;
  for (const double share : shares.first(shares.size() - 1)) {
    before += share;
    edges.push_back(
        std::min(count, static_cast<std::size_t>(std::llround(before * static_cast<double>(lines))) * kLine));
  }
  edges.push_back(count);
  return edges;
}

std::size_t slot_bytes(const HostPlan& plan) {
  const HostSums sums(plan);
  return (sums.count(plan.self) + sums.others_before(plan.hosts()) + 1) * NodeSegment::kStagingBytes;
}

}  // namespace

std::size_t ChunkPipeline::bytes_needed(const HostPlan& plan) {
  return kSlots * slot_bytes(plan);
}

ChunkPipeline::ChunkPipeline(NodeSegment& segment, const HostPlan& plan, HostExchange& exchange, HostSums& sums,
                             std::size_t local, std::size_t chunk_bytes)
    : segment_(&segment),
      plan_(&plan),
      exchange_(&exchange),
      sums_(&sums),
      local_(local),
      chunk_bytes_(chunk_bytes),
      slot_bytes_(slot_bytes(plan)) {
  POPRUN_CHECK(chunk_bytes <= NodeSegment::kStagingBytes && chunk_bytes >= plan.total() * kLineBytes);
}

std::size_t ChunkPipeline::chunk_bytes(std::size_t bytes) const {
  const std::size_t least = std::max(kLeastChunkBytes, plan_->total() * kLineBytes);
  return std::min(chunk_bytes_, std::max(least, bytes / kLeastChunks));
}

std::vector<ChunkPipeline::Chunk> ChunkPipeline::cut(const Pieces& pieces) const {
  std::vector<Chunk> chunks;
  for (const Piece& type : pieces.types()) {
    const std::size_t width = size_of(type.type);
    const std::size_t sums = type.whole.size() / width * kSumBytes;
    const std::size_t limit = chunk_bytes(sums) / kLineBytes * kLineBytes / kSumBytes;
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

std::vector<ChunkPipeline::Chunk> ChunkPipeline::cut(std::size_t bytes, std::size_t step,
                                                     std::span<const std::size_t> copies, std::size_t width) {
  std::vector<Chunk> chunks;
  for (std::size_t begin = 0; begin < bytes; begin += step) {
    Chunk& chunk =
        chunks.emplace_back(Chunk{.width = width, .edges = {0}, .part = {begin, std::min(bytes, begin + step)}});
    for (const std::size_t count : copies) {
      chunk.edges.push_back(chunk.edges.back() + count * chunk.part.size() / width);
    }
  }
  return chunks;
}

Status ChunkPipeline::run(const Job& job) {
  const std::size_t count = job.chunks.size();
  const std::size_t to_combine = job.reduces ? kTravel + 1 : 0;
  const std::size_t to_take = to_combine + (job.gathers ? kTravel : 0);
  const auto is_chunk = [&](std::size_t tick, std::size_t delay) { return tick >= delay && tick - delay < count; };
  const auto sums = [&](std::size_t tick) { return job.reduces && is_chunk(tick, 0); };
  const auto posts = [&](std::size_t tick) { return sums(tick) || (job.gathers && is_chunk(tick, to_combine)); };
  for (std::size_t tick = 0; count > 0 && tick < count + to_take; ++tick) {
    if (sums(tick)) {
      POPRUN_TRY(sum(job, tick));
    }
    if (is_chunk(tick, to_combine)) {
      make_result(job, tick - to_combine);
    }
    const bool arrives = tick >= kTravel && posts(tick - kTravel);
    if (arrives) {
      POPRUN_TRY(exchange_->arrive());
    }
    if (arrives || sums(tick) || is_chunk(tick, to_combine)) {
      POPRUN_TRY(exchange_->meet());
    }
    if (exchange_->carries() && posts(tick)) {
      Transfers transfers;
      if (sums(tick)) {
        add_sums(job, tick, transfers);
      }
      if (job.gathers && is_chunk(tick, to_combine)) {
        add_result(job, tick - to_combine, transfers);
      }
      exchange_->wire().post(transfers.outgoing, transfers.incoming);
    }
    if (is_chunk(tick, to_take)) {
      const std::size_t index = tick - to_take;
      job.take(job.chunks[index], slot(index).result);
    }
  }
  return {};
}

ChunkPipeline::Slot ChunkPipeline::slot(std::size_t index) const {
  std::byte* const sums = segment_->wire() + index % kSlots * slot_bytes_;
  std::byte* const received = sums + sums_->count(plan_->self) * NodeSegment::kStagingBytes;
  return {sums, received, received + sums_->others_before(hosts()) * NodeSegment::kStagingBytes};
}

/// Computes this replica's part of the chunk's sums, one per subtree of this host.
Status ChunkPipeline::sum(const Job& job, std::size_t index) {
  const Chunk& chunk = job.chunks[index];
  const bool placed = chunk.pieces->placed(chunk.bytes);
  if (!placed) {
    chunk.pieces->copy_out(chunk.bytes.begin, {segment_->staging(local_), chunk.bytes.size()});
    POPRUN_TRY(exchange_->meet());
  }
  const Slice mine = elements_of(chunk.edges.back(), locals(), local_);
  for (std::size_t h = 0; h < hosts(); ++h) {
    const Slice range = overlap(mine, {chunk.edges[h], chunk.edges[h + 1]});
    if (range.size() > 0) {
      sum_range(job.reduction, chunk, h, range, placed, slot(index).sums);
    }
  }
  return {};
}

void ChunkPipeline::sum_range(Reduction reduction, const Chunk& chunk, std::size_t host, Slice range, bool placed,
                              std::byte* sums) {
  const std::size_t begin = chunk.bytes.begin;
  const Slice bytes{begin + range.begin * chunk.width, begin + range.end * chunk.width};
  for (const Piece& part : chunk.pieces->parts(bytes)) {
    const std::size_t element = (part.whole.begin - begin) / chunk.width;
    const auto source_of = [&](std::size_t replica) -> const std::byte* {
      return placed ? segment_->at(part.place, replica) : segment_->staging(replica) + (part.whole.begin - begin);
    };
    const std::size_t mine = sums_->count(plan_->self);
    for (std::size_t s = 0; s < mine; ++s) {
      const std::size_t at = mine * chunk.edges[host] + s * chunk.slice(host) + (element - chunk.edges[host]);
      sums_->reduce(reduction, part.type, s, source_of, sums + at * kSumBytes, part.count());
    }
  }
}

/// Fills this replica's part of its host's slice: with the combined sums of all hosts, or with its own contribution.
void ChunkPipeline::make_result(const Job& job, std::size_t index) {
  const Chunk& chunk = job.chunks[index];
  const Slot at = slot(index);
  if (!job.reduces) {
    job.fill(chunk, at.result + chunk.edges[plan_->self] * chunk.width);
    return;
  }
  const std::size_t slice = chunk.slice(plan_->self);
  const Slice mine = elements_of(slice, locals(), local_);
  sums_->combine(
      job.reduction, chunk.type,
      [&](std::size_t host, std::size_t subtree) {
        const std::byte* const from = host == plan_->self
                                          ? at.sums + sums_->count(host) * chunk.edges[host] * kSumBytes
                                          : at.received + sums_->others_before(host) * slice * kSumBytes;
        return from + (subtree * slice + mine.begin) * kSumBytes;
      },
      at.result + (chunk.edges[plan_->self] + mine.begin) * chunk.width, mine.size());
}

void ChunkPipeline::add_sums(const Job& job, std::size_t index, Transfers& transfers) const {
  const Chunk& chunk = job.chunks[index];
  const auto [sums, received, result] = slot(index);
  const std::size_t slice = chunk.slice(plan_->self);
  const std::size_t mine = sums_->count(plan_->self);
  for (std::size_t h = 0; h < hosts(); ++h) {
    if (h != plan_->self) {
      transfers.outgoing.push_back({h, {sums + mine * chunk.edges[h] * kSumBytes, mine * chunk.slice(h) * kSumBytes}});
      transfers.incoming.push_back(
          {h, {received + sums_->others_before(h) * slice * kSumBytes, sums_->count(h) * slice * kSumBytes}});
    }
  }
}

void ChunkPipeline::add_result(const Job& job, std::size_t index, Transfers& transfers) const {
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

}  // namespace poprun::collectives
