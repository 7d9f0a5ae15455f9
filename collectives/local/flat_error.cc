#include "collectives/local/flat_error.h"

#include <string_view>
#include <type_traits>

#include "collectives/local/call.h"

namespace poprun::collectives {

static_assert(std::is_trivially_copyable_v<FlatError>);

FlatError::FlatError(const Error& error)
    : code_(error.code),
      is_short_(error.facts.shortage.has_value()),
      shortage_(error.facts.shortage.value_or(Shortage{})) {
  for (const std::uint32_t replica : error.facts.missing) {
    POPRUN_CHECK(replica < kReplicasMax);
    missing_.set(replica);
  }
  const std::string_view message = cut_to(error.message, message_.size() - 1);
  message.copy(message_.data(), message.size());
}

Error FlatError::error() const {
  Error error{code_, message_.data()};
  for (std::uint32_t replica = 0; replica < kReplicasMax; ++replica) {
    if (missing_.test(replica)) {
      error.facts.missing.push_back(replica);
    }
  }
  if (is_short_) {
    error.facts.shortage = shortage_;
  }
  return error;
}

}  // namespace poprun::collectives
