#pragma once

#include <optional>
#include <string>

#include "replica/base/error.h"

namespace poprun::launcher {

struct Programs {
  std::string replica;  ///< Paths; the first two beside our own executable.
  std::string data_server;
  std::string mpirun;  ///< From PATH.
};

/// With `other_hosts`, also whether there is what stands between mpirun and ssh.
///
/// Errors
///   kHostResources  one is missing; names where it was looked for and what to install.
Result<Programs> find_programs(bool other_hosts);

/// The program of this name that a shell would run; nothing if PATH has none.
std::optional<std::string> in_path(const std::string& program);

/// Asks `mpirun` for its version.
///
/// Errors
///   kHostResources  it does not belong to Open MPI 4; says what it is and what is needed.
Status check_mpirun_program(const std::string& mpirun);

/// The same of what it answered.
Status check_mpirun_version(const std::string& mpirun, const std::string& answer);

/// Where one of our programs is, found or not: for --dry-run and questions.
std::string path_beside_us(const std::string& program);

}  // namespace poprun::launcher
