#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "collectives/local/call.h"
#include "collectives/patterns/members.h"
#include "replica/base/error.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// The members of `replica`'s group among `total` replicas.
///
/// Errors
///   kUsage   the group size does not divide `total`; names the sizes that do.
Result<Members> members_of(Group group, std::size_t total, std::size_t replica);

Call call_of_group(Group group);

/// Follows a call's number in a group's messages: " of replicas 0, 4, 8, 12". For large groups,
/// names only the first and the last. Requires: ascending, not empty.
std::string among(std::span<const std::size_t> numbers);

}  // namespace poprun::collectives
