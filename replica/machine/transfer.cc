#include "replica/machine/transfer.h"

#include <algorithm>
#include <vector>

#include "replica/machine/operations.h"

namespace poprun {
namespace {

void add(const Graph& graph, TensorId tensor, std::map<std::uint32_t, Bytes>& bytes) {
  bytes[graph.tensor(tensor).ipu] += graph.tensor(tensor).type.bytes();
}

OffChipTransfer transfer_of(const Graph& graph, const std::vector<TensorId>& on_chip, proto::Transfer direction) {
  OffChipTransfer transfer{direction};
  for (const TensorId tensor : on_chip) {
    add(graph, tensor, transfer.bytes);
  }
  return transfer;
}

}  // namespace

Bytes OffChipTransfer::bytes_on(std::uint32_t ipu) const {
  const auto found = bytes.find(ipu);
  return found == bytes.end() ? Bytes{} : found->second;
}

Bytes OffChipTransfer::most() const {
  Bytes most;
  for (const auto& [ipu, own] : bytes) {
    most = std::max(most, own);
  }
  return most;
}

OffChipTransfer off_chip_transfer(const Graph& graph, const Operation& operation) {
  const auto are_remote = [&](const std::vector<TensorId>& tensors) {
    return std::ranges::all_of(tensors, [&](TensorId id) { return graph.tensor(id).is_remote(); });
  };
  if (StreamIn::is(operation)) {
    return transfer_of(graph, operation.outputs, proto::TRANSFER_IN);
  }
  if (StreamOut::is(operation)) {
    return transfer_of(graph, operation.inputs, proto::TRANSFER_OUT);
  }
  if (Copy::is(operation) || Stash::is(operation) || Restore::is(operation)) {
    if (are_remote(operation.inputs)) {
      return transfer_of(graph, operation.outputs, proto::TRANSFER_IN);
    }
    if (are_remote(operation.outputs)) {
      return transfer_of(graph, operation.inputs, proto::TRANSFER_OUT);
    }
  }
  return {};
}

}  // namespace poprun
