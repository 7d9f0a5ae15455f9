#include "collectives/mpi/peer_exchange.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "collectives/local/call.h"

namespace poprun::collectives {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTag = 17;  ///< One is enough: messages between two processes keep their order.
constexpr int kYields = 32;
constexpr std::chrono::microseconds kShortestSleep{20};
constexpr std::chrono::microseconds kLongestSleep{100};

}  // namespace

bool complete(std::span<MPI_Request> requests, Clock::time_point limit) {
  std::chrono::microseconds sleep = kShortestSleep;
  for (int round = 0;; ++round) {
    int done = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) {
      return true;
    }
    if (Clock::now() >= limit) {
      return false;
    }
    if (round < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(sleep);
      sleep = std::min(sleep + kShortestSleep, kLongestSleep);
    }
  }
}

PeerExchange::PeerExchange(std::vector<Member> members, std::size_t self)
    : members_(std::move(members)), self_(self) {}

Result<std::unique_ptr<PeerExchange>> PeerExchange::create(std::vector<Member> members,
                                                           std::size_t self,
                                                           Clock::time_point limit) {
  std::unique_ptr<PeerExchange> exchange(new PeerExchange(std::move(members), self));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm_idup(MPI_COMM_WORLD, &exchange->world_, &request);
  if (!complete(std::span(&request, 1), limit)) {
    exchange->failed_ = true;
    // MPI writes into the object when the missing process comes after all.
    static_cast<void>(exchange.release());
    return fail(ErrorCode::kInfrastructure, "not all processes of the job came to share a channel");
  }
  return exchange;
}

PeerExchange::~PeerExchange() {
  if (!failed_ && world_ != MPI_COMM_NULL) {
    MPI_Comm_free(&world_);
  }
}

Status PeerExchange::exchange(std::span<const std::span<const std::byte>> outgoing,
                              std::span<const std::span<std::byte>> incoming,
                              Clock::time_point limit) {
  requests_.clear();
  peers_.clear();
  const auto post = [&](std::size_t peer, std::size_t size) -> MPI_Request* {
    if (peer == self_ || size == 0) {
      return nullptr;
    }
    peers_.push_back(peer);
    return &requests_.emplace_back(MPI_REQUEST_NULL);
  };
  for (std::size_t p = 0; p < members_.size(); ++p) {
    if (MPI_Request* request = post(p, incoming[p].size())) {
      MPI_Irecv(incoming[p].data(), static_cast<int>(incoming[p].size()), MPI_BYTE,
                members_[p].rank, kTag, world_, request);
    }
  }
  for (std::size_t p = 0; p < members_.size(); ++p) {
    if (MPI_Request* request = post(p, outgoing[p].size())) {
      MPI_Isend(outgoing[p].data(), static_cast<int>(outgoing[p].size()), MPI_BYTE,
                members_[p].rank, kTag, world_, request);
    }
  }
  POPRUN_CHECK(outgoing[self_].size() == incoming[self_].size());
  if (!outgoing[self_].empty()) {
    std::memcpy(incoming[self_].data(), outgoing[self_].data(), outgoing[self_].size());
  }
  if (complete(requests_, limit)) {
    return {};
  }
  failed_ = true;
  std::vector<std::size_t> late;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
    if (done == 0) {
      late.push_back(peers_[i]);
    }
  }
  return tl::unexpected<Error>{missing(late)};
}

Error PeerExchange::missing(std::span<const std::size_t> peers) const {
  std::vector<std::size_t> replicas;
  for (const std::size_t peer : peers) {
    for (std::size_t i = 0; i < members_[peer].count; ++i) {
      replicas.push_back(members_[peer].first + i);
    }
  }
  std::ranges::sort(replicas);
  replicas.erase(std::unique(replicas.begin(), replicas.end()), replicas.end());
  return {ErrorCode::kInfrastructure, replica_list(replicas) + " did not arrive"};
}

}  // namespace poprun::collectives
