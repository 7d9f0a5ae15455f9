#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"

/// Parsers of the host lists that users write.
namespace poprun::launcher {

struct Host {
  std::string name;
  std::uint32_t slots = 0;  ///< 0: not stated.
  std::string user = {};    ///< User to log in as; empty: not stated.

  friend bool operator==(const Host&, const Host&) = default;
};

/// Parses `node0,node1:4`, `node[0-2,4]`, `n[00-03]-ib`, `rack[0-1]n[0-3]`, `user@node0`. Leading zeros are kept, and
/// blanks around commas are ignored. Slots after a bracket and a user before it apply to each of its hosts.
///
/// Errors
///   kUsage  says which part is wrong and what it should look like.
Result<std::vector<Host>> parse_host_list(std::string_view text);

/// Parses Open MPI's hostfile, with `[user@]HOST [slots=N] [max_slots=N] [username=NAME]` per line and `#` comments;
/// max_slots bounds the slots of its line. Also accepts MPICH's `HOST:N`. A host on several lines has the slots of all
/// of them, and a line without slots counts as one, as in PBS's files. `file` is for messages.
///
/// Errors
///   kUsage  `file:line: ...`.
Result<std::vector<Host>> parse_hostfile(std::string_view file, std::string_view text);

/// Returns whether both names may mean the same host: they are equal, or one is the other without its domain, like
/// node0 and node0.cluster. Addresses have no domain.
bool same_host(std::string_view one, std::string_view other);

/// A host as this machine knows it.
struct KnownHost {
  bool is_this_machine = false;  ///< Processes on it run on this machine.
  std::string address = {};      ///< Its first IPv4 address; empty: its name does not resolve here.
};

/// Decides from names alone: this machine is localhost, its own name with or without a domain, and Slurm's name for it.
std::vector<KnownHost> known_by_name(std::span<const Host> hosts);

/// Does the same with addresses: every name that resolves to one of this machine's addresses also means this machine.
/// Takes at most 5 s and one lookup; the remaining hosts are then known by name only.
std::vector<KnownHost> look_up(std::span<const Host> hosts);

/// Returns the name of this machine for messages.
std::string machine_name();

}  // namespace poprun::launcher
