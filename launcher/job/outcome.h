#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/profile.pb.h"

namespace poprun::launcher {

/// How a job ended.
struct JobEnd {
  int exit_code = 0;
  std::optional<proto::Profile> profile = {};  ///< If the job is complete.
  bool may_pass = false;                       ///< Why it failed: running it again may help.
  bool has_checkpoint = false;                 ///< It stored one of its own.
  std::vector<std::string> lost_hosts = {};    ///< That are down or cut off, as far as is known.
};

}  // namespace poprun::launcher
