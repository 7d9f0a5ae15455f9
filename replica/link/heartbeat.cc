#include "replica/link/heartbeat.h"

#include <algorithm>
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

/// Returns the address as text, or an empty string if it is neither IPv4 nor IPv6.
std::string text_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto* const in = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &in->sin_addr, text.data(), text.size());
  } else if (address.ss_family == AF_INET6) {
    const auto* const in = reinterpret_cast<const sockaddr_in6*>(&address);
    inet_ntop(AF_INET6, &in->sin6_addr, text.data(), text.size());
  }
  // gRPC uses IPv6 sockets for IPv4 addresses.
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

constexpr std::chrono::seconds kLeaveMax{2};
constexpr std::chrono::seconds kDataWait{1};  // Other replicas must hear of the wait before they time out.

}  // namespace

std::vector<proto::TcpLink> tcp_links() {
  std::map<std::pair<std::string, std::string>, proto::TcpLink> links;
  std::error_code error;
  for (fs::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end; entry.increment(error)) {
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
      continue;  // A listening socket, or one within this machine.
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

Heartbeat::Heartbeat(const CoordinatorConnection& connection, const ProgressBoard& board, DrainGate& gate,
                     std::uint32_t instance, std::chrono::milliseconds interval, std::function<void()> on_lost)
    : board_(board), gate_(gate), instance_(instance), interval_(interval), on_lost_(std::move(on_lost)) {
  connection.prepare(context_, 0);
  stream_ = connection.stub->Heartbeat(&context_);
  writer_ = std::thread([this] { write_beats(); });
  reader_ = std::thread([this] { read_directives(); });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = !leaving_;
    leaving_ = true;
  }
  changed_.notify_all();
  context_.TryCancel();
  writer_.join();
  reader_.join();
}

Heartbeat::Clock::time_point Heartbeat::last_excuse() const {
  return excused_ ? Clock::now() : last_excuse_.load();
}

void Heartbeat::leave() {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kLeaveMax, [this] { return ended_; });
}

void Heartbeat::write_beats() {
  std::unique_lock lock(mutex_);
  while (!leaving_ && !ended_) {
    lock.unlock();
    proto::Beat beat = board_.beat(instance_);
    gate_.tell(beat);
    for (proto::TcpLink& link : tcp_links()) {
      *beat.add_links() = std::move(link);
    }
    const bool alive = stream_->Write(beat);
    lock.lock();
    if (!alive) {
      return;  // The reader also sees the end of the stream, and reports it.
    }
    wait_for_next_beat(lock);
  }
  const bool orderly = !abandoned_;
  lock.unlock();
  if (orderly) {
    stream_->WritesDone();  // If leave() was not called, the launcher must see a loss.
  }
}

void Heartbeat::wait_for_next_beat(std::unique_lock<std::mutex>& lock) {
  const Clock::time_point due = Clock::now() + interval_;
  const auto is_due = [&] { return leaving_ || ended_ || hurry_ || Clock::now() >= due; };
  while (!changed_.wait_until(lock, std::min(due, Clock::now() + kDataWait), is_due) &&
         !board_.waits_for_data(kDataWait)) {
  }
  hurry_ = false;
}

void Heartbeat::read_directives() {
  proto::Directive directive;
  while (stream_->Read(&directive)) {
    gate_.take(directive);
    checkpoint_after_ = directive.checkpoint_after();
    {
      const std::lock_guard lock(mutex_);
      hurry_ = true;
    }
    changed_.notify_all();
    if (excused_ && !directive.excused()) {
      last_excuse_ = Clock::now();
    }
    excused_ = directive.excused();
  }
  bool lost = false;
  {
    const std::lock_guard lock(mutex_);
    lost = !leaving_;
    ended_ = true;
  }
  changed_.notify_all();
  if (lost) {
    on_lost_();
  }
}

}  // namespace poprun
