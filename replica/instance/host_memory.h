#pragma once

#include <cstdint>
#include <string>

#include "replica/base/error.h"
#include "replica/base/host_limits.h"
#include "replica/base/units.h"
#include "replica/program/program.h"

/// Whether a host has the memory that a job's tensors will touch. The exchange's memory is mapped without being
/// reserved, so that a host with too little would kill a replica in the middle of a step, without a word. A file system
/// in memory that is too small does the same to Open MPI.
namespace poprun {

/// The least memory that a replica touches of its arenas.
Bytes memory_touched(const Program& program);

/// Errors
///   kHostResources  `replicas` replicas on `host` need more than there is, with what all of them
///                   copy for a checkpoint; names both, also as facts, and the remedy.
Status check_host_memory(const FreeMemory& memory, const std::string& host, std::uint32_t replicas, Bytes each,
                         Bytes copies);

/// Whether `folder` has room for what Open MPI touches there while `processes` processes find one another: about 60 KiB
/// each, and 3 KiB for each other one (measured with Open MPI 4.1.4). Where less than one whole segment of 4 MiB is
/// free, it does without the folder.
///
/// Errors
///   kHostResources  if it is too small: Open MPI would end by a bus error.
Status check_shared_folder(const std::string& folder, const std::string& host, std::uint32_t processes);

}  // namespace poprun
