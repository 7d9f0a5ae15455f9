#pragma once

#include <string>
#include <vector>

/// Pins what results depend on besides the job and the instruction set, in every replica, whatever the
/// environment says.
namespace poprun {

/// Libraries read their variables when they are loaded, before main: where there is one that moves bits (threads and
/// schedules of OpenMP, lower precision and other kernels in oneDNN), this starts the program anew without it, as the
/// same process. Otherwise returns at once. The instruction set (ONEDNN_MAX_CPU_ISA, GLIBC_TUNABLES) is not among them:
/// --cpu-isa chooses it, and Join compares it. Call first in main.
void pin_environment(char** arguments);

/// The variables that were dropped, `NAME=value` each, for a note.
std::vector<std::string> dropped_variables();

/// The calling thread, and those that it starts, round to nearest and keep denormals. Shared libraries built with
/// -ffast-math change that for the thread that loads them.
void pin_arithmetic();

}  // namespace poprun
