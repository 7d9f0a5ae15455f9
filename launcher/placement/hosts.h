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
  std::string user = {};    ///< Login name on this host; empty: not stated.

  friend bool operator==(const Host&, const Host&) = default;
};

/// Parses lists such as `node0,node1:4`, `node[0-2,4]`, `n[00-03]-ib`, `rack[0-1]n[0-3]` and `user@node0`. Leading
/// zeros are kept, and spaces around commas are ignored. A number of slots after a name with brackets, or a user before
/// the name, applies to each of its hosts. Errors: kUsage. The message quotes the wrong part and shows a correct form.
Result<std::vector<Host>> parse_host_list(std::string_view text);

/// Parses an Open MPI hostfile: `[user@]HOST [slots=N] [max_slots=N] [username=NAME]` per line, and `#` comments.
/// max_slots limits the slots of its line. MPICH's `HOST:N` is also accepted. A host on several lines gets the sum of
/// their slots; a line without slots counts as one slot, as in PBS's files. Errors: kUsage (`file:line: ...`).
Result<std::vector<Host>> parse_hostfile(std::string_view file, std::string_view text);

/// Returns whether both names may mean the same host: they are identical, or identical except that one has a domain,
/// like node0 and node0.cluster. Addresses have no domain.
bool same_host(std::string_view one, std::string_view other);

struct KnownHost {
  bool is_this_machine = false;  ///< Whether the launcher runs on this host.
  std::string address = {};      ///< The host's first IPv4 address; empty: its name does not resolve here.
};

/// Recognises this machine only by name: localhost, its own name with or without a domain, and its name in Slurm.
std::vector<KnownHost> known_by_name(std::span<const Host> hosts);

/// Like known_by_name, but also recognises this machine by every name that resolves to one of its addresses. After 5 s,
/// no further lookup begins, and this machine is recognised among the remaining hosts only by name.
std::vector<KnownHost> look_up(std::span<const Host> hosts);

/// Returns the name of this machine for messages.
std::string machine_name();

struct JobHosts {
  std::vector<Host> hosts;     ///< Empty: only this machine.
  std::string source = {};     ///< Origin of the list, if it is not the command line.
  std::string slurm_job = {};  ///< Slurm job whose srun reaches the hosts; empty: ssh reaches them.
};

/// Returns the hosts of --host or --hostfile. If neither is given, returns those that mpirun would choose on its own:
/// the hosts of the Slurm or Grid Engine job that this process belongs to, or of Open MPI's default hostfile. mpirun
/// itself then does not look for hosts. If the Slurm job has `instances` tasks, a node has one slot per task.
///
/// Errors
///   kUsage          a list cannot be parsed, a host is not in the Slurm job, or arguments for mpirun name hosts.
///   kHostResources  a Slurm or Grid Engine job's variables (named in the message) are set, but its hosts are unusable.
Result<JobHosts> job_hosts(const Options& options, std::uint32_t instances);

}  // namespace poprun::launcher
