#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/ports/communicator.h"
#include "replica/program/host_contract.h"

/// The host's side of streams, as every loop plays it.
namespace poprun {

/// Weights by name, row-major little-endian float32 bytes, whatever the model stores.
using HostWeights = std::map<std::string, std::string, std::less<>>;

/// The tensors of a stream for `pack` and `unpack`.
std::vector<NamedBytes> named_bytes(std::span<const HostTensor> tensors);

/// Replica 0's weights on every replica, rounded where a tensor is float16. Collective.
/// Requires: on replica 0, `weights` has every tensor.
Status write_weights(const HostWeights& weights, Communicator& communicator,
                     std::span<const HostTensor> tensors);

/// The error of a Program that uses a stream which the loop does not serve there.
Status refuse_stream(const std::string& stream);

}  // namespace poprun
