#include "collectives/mpi/host_wire.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>

#include "collectives/local/call.h"
#include "collectives/patterns/shares.h"

namespace poprun::collectives {
namespace {

using Clock = std::chrono::steady_clock;

/// Open MPI polls its sockets on every eighth call into its progress engine.
constexpr int kLooks = 8;

constexpr int kYields = 4;
constexpr std::chrono::microseconds kShortestSleep{20};
constexpr std::chrono::microseconds kLongestSleep{500};
constexpr std::chrono::milliseconds kLastWords{300};

/// Calls `done` until it returns true or `limit` has passed. Yields at first, then sleeps for longer and longer.
template <typename Done>
bool poll(Clock::time_point limit, const Done& done) {
  const Clock::time_point begin = Clock::now();
  for (int round = 0;; ++round) {
    if (done()) {
      return true;
    }
    const Clock::time_point now = Clock::now();
    if (now >= limit) {
      return false;
    }
    if (round < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::clamp<Clock::duration>((now - begin) / 8, kShortestSleep, kLongestSleep));
    }
  }
}

bool test_all(std::span<MPI_Request> requests) {
  int done = 0;
  for (int look = 0; look < kLooks && done == 0; ++look) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
  }
  return done != 0;
}

}  // namespace

bool complete(std::span<MPI_Request> requests, Clock::time_point limit) {
  return poll(limit, [&] { return test_all(requests); });
}

Result<std::shared_ptr<MpiLink>> MpiLink::create(std::size_t replicas, Clock::time_point limit,
                                                 LastExcuse last_excuse) {
  std::unique_ptr<MpiLink> link(new MpiLink(replicas, std::move(last_excuse)));
  MPI_Comm_rank(MPI_COMM_WORLD, &link->rank_);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm_idup(MPI_COMM_WORLD, &link->world_, &request);
  if (!complete(std::span(&request, 1), limit)) {
    // The link is leaked, because MPI would still write into it if the missing process arrived late.
    static_cast<void>(link.release());
    return fail(ErrorCode::kInfrastructure, "a process of the job exited while the exchange was starting");
  }
  return std::shared_ptr<MpiLink>(std::move(link));
}

MpiLink::~MpiLink() {
  if (!abandoned_ && world_ != MPI_COMM_NULL) {
    MPI_Comm_free(&world_);
  }
}

HostWire::HostWire(std::shared_ptr<MpiLink> link, std::vector<Process> processes, int channel)
    : link_(std::move(link)), processes_(std::move(processes)), channel_(channel) {
  for (std::size_t p = 0; p < processes_.size(); ++p) {
    carriers_.resize(std::max(carriers_.size(), processes_[p].host + 1));
    std::vector<std::size_t>& carriers = carriers_[processes_[p].host];
    if (processes_[p].rank == link_->rank()) {
      self_ = p;
      lane_ = carriers.size();
    }
    carriers.push_back(p);
  }
  POPRUN_CHECK(processes_[self_].rank == link_->rank());
}

bool HostWire::all_done(std::span<MPI_Request> requests) {
  const std::lock_guard lock(link_->mutex());
  return test_all(requests);
}

std::size_t HostWire::lanes(std::size_t host, Carriers carriers) const {
  return carriers == Carriers::kLeaders ? 1
                                        : std::max(carriers_[host].size(), carriers_[processes_[self_].host].size());
}

void HostWire::post(std::span<const Transfer> outgoing, std::span<const Transfer> incoming, Carriers carriers) {
  const std::lock_guard lock(link_->mutex());
  Post& posted = posts_.emplace_back();
  const std::size_t mine = carriers_[processes_[self_].host].size();
  const auto for_each_lane = [&](const Transfer& transfer, const auto& begin) {
    const std::vector<std::size_t>& theirs = carriers_[transfer.host];
    const std::size_t count = lanes(transfer.host, carriers);
    for (std::size_t lane = lane_; lane < count; lane += mine) {
      const Slice slice = slice_of(transfer.bytes.size(), count, lane);
      const std::size_t messages = (slice.size() + kMessageBytes - 1) / kMessageBytes;
      for (std::size_t i = 0; i < messages; ++i) {
        const Slice message = slice_of(slice.size(), messages, i);
        posted.peers.push_back(transfer.host);
        begin(transfer.bytes.data() + slice.begin + message.begin, static_cast<int>(message.size()),
              processes_[theirs[lane % theirs.size()]].rank, &posted.requests.emplace_back(MPI_REQUEST_NULL));
      }
    }
  };
  for (const Transfer& transfer : incoming) {
    for_each_lane(transfer, [&](std::byte* data, int size, int rank, MPI_Request* request) {
      MPI_Irecv(data, size, MPI_BYTE, rank, tag(), link_->world(), request);
    });
  }
  for (const Transfer& transfer : outgoing) {
    for_each_lane(transfer, [&](std::byte* data, int size, int rank, MPI_Request* request) {
      MPI_Isend(data, size, MPI_BYTE, rank, tag(), link_->world(), request);
    });
  }
}

Status HostWire::wait(std::chrono::milliseconds deadline, std::chrono::milliseconds grace, const std::string& call,
                      const std::function<void()>& while_waiting) {
  POPRUN_CHECK(!posts_.empty());
  Post& post = posts_.front();
  Error told{};
  bool stop = false;
  const auto ended_by = [&](Clock::time_point limit) {
    return poll(limit, [&] {
      if (all_done(post.requests)) {
        return true;
      }
      while_waiting();
      stop = heard(told);
      return stop;
    });
  };
  Clock::time_point begin = Clock::now();
  bool ended = ended_by(begin + deadline);
  const auto excused = [&] { return link_->last_excuse() ? link_->last_excuse()() : begin; };
  while (!ended && excused() > begin) {
    begin = excused();
    ended = ended_by(begin + deadline);
  }
  std::chrono::milliseconds waited = deadline;
  std::vector<std::size_t> lost;
  for (int turn = 0; turn < 2 && !ended && lost.empty(); ++turn) {
    ask(post);
    ended = ended_by(Clock::now() + grace);
    waited += grace;
    lost = silent(late_hosts(post));
  }
  std::vector<std::size_t> late;
  if (!ended) {
    late = late_hosts(post);  // Stays empty if the last bytes arrived just now.
  }
  if (!stop && late.empty()) {
    posts_.pop_front();
    return {};
  }
  link_->abandon();
  if (!stop) {
    told = late_error(call, lost.empty() ? replicas_of(late) : lost, waited);
  }
  return tl::unexpected<Error>{told};
}

bool HostWire::heard(Error& error) {
  const std::lock_guard lock(link_->mutex());
  int waiting = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, notice_tag(), link_->world(), &waiting, &status);
  if (waiting == 0) {
    return false;
  }
  Notice notice;
  MPI_Recv(&notice, sizeof(notice), MPI_BYTE, status.MPI_SOURCE, notice_tag(), link_->world(), MPI_STATUS_IGNORE);
  switch (notice.kind) {
    case Notice::Kind::kGivesUp:
      error = notice.error.error();
      return true;
    case Notice::Kind::kAsks: {
      MPI_Request request = send({.kind = Notice::Kind::kWaits}, status.MPI_SOURCE);
      MPI_Request_free(&request);
      return false;
    }
    case Notice::Kind::kWaits:
      waiting_.push_back(status.MPI_SOURCE);
      return false;
  }
  return false;
}

/// Begins to send a notice to a process. Requires: the link's mutex is held.
MPI_Request HostWire::send(const Notice& notice, int rank) {
  // The copy is never freed, because MPI may still read it. Only a failing job sends notices.
  const auto* const copy = new Notice(notice);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(copy, sizeof(*copy), MPI_BYTE, rank, notice_tag(), link_->world(), &request);
  return request;  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks,clang-analyzer-optin.mpi.MPI-Checker)
}

/// Returns the hosts whose processes have not sent or received all bytes of a post.
std::vector<std::size_t> HostWire::late_hosts(Post& post) const {
  const std::lock_guard lock(link_->mutex());
  std::vector<std::size_t> hosts;
  for (std::size_t i = 0; i < post.requests.size(); ++i) {
    int done = 0;
    MPI_Test(&post.requests[i], &done, MPI_STATUS_IGNORE);
    if (done == 0) {
      hosts.push_back(post.peers[i]);
    }
  }
  std::ranges::sort(hosts);
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  return hosts;
}

void HostWire::ask(Post& post) {
  const std::vector<std::size_t> hosts = late_hosts(post);
  const std::lock_guard lock(link_->mutex());
  waiting_.clear();
  for (const std::size_t host : hosts) {
    for (const std::size_t p : carriers_[host]) {
      MPI_Request request = send({.kind = Notice::Kind::kAsks}, processes_[p].rank);
      MPI_Request_free(&request);
    }
  }
}

std::vector<std::size_t> HostWire::replicas_of(std::span<const std::size_t> hosts) const {
  std::vector<std::size_t> replicas;
  for (const std::size_t host : hosts) {
    for (const std::size_t p : carriers_[host]) {
      replicas.insert(replicas.end(), processes_[p].replicas.begin(), processes_[p].replicas.end());
    }
  }
  std::ranges::sort(replicas);
  return replicas;
}

/// Returns the replicas on these hosts that have not reported that they are waiting.
std::vector<std::size_t> HostWire::silent(std::span<const std::size_t> hosts) const {
  std::vector<std::size_t> silent;
  std::ranges::copy_if(hosts, std::back_inserter(silent), [this](std::size_t host) {
    return std::ranges::none_of(carriers_[host],
                                [this](std::size_t p) { return std::ranges::count(waiting_, processes_[p].rank) > 0; });
  });
  return replicas_of(silent);
}

void HostWire::tell(const Error& error) {
  link_->abandon();
  const Notice notice{.kind = Notice::Kind::kGivesUp, .error = FlatError(error)};
  std::vector<MPI_Request> requests;
  {
    const std::lock_guard lock(link_->mutex());
    for (const Process& process : processes_) {
      if (process.host != processes_[self_].host) {
        requests.push_back(send(notice, process.rank));
      }
    }
  }
  poll(Clock::now() + kLastWords, [&] { return all_done(requests); });
}

}  // namespace poprun::collectives
