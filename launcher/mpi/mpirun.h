#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "collectives/session/session.h"
#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "replica/base/error.h"

/// Functions that compose the mpirun command of a job, which depends only on the options. As in poprun, the command has
/// one application context per instance: rank r is instance r, and each instance has its own POPDIST_* variables. The
/// address of the coordinator differs from run to run, so the command contains only the name of a variable. mpirun uses
/// only the hosts in the command. It does not search for an allocation or a default hostfile, because `job_hosts` has
/// already searched for both.
///
/// Secrets (token, certificates) are in mpirun's environment, which processes on this machine inherit. mpirun would
/// forward secrets in plain text, so our own script (remote_shell.sh), which runs between mpirun and the real remote
/// shell, takes them to other hosts. The real remote shell is ssh, srun in a Slurm job, or the user's own.
namespace poprun::launcher {

/// Checks that the disk of `place` has enough space for Open MPI's session of `instances` instances. If the disk were
/// too full, the instances would die one by one. Errors: kHostResources.
Status check_room_for_mpi_session(const collectives::SessionPlace& place, std::uint32_t instances);

using Variable = std::pair<std::string, std::string>;

struct MpirunCommand {
  std::vector<std::string> arguments;            ///< Begins with "mpirun".
  std::vector<Variable> environment;             ///< For mpirun itself, unless set in the user's environment.
  std::vector<std::string> without;              ///< The user's variables to withhold from mpirun.
  std::vector<std::vector<Variable>> instances;  ///< [num_instances] additional variables of each instance.
};

/// Composes the command. `replica_program` is the replica's path on every host. `as_root` says whether we run as root,
/// which mpirun refuses by default.
MpirunCommand compose_mpirun(const Options& options, const Placement& placement, const std::string& replica_program,
                             bool as_root);

/// Calls `compose_mpirun` for the current user. Leaves out variables already set in our own environment, so that users
/// who tune Open MPI through environment variables get exactly their settings.
MpirunCommand mpirun_here(const Options& options, const Placement& placement, const std::string& replica_program);

/// Returns the command by which mpirun reaches other hosts: the user's own if one is set, otherwise srun in a Slurm job
/// and ssh elsewhere. As in Open MPI, the command may be a list such as "ssh : rsh", of which the first that exists is
/// used.
std::string remote_shell(const Options& options, const Placement& placement);

/// Formats the command, preceded by its environment, as a line for a shell.
std::string shell_line(const MpirunCommand& command);

}  // namespace poprun::launcher
