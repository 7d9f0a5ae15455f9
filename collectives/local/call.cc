#include "collectives/local/call.h"

#include <algorithm>
#include <cstring>

namespace poprun::collectives {
namespace {

/// Largest number of replicas that a message about a group lists in full.
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

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kMean:
      return "mean";
    case Reduction::kMax:
      return "max";
  }
  return "unknown reduction";
}

std::string describe_group(const Call& call) {
  switch (static_cast<Group::Kind>(call.layout)) {
    case Group::Kind::kAll:
      return "group (all)";
    case Group::Kind::kConsecutive:
      return "group (consecutive of " + std::to_string(call.bytes) + ")";
    case Group::Kind::kOrthogonal:
      return "group (orthogonal of " + std::to_string(call.bytes) + ")";
    case Group::Kind::kHost:
      return "group (host)";
  }
  return "group";
}

Call named(Call call, std::string_view name) {
  call.add_name(name);
  return call;
}

}  // namespace

Result<Members> members_of(Group group, std::size_t total, std::size_t replica) {
  POPRUN_CHECK(replica < total);
  if (group.kind == Group::Kind::kAll || group.kind == Group::Kind::kHost) {
    return Members{0, 1, total};
  }
  if (group.size == 0 || total % group.size != 0) {
    return fail(ErrorCode::kUsage, "groups of " + std::to_string(group.size) + " replicas cannot be formed from " +
                                       std::to_string(total) + " replicas; possible sizes are " + divisors_of(total));
  }
  return group.kind == Group::Kind::kConsecutive ? consecutive_members(group.size, replica)
                                                 : orthogonal_members(total, group.size, replica);
}

Call call_of_group(Group group) {
  return {.kind = CallKind::kGroup, .bytes = group.size, .layout = static_cast<std::uint64_t>(group.kind)};
}

std::string among(std::span<const std::size_t> numbers) {
  if (numbers.size() <= kListed) {
    return " of " + replica_list(numbers);
  }
  return " of " + std::to_string(numbers.size()) + " replicas " + std::to_string(numbers[0]) + ", " +
         std::to_string(numbers[1]) + " .. " + std::to_string(numbers.back());
}

// Hashes eight bytes at a time, because an exchange of hundreds of tensors hashes all their names.
void Call::add_name(std::string_view added) {
  if (added.empty()) {
    return;
  }
  for (std::size_t begin = 0; begin < added.size(); begin += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, added.data() + begin, std::min(sizeof(word), added.size() - begin));
    layout = mix_layout(layout, word);
  }
  layout = mix_layout(layout, added.size());
  if (++names == 1) {
    constexpr std::string_view kCut = "...";
    if (added.size() < name.size()) {
      added.copy(name.data(), added.size());
    } else {
      const std::string_view kept = cut_to(added, name.size() - 1 - kCut.size());
      kept.copy(name.data(), kept.size());
      kCut.copy(name.data() + kept.size(), kCut.size());
    }
  }
}

std::string_view cut_to(std::string_view text, std::size_t bytes_max) {
  std::size_t size = std::min(text.size(), bytes_max);
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) >> 6U) == 0b10) {
    --size;
  }
  return text.substr(0, size);
}

const char* name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kAllocate:
      return "allocate";
    case CallKind::kAllocateCommon:
      return "allocate common memory";
    case CallKind::kAllReduce:
      return "all-reduce";
    case CallKind::kReduceToOwners:
      return "all-reduce to owners";
    case CallKind::kReduceScatter:
      return "reduce-scatter";
    case CallKind::kAllGather:
      return "all-gather";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kGroup:
      return "group";
  }
  return "unknown call";
}

std::string describe(const Call& call) {
  if (call.kind == CallKind::kGroup) {
    return describe_group(call);
  }
  std::string text = name_of(call.kind);
  if (call.kind == CallKind::kBarrier) {
    return text;
  }
  if (call.kind == CallKind::kAllReduce || call.kind == CallKind::kReduceToOwners ||
      call.kind == CallKind::kReduceScatter) {
    text += std::string(" (") + name_of(call.reduction) + ")";
  }
  text += " of " + std::to_string(call.bytes) + " B";
  if (call.kind == CallKind::kBroadcast) {
    text += " from replica " + std::to_string(index_of(call.root));
  }
  return text + names_of(call);
}

std::string names_of(const Call& call) {
  if (call.names == 0) {
    return "";
  }
  const std::string more = call.names > 1 ? " and " + std::to_string(call.names - 1) + " more" : std::string();
  return std::string(" ('") + call.name.data() + "'" + more + ")";
}

Call call_of_reduce_scatter(Reduction reduction, ElementType type, std::span<const std::byte> data,
                            std::string_view name) {
  return named({.kind = CallKind::kReduceScatter,
                .reduction = reduction,
                .bytes = data.size(),
                .layout = static_cast<std::uint64_t>(type)},
               name);
}

Call call_of_all_gather(std::span<const std::byte> mine, std::string_view name) {
  return named({.kind = CallKind::kAllGather, .bytes = mine.size()}, name);
}

Call call_of_broadcast(std::span<const std::byte> data, std::size_t root, std::string_view name) {
  return named({.kind = CallKind::kBroadcast, .root = static_cast<ReplicaId>(root), .bytes = data.size()}, name);
}

Status check_reduction(Reduction reduction, ElementType type) {
  if (reduction == Reduction::kMean && type == ElementType::kI32) {
    return fail(ErrorCode::kBug,
                "integers cannot be averaged over replicas; sum them, or convert them to floats first");
  }
  return {};
}

Status check_reduction(Reduction reduction, std::span<const Buffer> buffers) {
  for (const Buffer& buffer : buffers) {
    POPRUN_TRY(check_reduction(reduction, buffer.type));
  }
  return {};
}

std::string replica_list(std::span<const std::size_t> replicas) {
  std::string text = replicas.size() == 1 ? "replica " : "replicas ";
  for (std::size_t begin = 0; begin < replicas.size();) {
    std::size_t end = begin + 1;
    while (end < replicas.size() && replicas[end] == replicas[end - 1] + 1) {
      ++end;
    }
    text += begin == 0 ? "" : ", ";
    text += std::to_string(replicas[begin]);
    if (end - begin > 1) {
      text += "-";
      text += std::to_string(replicas[end - 1]);
    }
    begin = end;
  }
  return text;
}

std::string describe(std::chrono::milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

Error late_error(const std::string& call, std::span<const std::size_t> replicas, std::chrono::milliseconds waited) {
  return {ErrorCode::kInfrastructure,
          call + ": " + replica_list(replicas) + " did not arrive within " + describe(waited),
          {.missing = {replicas.begin(), replicas.end()}}};
}

std::optional<std::string> disagreement(const std::string& title, std::span<const std::size_t> numbers,
                                        std::span<const Call> calls) {
  std::vector<bool> told(calls.size(), false);
  std::vector<std::string> groups;
  bool only_layouts_differ = true;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (told[i]) {
      continue;
    }
    std::vector<std::size_t> alike;
    for (std::size_t k = i; k < calls.size(); ++k) {
      if (calls[k] == calls[i]) {
        told[k] = true;
        alike.push_back(numbers[k]);
      }
    }
    groups.push_back(replica_list(alike) + ": " + describe(calls[i]));
    only_layouts_differ = only_layouts_differ && describe(calls[i]) == describe(calls[0]);
  }
  if (groups.size() < 2) {
    return std::nullopt;
  }
  std::string text = title + " differs between replicas";
  if (only_layouts_differ) {
    text += " in the names, types, sizes or positions of its buffers";
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    text += i == 0 ? ": " : "; ";
    text += groups[i];
  }
  return text;
}

}  // namespace poprun::collectives
