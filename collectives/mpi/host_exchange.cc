#include "collectives/mpi/host_exchange.h"

#include <algorithm>
#include <utility>

namespace poprun::collectives {
namespace {

/// How long a host that waits for another lets that one first say what it is waiting for itself.
std::chrono::milliseconds grace(std::chrono::milliseconds deadline) {
  return std::min(deadline / 4, std::chrono::milliseconds{5'000});
}

}  // namespace

HostExchange::HostExchange(std::shared_ptr<MpiLink> link, const HostPlan& plan, int channel,
                           Rendezvous& rendezvous, bool carries, std::chrono::milliseconds deadline)
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
