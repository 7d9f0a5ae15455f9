#pragma once

#include <string>

#include "launcher/placement/placement.h"
#include "replica/base/error.h"

/// What the launcher finds around itself: programs, addresses, the job's token.
namespace poprun::launcher {

struct Programs {
  std::string replica;  ///< Paths; the first two beside our own executable.
  std::string data_server;
  std::string mpirun;  ///< From PATH.
};

/// Errors
///   kUnreachable  one is missing; names where it was looked for and what to install.
Result<Programs> find_programs();

/// Where one of our programs is, found or not: for --dry-run and questions.
std::string path_beside_us(const std::string& program);

/// The address at which the hosts of `placement` reach this machine: 127.0.0.1 where all are local,
/// otherwise that of the interface towards the first host that is not.
std::string advertised_host(const Placement& placement);

/// POPRUN_EMU_TOKEN of our own environment, or else 128 random bits.
std::string job_token();

/// True where the user chose the token, and can start a data server with it.
bool token_is_users();

}  // namespace poprun::launcher
