#include "replica/coordinator/tcp_links.h"

#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace poprun {
namespace {

namespace fs = std::filesystem;

/// Empty where it is none of the internet.
std::string text_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto* const in = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &in->sin_addr, text.data(), text.size());
  } else if (address.ss_family == AF_INET6) {
    const auto* const in = reinterpret_cast<const sockaddr_in6*>(&address);
    inet_ntop(AF_INET6, &in->sin6_addr, text.data(), text.size());
  }
  // gRPC speaks version 4 over sockets of version 6.
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view name = text.data();
  return std::string(name.starts_with(kMapped) ? name.substr(kMapped.size()) : name);
}

template <typename Ask>
std::string address(int file, const Ask& ask) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  return ask(file, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? text_of(address) : "";
}

}  // namespace

std::vector<proto::TcpLink> tcp_links() {
  std::map<std::pair<std::string, std::string>, proto::TcpLink> links;
  std::error_code error;
  for (fs::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    int file = -1;
    std::from_chars(name.data(), name.data() + name.size(), file);
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (file < 0 || getsockopt(file, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
      continue;
    }
    const std::string local = address(file, getsockname);
    const std::string peer = address(file, getpeername);
    if (peer.empty() || peer == local) {
      continue;  // Listens, or stays on this machine.
    }
    proto::TcpLink& link = links[{local, peer}];
    link.set_local(local);
    link.set_peer(peer);
    link.set_segments(link.segments() + info.tcpi_data_segs_out);
    link.set_retransmits(link.retransmits() + info.tcpi_total_retrans);
  }
  std::vector<proto::TcpLink> found;
  for (auto& [addresses, link] : links) {
    found.push_back(std::move(link));
  }
  return found;
}

}  // namespace poprun
