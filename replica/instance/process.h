#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/base/host_limits.h"
#include "replica/base/units.h"
#include "replica/program/program.h"

/// An instance's dealings with its process and the host on which Open MPI started it.
namespace poprun {

/// Removes leftovers of dead jobs from this host, on its first process only; the launcher cleans its own host.
void remove_leftovers();

/// Ends the process after the launcher is lost, and with it Open MPI's daemon, which no other process needs.
[[noreturn]] void leave_without_launcher(ErrorCode code);

/// Checks the folder where Open MPI's vader will have its memory; the first process of a host does so for all of them.
/// Errors: kHostResources.
Status check_room_for_mpi();

/// Returns the request to join, with this instance's instruction sets and numeric libraries.
proto::JoinRequest join_request();

/// Ignores signals that end a job. scancel, systemd and `kill` signal all processes of a job at once, but only the
/// launcher obeys: it has the replicas stop and save, and kills what is left.
void leave_signals_to_launcher();

/// Pins, in every replica and environment, what results depend on besides the job and the instruction set: restarts the
/// program, as the same process, without environment variables that change bits (threads and schedules of OpenMP, lower
/// precision and other kernels in oneDNN): libraries read them when they are loaded, before main. Returns at once if
/// there are none. The instruction set (ONEDNN_MAX_CPU_ISA, GLIBC_TUNABLES) is not among them: --cpu-isa
/// chooses it, and Join compares it. Call first in main.
void pin_environment(char** arguments);

/// Returns the variables that were dropped, as `NAME=value`, for a note.
std::vector<std::string> dropped_variables();

/// Makes the calling thread, and those that it starts, round to nearest and keep denormals. Shared libraries built with
/// -ffast-math change that for the thread that loads them.
void pin_arithmetic();

/// Returns the least memory that a replica touches in its arenas. The exchange's memory is mapped without being
/// reserved, so a host with too little would kill a replica in the middle of a step, without a message.
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
