#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.h"
#include "launcher/placement/hosts.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// The hosts that a job may use.
struct JobHosts {
  std::vector<Host> hosts;  ///< Empty: this machine alone.
  std::string source = {};  ///< Where they come from, if the command does not name them.
  std::string slurm_job =
      {};  ///< Number of the Slurm job whose srun reaches them; empty: none does.
};

/// Those of --host or --hostfile; else those that mpirun would use of itself: of the Slurm or Grid
/// Engine job that this process belongs to, or of Open MPI's default hostfile. mpirun then sees
/// only what the launcher tells it. `instances`: Slurm's tasks per node are the slots if there are
/// as many tasks.
///
/// Errors
///   kUsage          a list or file is not understood; hosts outside of Slurm's job; hosts among
///                   mpirun's own arguments
///   kHostResources  variables of a Slurm or Grid Engine job are set, but its hosts cannot be used:
///                   names the variable to unset.
Result<JobHosts> job_hosts(const Options& options, std::uint32_t instances);

}  // namespace poprun::launcher
