#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "collectives/session/session.h"
#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "replica/base/error.h"

/// The mpirun command of a job: a pure function from what was asked to what is started.
///
/// One application context an instance, as poprun composes it, so that rank r is instance r and
/// each has its own POPDIST_* variables. The address of the coordinator differs from run to run and
/// is only named on the command line.
///
/// Secrets (token, certificates) are in the environment of mpirun, which processes on this machine
/// inherit. mpirun would send them on in plain text, so that to other hosts they go through the
/// remote shell (remote_shell.sh), which stands between mpirun and ssh, or srun in a Slurm job, or
/// what the user has instead.
///
/// mpirun sees no hosts but those of the command: it neither looks for an allocation nor for a
/// default hostfile, which `job_hosts` has done.
namespace poprun::launcher {

/// Errors
///   kHostResources  the disk of `place` has no room for the session of so many instances, which
///                   die of it one by one.
Status check_room_for_mpi_session(const collectives::SessionPlace& place, std::uint32_t instances);

using Variable = std::pair<std::string, std::string>;

struct MpirunCommand {
  std::vector<std::string> arguments;  ///< From "mpirun" on.
  std::vector<Variable>
      environment;  ///< Of mpirun itself, where the user's own has no such variable.
  std::vector<std::string> without;  ///< Variables of the user's that mpirun does not get.
  std::vector<std::vector<Variable>>
      instances;  ///< [num_instances] what an instance sees beside that.
};

/// `replica_program` is the path of poprun-emu-replica on every host. `as_root`: uid 0, which
/// mpirun refuses by itself.
MpirunCommand compose_mpirun(const Options& options, const Placement& placement,
                             const std::string& replica_program, bool as_root);

/// `compose_mpirun` for the user we run as, without variables that our own environment has: who
/// tunes Open MPI by its environment is taken at his word.
MpirunCommand mpirun_here(const Options& options, const Placement& placement,
                          const std::string& replica_program);

/// The command as a line for a shell, with the environment in front.
std::string shell_line(const MpirunCommand& command);

}  // namespace poprun::launcher
