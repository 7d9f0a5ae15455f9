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
///   kUsage   the groups' size does not divide `total`; names the sizes that do.
Result<Members> members_of(Group group, std::size_t total, std::size_t replica);

Call call_of_group(Group group);

/// What follows a call's number in messages of a group: " of replicas 0, 4, 8, 12". Of large groups
/// only the first and the last are named. Requires: ascending, not empty.
std::string among(std::span<const std::size_t> numbers);

}  // namespace poprun::collectives
