#pragma once

#include <cstddef>
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

/// The host's side of streams, shared by all loops.
namespace poprun {

/// Broadcasts `bytes`, of any size, from `root`. Collective. `name` is for messages. Errors: those of the communicator.
Status share_bytes(std::string& bytes, ReplicaId root, Communicator& communicator, std::string_view name);

/// Weights, keyed by name, as row-major little-endian float32 bytes, whatever type the model stores.
using HostWeights = std::map<std::string, std::string, std::less<>>;

/// Converts the tensors of a stream to the form that `pack` and `unpack` accept.
std::vector<NamedBytes> named_bytes(std::span<const HostTensor> tensors);

/// Copies replica 0's `weights`, which contain every tensor, to all replicas and rounds float16 tensors. Collective.
Status write_weights(const HostWeights& weights, Communicator& communicator, std::span<const HostTensor> tensors);

/// Returns the error for a Program that uses a stream that its loop does not serve at that point.
Status refuse_stream(const std::string& stream);

/// Batches of a host stream, from their arrival until the last step that reads one of their tensors. Pipeline stages
/// read their tensors of a batch in different cycles: the first stage is several batches ahead of the last. If the
/// Program computes a batch in pieces with the same number of rows of each tensor, each piece counts as a micro-batch.
class BatchWindow {
 public:
  /// `source` must outlive this.
  BatchWindow(const Program& program, JobStream stream, HostStream& source);

  /// Call when the host starts a function: the next batch has index 0.
  void begin();

  /// Fetches batches from the stream before their readers need them, at most `count` since `begin`. Errors: those of
  /// `write`.
  Status fetch(std::uint64_t count);

  /// Copies tensors of micro-batch `part.micro_batch`. Errors: kData if the batch does not have the number or
  /// sizes of tensors that the Program needs; also those of HostStream::next. Requires: the batch still has readers.
  Status write(const StreamPart& part);

 private:
  struct Entry {
    HostBatch batch;
    std::size_t readers;  ///< Remaining reads, one per step and piece.
  };

  HostStream& source_;
  std::uint64_t pieces_;     ///< Number of pieces into which each batch is cut.
  std::size_t readers_ = 0;  ///< Steps that read part of each batch.
  std::size_t tensors_ = 0;  ///< Tensors of each batch.
  std::uint64_t first_ = 0;  ///< Index of the oldest batch in the window.
  std::deque<Entry> window_;
};

}  // namespace poprun
