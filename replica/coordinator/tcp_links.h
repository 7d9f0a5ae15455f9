#pragma once

#include <vector>

#include "proto/coordinator.pb.h"

namespace poprun {

/// This process's TCP connections to other machines, summed up for each pair of addresses, in their
/// order: what MPI, the launcher and the data server are spoken to by. The kernel counts; whoever
/// compares two looks sees which link loses packets. Costs about a microsecond an open file.
/// Nothing where /proc is not mounted.
std::vector<proto::TcpLink> tcp_links();

}  // namespace poprun
