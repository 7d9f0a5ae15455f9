#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/profile.pb.h"

namespace poprun::launcher {

/// How a job ended.
struct JobEnd {
  int exit_code = 0;
  std::optional<proto::Profile> profile = {};  ///< Set if the job is complete.
  bool may_pass = false;                       ///< The failure may be transient: a restart may help.
  bool has_checkpoint = false;                 ///< The job stored a checkpoint of its own.
  std::vector<std::string> lost_hosts = {};    ///< Hosts known to be down or cut off.
};

}  // namespace poprun::launcher
