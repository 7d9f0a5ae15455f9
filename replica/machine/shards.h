#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "replica/graph/graph.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"
#include "replica/machine/step_tensors.h"

/// Code shared by shard, reduce_scatter and all_gather.
namespace poprun {

inline constexpr const char* kGroupAttribute = "group";

/// Returns SIZE of `group=SIZE`, or 0 if it is absent.
inline std::int64_t group_of(const Operation& operation) {
  const auto& values = operation.attributes.values();
  const auto found = values.find(kGroupAttribute);
  const auto* const size = found == values.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return size == nullptr ? 0 : *size;
}

/// Returns the number of replicas that share a tensor.
inline std::int64_t sharing_replicas(const Operation& operation, const ReplicaSystem& system) {
  const std::int64_t group = group_of(operation);
  return group > 0 ? group : system.replicas;
}

inline Attributes group_attributes(std::int64_t group) {
  Attributes attributes;
  if (group > 0) {
    attributes.set(kGroupAttribute, group);
  }
  return attributes;
}

/// Checks that each of `shards` is a shard of its tensor.
inline Status verify_shards(const Graph& graph, std::string_view kind, const std::vector<TensorId>& tensors,
                            const std::vector<TensorId>& shards) {
  if (tensors.empty() || tensors.size() != shards.size()) {
    return fail(ErrorCode::kUsage, fmt::format("{} takes at least one tensor and writes as many", kind));
  }
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    const Tensor& whole = graph.tensor(tensors[k]);
    const Tensor& shard = graph.tensor(shards[k]);
    if (shard.shard_of != whole.type || shard.type.data != whole.type.data || shard.type.shape.size() != 1 ||
        shard.ipu != whole.ipu) {
      return fail(ErrorCode::kUsage, fmt::format("{}: '{}' {} is not a shard of '{}' {}", kind, shard.name,
                                                 to_text(shard.type), whole.name, to_text(whole.type)));
    }
  }
  return {};
}

/// A tensor and the replica's shard of it.
struct ShardPair {
  HostTensor whole;
  HostTensor shard;
  std::size_t count = 0;  ///< Shards of the tensor.
  std::size_t self = 0;   ///< Index of this replica's shard.

  /// Bytes of all shards, including the padding of the last ones.
  [[nodiscard]] std::size_t filled() const { return shard.bytes.size() * count; }
};

/// Returns tensors with their shards. Errors: kBug if the shards do not make up the tensor.
inline Result<std::vector<ShardPair>> shard_pairs(const google::protobuf::RepeatedField<std::uint32_t>& tensors,
                                                  const google::protobuf::RepeatedField<std::uint32_t>& shards,
                                                  std::uint32_t group, Machine& machine) {
  const Communicator& all = machine.communicator();
  const std::size_t count = group > 0 ? group : all.size();
  std::vector<ShardPair> pairs;
  for (int k = 0; k < tensors.size(); ++k) {
    ShardPair pair{machine.tensor(tensors[k]), machine.tensor(shards[k]), count, index_of(all.self()) % count};
    if (pair.shard.type != shard_type(pair.whole.type, static_cast<std::int64_t>(count))) {
      return fail(ErrorCode::kBug,
                  fmt::format("{} shards like '{}' do not make up '{}'", count, pair.shard.name, pair.whole.name));
    }
    pairs.push_back(pair);
  }
  return pairs;
}

/// Copies the replica's part of `whole` to its shard, padded with zeros.
inline void take_shard(const ShardPair& pair) {
  const std::size_t size = pair.shard.bytes.size();
  const std::size_t begin = std::min(pair.self * size, pair.whole.bytes.size());
  const std::size_t count = std::min(size, pair.whole.bytes.size() - begin);
  std::memcpy(pair.shard.bytes.data(), pair.whole.bytes.data() + begin, count);
  std::memset(pair.shard.bytes.data() + count, 0, size - count);
}

}  // namespace poprun
