#pragma once

#include "replica/base/units.h"
#include "replica/program/program.h"

namespace poprun {

/// Bytes that the host streams carry in one call of a function, with everything that it calls. When
/// they pass is the walk's to say, as Doing::kHost.
struct HostTraffic {
  Bytes to_device;
  Bytes from_device;
};

/// Cost: linear in the steps, called functions once for each call.
HostTraffic host_traffic(const Program& program, const proto::Function& function);

}  // namespace poprun
