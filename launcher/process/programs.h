#pragma once

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

/// Where one of our programs is, found or not: for --dry-run and questions.
std::string path_beside_us(const std::string& program);

}  // namespace poprun::launcher
