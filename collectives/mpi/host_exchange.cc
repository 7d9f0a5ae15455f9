#include "collectives/mpi/host_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace poprun::collectives {
namespace {

/// Largest payload of one host, in bytes.
constexpr std::size_t kPayloadBytes = std::size_t{16} << 10U;

/// Largest payload of all hosts together, in bytes. A link of 1 Gbit/s carries it in half a millisecond, which is about
/// the minimum time of a separate phase if hosts share their cores among many replicas.
constexpr std::size_t kPayloadsBytes = std::size_t{64} << 10U;

std::size_t calls_bytes(const HostPlan& plan, std::size_t host) {
  return plan.replicas[host].size() * sizeof(Call);
}

/// Returns the size of a host's room for a payload; 0 if calls and payload do not fit into one message, because only a
/// single message may be shorter than its receive buffer.
std::size_t room_bytes(const HostPlan& plan, std::size_t host) {
  return calls_bytes(plan, host) + kPayloadBytes <= HostWire::kMessageBytes ? kPayloadBytes : 0;
}

std::size_t bytes_before(const HostPlan& plan, std::size_t host) {
  std::size_t bytes = 0;
  for (std::size_t h = 0; h < host; ++h) {
    bytes += calls_bytes(plan, h) + room_bytes(plan, h);
  }
  return bytes;
}

/// Returns the time that a waiting host gives the other hosts to answer, or to report why they give up.
std::chrono::milliseconds grace(std::chrono::milliseconds deadline) {
  return std::min(deadline / 4, std::chrono::milliseconds{5'000});
}

}  // namespace

std::size_t Announcements::bytes_needed(const HostPlan& plan) {
  return bytes_before(plan, plan.hosts());
}

std::byte* Announcements::calls_of(std::size_t host) const {
  return memory_ + bytes_before(*plan_, host);
}

std::byte* Announcements::room_of(std::size_t host) const {
  return calls_of(host) + calls_bytes(*plan_, host);
}

bool Announcements::fit(std::span<const std::size_t> payloads) const {
  for (std::size_t h = 0; h < payloads.size(); ++h) {
    if (payloads[h] > room_bytes(*plan_, h)) {
      return false;
    }
  }
  return std::accumulate(payloads.begin(), payloads.end(), std::size_t{0}) <= kPayloadsBytes;
}

void Announcements::post(HostWire& wire, std::span<const Call> calls, const Payload* payload) const {
  POPRUN_CHECK(payload == nullptr || fit(payload->bytes));
  const std::size_t self = plan_->self;
  std::span<std::byte> mine(calls_of(self), calls.size_bytes());
  std::memcpy(mine.data(), calls.data(), mine.size());
  if (payload != nullptr) {
    payload->write(room_of(self));
    mine = {mine.data(), mine.size() + payload->bytes[self]};
  }
  std::vector<HostWire::Transfer> outgoing;
  std::vector<HostWire::Transfer> incoming;
  for (std::size_t h = 0; h < plan_->hosts(); ++h) {
    if (h != self) {
      outgoing.push_back({h, mine});
      incoming.push_back({h, {calls_of(h), calls_bytes(*plan_, h) + room_bytes(*plan_, h)}});
    }
  }
  wire.post(outgoing, incoming, HostWire::Carriers::kLeaders);
}

std::vector<Call> Announcements::calls() const {
  std::vector<Call> calls(plan_->total());
  for (std::size_t h = 0; h < plan_->hosts(); ++h) {
    for (std::size_t i = 0; i < plan_->replicas[h].size(); ++i) {
      std::memcpy(&calls[plan_->replicas[h][i]], calls_of(h) + i * sizeof(Call), sizeof(Call));
    }
  }
  return calls;
}

HostExchange::HostExchange(std::shared_ptr<MpiLink> link, const HostPlan& plan, int channel, Rendezvous& rendezvous,
                           bool carries, std::chrono::milliseconds deadline)
    : rendezvous_(&rendezvous),
      wire_(std::move(link), plan.processes, channel),
      carries_(carries),
      deadline_(deadline) {}

Status HostExchange::meet() {
  return rendezvous_->wait(deadline_ + 2 * grace(deadline_));
}

Status HostExchange::arrive() {
  if (carries_) {
    const auto on_the_way = [this] { rendezvous_->on_the_way(); };
    if (Status status = wire_.wait(deadline_, grace(deadline_), call_, on_the_way); !status) {
      return rendezvous_->give_up(std::move(status).error());
    }
  }
  return {};
}

Status HostExchange::settle(Status status) {
  if (!status && !told_) {
    told_ = true;
    wire_.tell(status.error());
  }
  return status;
}

}  // namespace poprun::collectives
