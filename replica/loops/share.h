#pragma once

#include <string>
#include <string_view>

#include "replica/base/error.h"
#include "replica/base/ids.h"
#include "replica/ports/communicator.h"

namespace poprun {

/// Replaces `bytes`, of any size, by those of replica `root` on every replica. Collective. `name`
/// is for messages. Errors: those of the communicator.
Status share_bytes(std::string& bytes, ReplicaId root, Communicator& communicator,
                   std::string_view name);

}  // namespace poprun
