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

#include "replica/base/error.h"
#include "replica/base/ids.h"
#include "replica/ports/communicator.h"

/// What a replica says about a collective when it enters it, and the sentences made of that.
namespace poprun::collectives {

enum class CallKind : std::uint8_t {
  kAllocate,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  kGroup,
};

/// One collective as all replicas must make it alike. Travels between processes as it is.
struct Call {
  CallKind kind = CallKind::kBarrier;
  Reduction reduction = Reduction::kSum;  ///< For all-reduce and reduce-scatter.
  ReplicaId root{};                       ///< For broadcast: its number in the job.
  std::uint64_t bytes = 0;                ///< What this replica brings; for a group its size.
  /// Hash of names, types, sizes and positions of the buffers; of group its kind.
  std::uint64_t layout = 0;
  std::uint32_t names = 0;      ///< How many of its buffers have one.
  std::array<char, 64> name{};  ///< The first buffer's; ends with 0, cut where longer.

  /// Adds the name of a buffer, which may be empty.
  void add_name(std::string_view name);

  /// The names are part of `layout`.
  friend constexpr bool operator==(const Call& a, const Call& b) {
    return a.kind == b.kind && a.reduction == b.reduction && a.root == b.root &&
           a.bytes == b.bytes && a.layout == b.layout;
  }
};

/// "all-reduce".
const char* name_of(CallKind kind);

/// "all-reduce (mean) of 4096 B ('conv1.weight.gradient' and 9 more)".
std::string describe(const Call& call);

/// " ('conv1.weight.gradient' and 9 more)"; empty where the call has no names.
std::string names_of(const Call& call);

/// The beginning of a text in UTF-8, at most so many bytes and no part of a character: what
/// travels must stay valid, or protobuf drops the whole report of a failure.
std::string_view cut_to(std::string_view text, std::size_t bytes_max);

/// "replica 5", "replicas 0-2, 5". Requires: ascending, not empty.
std::string replica_list(std::span<const std::size_t> replicas);

/// "120 s", "250 ms".
std::string describe(std::chrono::milliseconds time);

/// kInfrastructure, "all-reduce 17: replicas 0-2, 5 did not arrive within 120 s", with these as the
/// missing ones. Requires: ascending, not empty.
Error late_error(const std::string& call, std::span<const std::size_t> replicas,
                 std::chrono::milliseconds waited);

/// Nothing where all calls are equal; else who calls what, in one line. calls[i] is the call of
/// replica numbers[i], `title` begins the line: "call 17".
std::optional<std::string> disagreement(const std::string& title,
                                        std::span<const std::size_t> numbers,
                                        std::span<const Call> calls);

Call call_of_reduce_scatter(Reduction reduction, ElementType type, std::span<const std::byte> data,
                            std::string_view name);
Call call_of_all_gather(std::span<const std::byte> mine, std::string_view name);
/// `root` by its number in the job.
Call call_of_broadcast(std::span<const std::byte> data, std::size_t root, std::string_view name);

/// Errors: kBug, a reduction that the type does not have.
Status check_reduction(Reduction reduction, ElementType type);
Status check_reduction(Reduction reduction, std::span<const Buffer> buffers);

/// FNV-1a over words, for Call::layout. Start with `kLayoutSeed`.
inline constexpr std::uint64_t kLayoutSeed = 0xcbf29ce484222325U;
constexpr std::uint64_t mix_layout(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 0x100000001b3U;
}

}  // namespace poprun::collectives
