#pragma once

#include <cstdint>
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

/// `node0,node1:4`, `node[0-2,4]`, `n[00-03]-ib`, `user@node0`: leading zeros are kept, at most one
/// bracket a name. Slots after a bracket and a user before it hold for each host of it.
///
/// Errors
///   kUsage  says which part is wrong and how it should look.
Result<std::vector<Host>> parse_host_list(std::string_view text);

/// Open MPI's hostfile: `[user@]HOST [slots=N] [max_slots=N] [username=NAME]` a line, and `#`
/// comments. A host listed on several lines has the slots of all of them; max_slots bounds the
/// slots of its line. `file` is for messages.
///
/// Errors
///   kUsage  `file:line: ...`.
Result<std::vector<Host>> parse_hostfile(std::string_view file, std::string_view text);

/// True where processes on `host` are on this machine: localhost, a loopback address, or our name.
bool is_this_machine(std::string_view host);

/// This machine's name, as messages show it.
std::string machine_name();

}  // namespace poprun::launcher
