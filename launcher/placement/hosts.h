#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/options.h"
#include "replica/base/error.h"

namespace poprun::launcher {

struct Host {
  std::string name;
  std::uint32_t slots = 0;  ///< 0: not stated.
  std::string user = {};    ///< User to log in as; empty: not stated.

  friend bool operator==(const Host&, const Host&) = default;
};

/// Parses `node0,node1:4`, `node[0-2,4]`, `n[00-03]-ib`, `rack[0-1]n[0-3]`, `user@node0`. Leading zeros are kept, and
/// spaces around commas are ignored. Slots after a bracketed name and a user before it apply to each of its hosts.
/// Errors: kUsage, which says which part is wrong and what it should look like.
Result<std::vector<Host>> parse_host_list(std::string_view text);

/// Parses Open MPI's hostfile, with `[user@]HOST [slots=N] [max_slots=N] [username=NAME]` per line and `#` comments;
/// max_slots bounds the slots of its line. Also accepts MPICH's `HOST:N`. A host on several lines has the sum of their
/// slots; a line without slots counts as one, as in PBS's files. Errors: kUsage, `file:line: ...`.
Result<std::vector<Host>> parse_hostfile(std::string_view file, std::string_view text);

/// Returns whether both names may mean the same host: they are identical, or they differ only in that one has a domain,
/// like node0 and node0.cluster. Addresses have no domain.
bool same_host(std::string_view one, std::string_view other);

struct KnownHost {
  bool is_this_machine = false;  ///< Processes on it run on this machine.
  std::string address = {};      ///< Its first IPv4 address; empty: its name does not resolve here.
};

/// Decides from names alone: this machine is localhost, its own name with or without a domain, or its name in Slurm.
std::vector<KnownHost> known_by_name(std::span<const Host> hosts);

/// Does the same, and also recognises this machine by every name that resolves to one of its addresses. Stops after 5
/// s, once the current lookup has ended; the remaining hosts are then known by name only.
std::vector<KnownHost> look_up(std::span<const Host> hosts);

/// Returns the name of this machine for messages.
std::string machine_name();

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
///   kUsage          a list cannot be parsed, a host is not in Slurm's job, or arguments for mpirun name hosts.
///   kHostResources  variables of a Slurm or Grid Engine job are set, but its hosts are unusable; says which to unset.
Result<JobHosts> job_hosts(const Options& options, std::uint32_t instances);

}  // namespace poprun::launcher
