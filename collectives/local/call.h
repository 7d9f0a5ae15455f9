#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/patterns/canonical_tree.h"
#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/ports/communicator.h"

/// The announcement of a replica that enters a collective, and the messages derived from it.
namespace poprun::collectives {

enum class CallKind : std::uint8_t {
  kAllocate,
  kAllocateCommon,
  kAllReduce,
  kReduceToOwners,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  kGroup,
};

/// Description of one collective, identical on all replicas. Trivially copyable: processes exchange it as plain bytes.
struct Call {
  CallKind kind = CallKind::kBarrier;
  Reduction reduction = Reduction::kSum;  ///< For calls that reduce.
  ReplicaId root{};                       ///< For broadcast: the root's number in the job.
  std::uint64_t bytes = 0;  ///< Bytes that this replica contributes; if the call forms a group, the group's size.
  /// Hash of the buffers' names, types, sizes and positions; if the call forms a group, hash of the group's kind.
  std::uint64_t layout = 0;
  std::uint32_t names = 0;      ///< Number of buffers that have a name.
  std::array<char, 64> name{};  ///< The first buffer's name, 0-terminated, truncated if longer.

  /// Adds a buffer's name, which may be empty.
  void add_name(std::string_view name);

  /// Does not compare `names` and `name`, because `layout` contains a hash of all names.
  friend constexpr bool operator==(const Call& a, const Call& b) {
    return a.kind == b.kind && a.reduction == b.reduction && a.root == b.root && a.bytes == b.bytes &&
           a.layout == b.layout;
  }
};

const char* name_of(CallKind kind);

/// Returns "all-reduce (mean) of 4096 B ('conv1.weight.gradient' and 9 more)".
std::string describe(const Call& call);

/// Returns " ('conv1.weight.gradient' and 9 more)"; empty if the call has no names.
std::string names_of(const Call& call);

/// Returns the longest prefix of a UTF-8 text that has at most `bytes_max` bytes and does not split a character. Text
/// on the wire must stay valid UTF-8, because protobuf would otherwise drop the whole failure report.
std::string_view cut_to(std::string_view text, std::size_t bytes_max);

/// Formats replica numbers: "replica 5", "replicas 0-2, 5". Requires: `replicas` are ascending and not empty.
std::string replica_list(std::span<const std::size_t> replicas);

/// Formats a duration: "120 s", "250 ms".
std::string describe(std::chrono::milliseconds time);

/// Returns a kInfrastructure error with the message "all-reduce 17: replicas 0-2, 5 did not arrive within 120 s".
/// `replicas` also become the error's `missing` fact. Requires: `replicas` are ascending and not empty.
Error late_error(const std::string& call, std::span<const std::size_t> replicas, std::chrono::milliseconds waited);

/// Returns one line that says which replica makes which call, or nothing if all calls are identical. calls[i] is the
/// call of replica numbers[i]; `title`, such as "call 17", begins the line.
std::optional<std::string> disagreement(const std::string& title, std::span<const std::size_t> numbers,
                                        std::span<const Call> calls);

Call call_of_reduce_scatter(Reduction reduction, ElementType type, std::span<const std::byte> data,
                            std::string_view name);
Call call_of_all_gather(std::span<const std::byte> mine, std::string_view name);
/// Returns the announcement of a broadcast. `root` is the number of the root replica in the job.
Call call_of_broadcast(std::span<const std::byte> data, std::size_t root, std::string_view name);

/// Errors: kBug if the type does not support the reduction.
Status check_reduction(Reduction reduction, ElementType type);
Status check_reduction(Reduction reduction, std::span<const Buffer> buffers);

/// FNV-1a over 64-bit words, for Call::layout. Start with `kLayoutSeed`.
inline constexpr std::uint64_t kLayoutSeed = 0xcbf29ce484222325U;
constexpr std::uint64_t mix_layout(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 0x100000001b3U;
}

/// Returns the members of `replica`'s group among `total` replicas, which share a host if the group's kind is kHost.
/// Errors: kUsage if the group size does not divide `total`; the message names the sizes that do.
Result<Members> members_of(Group group, std::size_t total, std::size_t replica);

Call call_of_group(Group group);

/// Returns the text that follows a call's number in messages about a group: " of replicas 0, 4, 8, 12". For large
/// groups, it names only the first and the last. Requires: `numbers` are ascending and not empty.
std::string among(std::span<const std::size_t> numbers);

}  // namespace poprun::collectives
