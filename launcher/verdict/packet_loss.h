#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// Packets lost between two hosts, as those who sent them again have counted.
struct PacketLoss {
  std::string from;  ///< Hosts, by name where an instance there has told its address.
  std::string to;
  std::uint64_t segments = 0;     ///< Sent with data, in heartbeats in which packets were lost,
  std::uint64_t retransmits = 0;  ///< and of these sent again.
  double seconds = 0;             ///< Since the first loss that counts.
};

/// Which hosts lose packets on their way to one another: kept from what the kernels of all
/// instances count for each TCP connection (proto::TcpLink). A link that is only busy loses one
/// packet in a hundred; what counts here is at least one in twenty between two heartbeats. Pure
/// bookkeeping: time comes in as seconds of one clock.
class PacketLosses {
 public:
  /// A heartbeat of `instance`, on `host`.
  void take(const std::string& host, const proto::Beat& beat, double now);

  /// Between which hosts packets were lost lately, both directions of a pair together. Worst first.
  [[nodiscard]] std::vector<PacketLoss> found(double now) const;

 private:
  struct Loss {
    double at;
    std::string host;
    std::string peer;  ///< Address.
    std::uint64_t segments;
    std::uint64_t retransmits;
  };
  using Link = std::tuple<std::uint32_t, std::string, std::string>;  ///< Instance and addresses.

  std::map<std::string, std::string> hosts_;  ///< By address.
  std::map<Link, proto::TcpLink> last_;       ///< The counters of the heartbeat before.
  std::deque<Loss> losses_;                   ///< The oldest first.
};

/// `the network between node2 and node0, node1 loses packets: 37 of 112 segments had to be sent
/// again in the last 12 s`. The host that all losses have in common comes first. Requires: there
/// are some.
std::string describe(const std::vector<PacketLoss>& losses);

}  // namespace poprun::launcher
