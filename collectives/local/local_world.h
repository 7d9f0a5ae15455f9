#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/local/node_communicator.h"
#include "collectives/local/node_segment.h"
#include "replica/base/error.h"
#include "replica/base/units.h"

namespace poprun {

/// A world of replicas that are threads of this process, one communicator each.
///
/// Threads: create and destroy it in one thread; hand each communicator to one thread, and join those threads before
/// destroying the world.
class LocalWorld {
 public:
  struct Options {
    std::size_t replicas = 1;                     ///< > 0.
    std::chrono::milliseconds deadline{120'000};  ///< For each wait for a peer.
  };

  /// Errors
  ///   kHostResources  memory for the exchange could not be allocated.
  static Result<std::unique_ptr<LocalWorld>> create(const Options& options);

  /// Requires: index_of(replica) < replicas.
  Communicator& communicator(ReplicaId replica);

 private:
  LocalWorld(std::unique_ptr<collectives::NodeSegment> segment, const Options& options);

  std::unique_ptr<collectives::NodeSegment> segment_;
  std::vector<std::unique_ptr<collectives::NodeCommunicator>> communicators_;
};

}  // namespace poprun
