#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/local/node_communicator.h"
#include "collectives/local/node_segment.h"
#include "replica/base/error.h"
#include "replica/base/units.h"

namespace poprun {

/// A world whose replicas are threads of this process, with one communicator each. Threads: create and destroy it in
/// one thread; hand each communicator to one thread, and join those threads before destroying the world.
class LocalWorld {
 public:
  struct Options {
    std::size_t replicas = 1;                     ///< > 0.
    std::chrono::milliseconds deadline{120'000};  ///< Limit of each wait for a peer.
  };

  /// Errors: kHostResources if memory for the exchange could not be allocated.
  static Result<std::unique_ptr<LocalWorld>> create(const Options& options) {
    using collectives::NodeSegment;
    POPRUN_CHECK(options.replicas > 0);
    POPRUN_ASSIGN(std::unique_ptr<NodeSegment> segment,
                  NodeSegment::create(NodeSegment::Peers::kThreads, options.replicas));
    return std::unique_ptr<LocalWorld>(new LocalWorld(std::move(segment), options));
  }

  /// Requires: index_of(replica) < replicas.
  Communicator& communicator(ReplicaId replica) {
    POPRUN_CHECK(index_of(replica) < communicators_.size());
    return *communicators_[index_of(replica)];
  }

 private:
  LocalWorld(std::unique_ptr<collectives::NodeSegment> segment, const Options& options) : segment_(std::move(segment)) {
    for (std::size_t i = 0; i < options.replicas; ++i) {
      communicators_.push_back(std::make_unique<collectives::NodeCommunicator>(
          *segment_, collectives::NodeCommunicator::Options{.self = i, .deadline = options.deadline}));
    }
  }

  std::unique_ptr<collectives::NodeSegment> segment_;
  std::vector<std::unique_ptr<collectives::NodeCommunicator>> communicators_;
};

}  // namespace poprun
