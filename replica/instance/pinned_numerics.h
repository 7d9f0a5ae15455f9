#pragma once

#include <string>
#include <vector>

/// Pins, in every replica and environment, what results depend on besides the job and the instruction set.
namespace poprun {

/// Restarts the program, as the same process, without environment variables that change bits (threads and schedules of
/// OpenMP, lower precision and other kernels in oneDNN): libraries read them when they are loaded, before main. Returns
/// at once if there are none. The instruction set (ONEDNN_MAX_CPU_ISA, GLIBC_TUNABLES) is not among them: --cpu-isa
/// chooses it, and Join compares it. Call first in main.
void pin_environment(char** arguments);

/// Returns the variables that were dropped, as `NAME=value`, for a note.
std::vector<std::string> dropped_variables();

/// Makes the calling thread, and those that it starts, round to nearest and keep denormals. Shared libraries built with
/// -ffast-math change that for the thread that loads them.
void pin_arithmetic();

}  // namespace poprun
