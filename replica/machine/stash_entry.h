#pragma once

#include <cstdint>

#include <fmt/format.h>

#include "replica/graph/graph.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

/// Code shared by stash and restore.
namespace poprun {

/// Checks that `stash` holds tensors like `tensor`.
inline Status verify_stash(const Graph& graph, std::string_view kind, TensorId stash,
                           TensorId tensor) {
  const Tensor& all = graph.tensor(stash);
  const Tensor& one = graph.tensor(tensor);
  if (all.type.shape.empty() || all.type.shape[0] < 1 ||
      all.type != stash_type(one.type, all.type.shape[0])) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: '{}' {} is no stash for '{}' {}", kind, all.name,
                            to_text(all.type), one.name, to_text(one.type)));
  }
  return {};
}

/// Device time of a copy within the tiles, or to or from Streaming Memory.
inline DeviceTime time_of_entry(const Device& device, const Graph& graph, TensorId stash,
                                TensorId tensor) {
  const Bytes bytes = graph.tensor(tensor).type.bytes();
  if (graph.tensor(stash).is_remote()) {
    return time_of_streaming_copy(device, bytes);
  }
  Work work;
  work.memory_traffic = bytes * 2;
  return time_of_work(device, work);
}

/// A stash, a tensor, and which entry it is now.
class StashEntry {
 public:
  StashEntry(std::uint32_t stash, std::uint32_t tensor, const Machine& machine)
      : stash_(machine.tensor(stash)), tensor_(machine.tensor(tensor)), machine_(machine) {}

  [[nodiscard]] std::span<std::byte> entry() const {
    const auto length = static_cast<std::size_t>(stash_.type.shape.at(0));
    const std::size_t at = machine_.micro_batch() % length;
    return stash_.bytes.subspan(at * tensor_.bytes.size(), tensor_.bytes.size());
  }
  [[nodiscard]] std::span<std::byte> tensor() const { return tensor_.bytes; }

 private:
  HostTensor stash_;
  HostTensor tensor_;
  const Machine& machine_;
};

}  // namespace poprun
