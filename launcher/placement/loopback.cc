#include "launcher/placement/loopback.h"

#include <memory>

#include <ifaddrs.h>
#include <net/if.h>

namespace poprun::launcher {

Status check_loopback() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  bool is_there = false;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    is_there = is_there || (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 && (entry->ifa_flags & IFF_UP) != 0) {
      return {};
    }
  }
  return is_there ? fail(ErrorCode::kHostResources,
                         "the loopback interface of this machine is down, and the processes of a "
                         "job speak to each other through it; bring it up: ip link set lo up")
                  : Status{};
}

}  // namespace poprun::launcher
