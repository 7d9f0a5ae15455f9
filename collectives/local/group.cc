#include "collectives/local/group.h"

namespace poprun::collectives {
namespace {

/// The most replica numbers that a group's message lists in full.
constexpr std::size_t kListed = 16;

std::string divisors_of(std::size_t total) {
  std::string text;
  for (std::size_t size = 1; size <= total; ++size) {
    if (total % size == 0) {
      text += (text.empty() ? "" : ", ") + std::to_string(size);
    }
  }
  return text;
}

}  // namespace

Result<Members> members_of(Group group, std::size_t total, std::size_t replica) {
  POPRUN_CHECK(replica < total);
  if (group.kind == Group::Kind::kAll) {
    return Members{0, 1, total};
  }
  if (group.size == 0 || total % group.size != 0) {
    return fail(ErrorCode::kUsage, "groups of " + std::to_string(group.size) +
                                       " replicas do not divide " + std::to_string(total) +
                                       " replicas; sizes that do are " + divisors_of(total));
  }
  return group.kind == Group::Kind::kConsecutive ? consecutive_members(group.size, replica)
                                                 : orthogonal_members(total, group.size, replica);
}

Call call_of_group(Group group) {
  return {.kind = CallKind::kGroup,
          .bytes = group.size,
          .layout = static_cast<std::uint64_t>(group.kind)};
}

std::string among(std::span<const std::size_t> numbers) {
  if (numbers.size() <= kListed) {
    return " of " + replica_list(numbers);
  }
  return " of " + std::to_string(numbers.size()) + " replicas " + std::to_string(numbers[0]) +
         ", " + std::to_string(numbers[1]) + " .. " + std::to_string(numbers.back());
}

}  // namespace poprun::collectives
