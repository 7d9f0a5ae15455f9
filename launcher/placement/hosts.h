#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"

/// The host lists that users write.
namespace poprun::launcher {

struct Host {
  std::string name;
  std::uint32_t slots = 0;  ///< 0: not stated.
  std::string user = {};    ///< Who logs in there; empty: not stated.

  friend bool operator==(const Host&, const Host&) = default;
};

/// `node0,node1:4`, `node[0-2,4]`, `n[00-03]-ib`, `rack[0-1]n[0-3]`, `user@node0`: leading zeros
/// are kept, and blanks around commas do not count. Slots after a bracket and a user before it hold
/// for each host of it.
///
/// Errors
///   kUsage  says which part is wrong and how it should look.
Result<std::vector<Host>> parse_host_list(std::string_view text);

/// Open MPI's hostfile, `[user@]HOST [slots=N] [max_slots=N] [username=NAME]` a line, with `#`
/// comments; max_slots bounds the slots of its line. Also MPICH's `HOST:N`. A host listed on
/// several lines has the slots of all of them, one for a line without slots, as in PBS's files.
/// `file` is for messages.
///
/// Errors
///   kUsage  `file:line: ...`.
Result<std::vector<Host>> parse_hostfile(std::string_view file, std::string_view text);

/// Whether both can name one host: they are equal, or one is the other without its domain, as node0
/// and node0.cluster are. Addresses have no domain.
bool same_host(std::string_view one, std::string_view other);

/// A host as this machine knows it.
struct KnownHost {
  bool is_this_machine = false;  ///< Processes on it are on this machine.
  std::string address = {};      ///< Its first IPv4 address; empty: its name does not resolve here.
};

/// What names alone say: this machine is localhost and has its own name, with or without a domain,
/// and Slurm's for it.
std::vector<KnownHost> known_by_name(std::span<const Host> hosts);

/// The same with addresses: this machine also has every name that resolves to one of its addresses.
/// Takes 5 s and one lookup at most; the rest are then known by their names alone.
std::vector<KnownHost> look_up(std::span<const Host> hosts);

/// This machine's name, as messages show it.
std::string machine_name();

}  // namespace poprun::launcher
