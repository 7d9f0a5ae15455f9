#include "launcher/verdict/packet_loss.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "replica/base/error.h"

namespace poprun::launcher {
namespace {

constexpr double kWindowSeconds = 120;
constexpr std::uint64_t kOneIn = 20;
constexpr std::uint64_t kLeastRetransmits = 4;
constexpr std::size_t kKeptMax = 1 << 16;  // A broken instance may report new addresses endlessly.

bool takes_part(const PacketLoss& loss, const std::string& host) {
  return loss.from == host || loss.to == host;
}

/// Returns the host that several losses have in common, if there is exactly one such host.
std::optional<std::string> common_host(const std::vector<PacketLoss>& losses) {
  for (const std::string& host : {losses[0].from, losses[0].to}) {
    if (losses.size() > 1 && std::ranges::all_of(losses, [&](const auto& loss) { return takes_part(loss, host); })) {
      return host;
    }
  }
  return std::nullopt;
}

}  // namespace

void PacketLosses::take(const std::string& host, const proto::Beat& beat, double now) {
  while (!losses_.empty() && losses_.front().at < now - kWindowSeconds) {
    losses_.pop_front();
  }
  if (hosts_.size() + last_.size() > kKeptMax) {
    hosts_.clear();
    last_.clear();
  }
  while (losses_.size() > kKeptMax) {
    losses_.pop_front();
  }
  for (const proto::TcpLink& link : beat.links()) {
    hosts_[link.local()] = host;
    const auto [before, is_new] = last_.try_emplace({beat.instance(), link.local(), link.peer()}, link);
    const proto::TcpLink last = std::exchange(before->second, link);
    if (link.segments() < last.segments() || link.retransmits() < last.retransmits()) {
      continue;  // A connection ended and took its counts with it, so a comparison is impossible.
    }
    const std::uint64_t again = link.retransmits() - last.retransmits();
    const std::uint64_t sent = link.segments() - last.segments();
    if (again > 0 && again * kOneIn >= sent) {
      losses_.push_back({now, host, link.peer(), std::max(sent, again), again});
    }
  }
}

std::vector<PacketLoss> PacketLosses::found(double now) const {
  std::map<std::pair<std::string, std::string>, PacketLoss> pairs;
  for (const Loss& loss : losses_) {
    const auto known = hosts_.find(loss.peer);
    const std::string& peer = known == hosts_.end() ? loss.peer : known->second;
    if (loss.at < now - kWindowSeconds || peer == loss.host) {
      continue;
    }
    PacketLoss& pair = pairs[std::minmax(loss.host, peer)];
    if (pair.from.empty()) {
      pair = {.from = loss.host, .to = peer, .seconds = now - loss.at};
    }
    pair.segments += loss.segments;
    pair.retransmits += loss.retransmits;
  }
  std::vector<PacketLoss> found;
  for (const auto& [hosts, loss] : pairs) {
    if (loss.retransmits >= kLeastRetransmits) {
      found.push_back(loss);
    }
  }
  std::ranges::sort(found, std::ranges::greater{}, &PacketLoss::retransmits);
  return found;
}

std::string describe(const std::vector<PacketLoss>& losses) {
  POPRUN_CHECK(!losses.empty());
  PacketLoss sum;
  for (const PacketLoss& loss : losses) {
    sum.segments += loss.segments;
    sum.retransmits += loss.retransmits;
    sum.seconds = std::max(sum.seconds, loss.seconds);
  }
  const std::string count = fmt::format("{} of {} segments had to be sent again in the last {:.0f} s", sum.retransmits,
                                        sum.segments, sum.seconds);
  const std::optional<std::string> host = common_host(losses);
  if (!host) {
    std::vector<std::string> pairs;
    for (const PacketLoss& loss : losses) {
      pairs.push_back(fmt::format("{} and {}", loss.from, loss.to));
    }
    return fmt::format("the network between {} is losing packets: {}", fmt::join(pairs, ", and "), count);
  }
  std::vector<std::string> others;
  for (const PacketLoss& loss : losses) {
    others.push_back(loss.from == *host ? loss.to : loss.from);
  }
  return fmt::format("the network between {} and {} is losing packets: {}", *host, fmt::join(others, ", "), count);
}

}  // namespace poprun::launcher
