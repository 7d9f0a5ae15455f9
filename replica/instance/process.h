#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/base/host_limits.h"
#include "replica/base/units.h"
#include "replica/program/program.h"

/// Prepares and ends an instance's process, and checks the host on which Open MPI started it.
namespace poprun {

/// Removes leftovers of dead jobs from this host, if this is the first process on it. The launcher cleans its own host.
void remove_leftovers();

/// Ends this process, which has lost the launcher, and Open MPI's daemon, which no other process needs.
[[noreturn]] void leave_without_launcher(ErrorCode code);

/// Checks that vader, Open MPI's shared-memory transport, has enough room for its files. Does so only in the first
/// process on each host. Errors: kHostResources.
Status check_room_for_mpi();

/// Returns the request to join, with this instance's instruction sets and numeric libraries.
proto::JoinRequest join_request();

/// Ignores signals that end a job. scancel, systemd and `kill` signal all processes of a job at the same time, but only
/// the launcher obeys: it tells the replicas to stop and save, and kills any that remain.
void leave_signals_to_launcher();

/// Apart from the job and the instruction set, pins everything on which results depend, so that it is the same in every
/// replica and environment. To do so, restarts the program, as the same process, without the environment variables that
/// change bits (threads and schedules of OpenMP, lower precision and other kernels in oneDNN), because libraries read
/// them when they are loaded, before main. Returns immediately if none of them is set. The variables of the instruction
/// set (ONEDNN_MAX_CPU_ISA, GLIBC_TUNABLES) stay: --cpu-isa chooses the set, and Join compares it. Call first in main.
void pin_environment(char** arguments);

/// Returns the variables that were dropped, as `NAME=value`, for a note.
std::vector<std::string> dropped_variables();

/// Returns how many of the job's processes this host has.
std::uint32_t processes_on_host();

/// Makes the calling thread, and those that it starts, round to nearest and keep denormals. Shared libraries built with
/// -ffast-math change both settings for the thread that loads them.
void pin_arithmetic();

/// Returns a lower bound on the memory that a replica touches in its arenas and in images that it shares. Checking it
/// in advance is necessary: the exchange's memory is not reserved, so a host with too little memory would kill a
/// replica in a step, without a message.
Bytes memory_touched(const Program& program);

/// Returns how much of `memory_touched` all replicas of a host share (engine/sharing.h).
Bytes memory_shared(const Program& program);

/// Checks that `memory`, the free memory of `host`, suffices for `replicas` replicas that touch `each` bytes, of which
/// they share `shared`, and for their copies of the state for checkpoints. Errors: kHostResources if it does not. The
/// message names both sizes (also as facts) and the remedy.
Status check_host_memory(const FreeMemory& memory, const std::string& host, std::uint32_t replicas, Bytes each,
                         Bytes copies, Bytes shared = Bytes{0});

/// Checks that `folder` has room for the memory that Open MPI touches there while `processes` processes connect: about
/// 60 KiB per process, plus 3 KiB for each other process (measured with Open MPI 4.1.4). If less than one segment of 4
/// MiB is free, Open MPI does not use the folder. Errors: kHostResources if the folder is too small: Open MPI would die
/// of a bus error.
Status check_shared_folder(const std::string& folder, const std::string& host, std::uint32_t processes);

}  // namespace poprun
