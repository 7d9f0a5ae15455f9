#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// Packets lost between two hosts, as counted by the hosts that retransmitted them.
struct PacketLoss {
  std::string from;  ///< The two hosts, each as its name if that is known, else as its address.
  std::string to;
  std::uint64_t segments = 0;     ///< Data segments sent in heartbeat intervals with losses.
  std::uint64_t retransmits = 0;  ///< Retransmissions among these segments.
  double seconds = 0;             ///< Time since the first of these losses.
};

/// Finds pairs of hosts between which packets are being lost, from the kernels' counters for the TCP connections of all
/// instances (proto::TcpLink). A link that is merely busy loses one packet in a hundred. Losses count only if at least
/// one packet in twenty is lost between two heartbeats. This class only keeps records. Times are in seconds.
class PacketLosses {
 public:
  void take(const std::string& host, const proto::Beat& beat, double now);

  /// Returns the pairs of hosts between which packets were lost recently, the worst first. Each pair includes both
  /// directions.
  [[nodiscard]] std::vector<PacketLoss> found(double now) const;

 private:
  struct Loss {
    double at;
    std::string host;
    std::string peer;  ///< The peer's address.
    std::uint64_t segments;
    std::uint64_t retransmits;
  };
  using Link = std::tuple<std::uint32_t, std::string, std::string>;  ///< Instance and both addresses.

  std::map<std::string, std::string> hosts_;  ///< Names of hosts, keyed by address.
  std::map<Link, proto::TcpLink> last_;       ///< Counters at the previous heartbeat.
  std::deque<Loss> losses_;                   ///< The oldest first.
};

/// Returns a text such as `the network between node2 and node0, node1 is losing packets: 37 of 112 segments had to be
/// sent again in the last 12 s`. A host that all losses share comes first. Requires: `losses` is not empty.
std::string describe(const std::vector<PacketLoss>& losses);

}  // namespace poprun::launcher
