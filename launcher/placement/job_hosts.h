#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.h"
#include "launcher/placement/hosts.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// The hosts that a job may use.
struct JobHosts {
  std::vector<Host> hosts;     ///< Empty: only this machine.
  std::string source = {};     ///< Where the list comes from, if not from the command line.
  std::string slurm_job = {};  ///< Slurm job whose srun reaches the hosts; empty: none.
};

/// Returns the hosts of --host or --hostfile, or else those that mpirun would choose by itself: the hosts of the Slurm
/// or Grid Engine job that this process belongs to, or of Open MPI's default hostfile. mpirun then sees only the hosts
/// that the launcher passes on. If Slurm has as many tasks as `instances`, its tasks per node are the slots.
///
/// Errors
///   kUsage          a list or file cannot be parsed; hosts outside of Slurm's job; hosts among mpirun's own arguments.
///   kHostResources  variables of a Slurm or Grid Engine job are set, but its hosts cannot be used;
///                   names the variable to unset.
Result<JobHosts> job_hosts(const Options& options, std::uint32_t instances);

}  // namespace poprun::launcher
