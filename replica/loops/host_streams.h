#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/engine/engine.h"
#include "replica/machine/host_io.h"
#include "replica/ports/communicator.h"
#include "replica/ports/host_stream.h"
#include "replica/program/host_contract.h"
#include "replica/program/program.h"

/// The host's side of streams, as every loop plays it.
namespace poprun {

/// Replaces `bytes`, of any size, by those of replica `root` on every replica. Collective. `name` is for messages.
/// Errors: those of the communicator.
Status share_bytes(std::string& bytes, ReplicaId root, Communicator& communicator, std::string_view name);

/// Weights by name, row-major little-endian float32 bytes, whatever the model stores.
using HostWeights = std::map<std::string, std::string, std::less<>>;

/// The tensors of a stream for `pack` and `unpack`.
std::vector<NamedBytes> named_bytes(std::span<const HostTensor> tensors);

/// Replica 0's weights on every replica, rounded where a tensor is float16. Collective.
/// Requires: on replica 0, `weights` has every tensor.
Status write_weights(const HostWeights& weights, Communicator& communicator, std::span<const HostTensor> tensors);

/// The error of a Program that uses a stream which the loop does not serve there.
Status refuse_stream(const std::string& stream);

/// Batches of a host stream between their arrival and the last step that takes a tensor of them.
///
/// Pipeline stages take their tensors of a batch in different cycles: the first stage is some batches ahead of the last
/// one. Where the Program computes a batch in pieces, equally many rows of each tensor one after the other, each piece
/// is what it calls a micro-batch.
class BatchWindow {
 public:
  /// `source` must outlive this.
  BatchWindow(const Program& program, JobStream stream, HostStream& source);

  /// The host begins to run a function: the next batch has index 0.
  void begin();

  /// Takes batches from the stream ahead of their readers, until there are `count`. Errors: as `write`'s.
  Status fetch(std::uint64_t count);

  /// Copies tensors of micro-batch `part.micro_batch`. Errors: kData, its batch has other tensors or other sizes; those
  /// of HostStream::next. Requires: the batch has not been taken entirely.
  Status write(const StreamPart& part);

 private:
  struct Entry {
    HostBatch batch;
    std::size_t readers;  ///< Steps that have yet to take their part, for each piece.
  };

  HostStream& source_;
  std::uint64_t pieces_;     ///< Parts that each batch is cut into.
  std::size_t readers_ = 0;  ///< Steps that take a part of each batch.
  std::size_t tensors_ = 0;  ///< Tensors of each batch.
  std::uint64_t first_ = 0;  ///< Index of the oldest batch in the window.
  std::deque<Entry> window_;
};

}  // namespace poprun
