#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collectives/local/pieces.h"
#include "collectives/local/rendezvous.h"
#include "collectives/local/shared_memory.h"
#include "collectives/mpi/peer_exchange.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// What the replicas of one process share where the job's replicas are on several hosts. They meet,
/// the first of them (the leader) exchanges with the leaders of all other processes, they meet
/// again.
///
/// All-reduce, chunk by chunk, P processes:
///
///   1  to process q: slice q of the chunk of each local replica       (P - 1) / P of the chunk,
///   out 2  sum of my slice over all R replicas, up the canonical tree 3  my slice of the result to
///   everybody                            (P - 1) / P of a chunk, out
class SpreadProcess {
 public:
  /// What a local replica brings to a call. All-reduce uses `buffers`, broadcast `target`,
  /// all-gather and reduce-scatter `source` and `target`.
  struct Job {
    Pieces buffers{};
    std::span<const std::byte> source{};
    std::span<std::byte> target{};
    ElementType type = ElementType::kF32;  ///< Of reduce-scatter.
  };

  static Result<std::unique_ptr<SpreadProcess>> create(std::unique_ptr<PeerExchange> exchange,
                                                       std::chrono::milliseconds deadline);

  [[nodiscard]] std::size_t replicas() const { return replicas_; }
  [[nodiscard]] const Member& member() const { return exchange_->members()[exchange_->self()]; }
  [[nodiscard]] std::chrono::milliseconds deadline() const { return deadline_; }
  [[nodiscard]] std::byte* control() const { return control_.data(); }
  [[nodiscard]] Job& job(std::size_t local) { return jobs_[local]; }

  /// The leader's part of a call, while all local replicas wait with their jobs in place. Takes
  /// `deadline` at most. `sequence` is the call's number, for messages.
  Status lead(const Call& call, std::uint64_t sequence);

 private:
  using Clock = std::chrono::steady_clock;

  SpreadProcess(std::unique_ptr<PeerExchange> exchange, std::chrono::milliseconds deadline);

  Status agree(const Call& call, std::uint64_t sequence);
  Status carry_out(const Call& call);
  Status all_reduce(const Call& call);
  Status reduce_scatter(const Call& call);
  Status all_gather(const Call& call);
  Status broadcast(const Call& call);

  Status exchange();
  [[nodiscard]] std::size_t processes() const { return exchange_->members().size(); }

  std::unique_ptr<PeerExchange> exchange_;
  std::chrono::milliseconds deadline_;
  std::size_t replicas_ = 0;
  SharedMemory control_;
  std::vector<Job> jobs_;
  Clock::time_point limit_;

  // Buffers of the exchange. Members, since MPI may write into them even after a failure.
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;
  std::vector<std::byte> result_;
  std::vector<std::span<const std::byte>> outgoing_;  ///< One a process.
  std::vector<std::span<std::byte>> incoming_;
};

/// `Communicator` of one replica of a SpreadProcess.
class SpreadCommunicator final : public Communicator {
 public:
  /// `process` must outlive the communicator. `local` is the replica's index in the process.
  SpreadCommunicator(SpreadProcess& process, std::size_t local);

  [[nodiscard]] ReplicaId self() const override;
  [[nodiscard]] std::size_t size() const override { return process_->replicas(); }

  Result<std::span<std::byte>> allocate(Bytes size) override;
  Status all_reduce(Reduction reduction, std::span<const Buffer> buffers) override;
  Status reduce_scatter(Reduction reduction, ElementType type, std::span<const std::byte> data,
                        std::span<std::byte> shard) override;
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  Status broadcast(std::span<std::byte> data, ReplicaId root) override;
  Status barrier() override;

 private:
  Status run(const Call& call, SpreadProcess::Job job);

  SpreadProcess* process_;
  std::size_t local_;
  Rendezvous rendezvous_;
  std::vector<SharedMemory> allocated_;
};

}  // namespace poprun::collectives
