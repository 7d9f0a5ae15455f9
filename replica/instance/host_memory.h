#pragma once

#include <cstdint>
#include <string>

#include "replica/base/error.h"
#include "replica/base/host_limits.h"
#include "replica/base/units.h"
#include "replica/program/program.h"

/// Checks that a host has the memory that a job's tensors will touch. The exchange's memory is mapped without being
/// reserved, so a host with too little would kill a replica in the middle of a step, without a message. An in-memory
/// file system that is too small does the same to Open MPI.
namespace poprun {

/// Returns the least memory that a replica touches in its arenas.
Bytes memory_touched(const Program& program);

/// Errors
///   kHostResources  `replicas` replicas on `host` need more than is free, with what all of them
///                   copy for a checkpoint; names both, also as facts, and the remedy.
Status check_host_memory(const FreeMemory& memory, const std::string& host, std::uint32_t replicas, Bytes each,
                         Bytes copies);

/// Checks that `folder` has room for the memory that Open MPI touches there while `processes` processes connect: about
/// 60 KiB each, and 3 KiB per other process (measured with Open MPI 4.1.4). If less than one segment of 4 MiB is free,
/// Open MPI does not use the folder.
///
/// Errors
///   kHostResources  if it is too small: Open MPI would die of a bus error.
Status check_shared_folder(const std::string& folder, const std::string& host, std::uint32_t processes);

}  // namespace poprun
