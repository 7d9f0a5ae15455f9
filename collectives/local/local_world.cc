#include "collectives/local/local_world.h"

namespace poprun {

using collectives::NodeCommunicator;
using collectives::NodeSegment;

Result<std::unique_ptr<LocalWorld>> LocalWorld::create(const Options& options) {
  POPRUN_CHECK(options.replicas > 0);
  POPRUN_ASSIGN(std::unique_ptr<NodeSegment> segment,
                NodeSegment::create(NodeSegment::Peers::kThreads, options.replicas));
  return std::unique_ptr<LocalWorld>(new LocalWorld(std::move(segment), options));
}

LocalWorld::LocalWorld(std::unique_ptr<NodeSegment> segment, const Options& options) : segment_(std::move(segment)) {
  for (std::size_t i = 0; i < options.replicas; ++i) {
    communicators_.push_back(std::make_unique<NodeCommunicator>(
        *segment_, NodeCommunicator::Options{.self = i, .deadline = options.deadline}));
  }
}

Communicator& LocalWorld::communicator(ReplicaId replica) {
  POPRUN_CHECK(index_of(replica) < communicators_.size());
  return *communicators_[index_of(replica)];
}

}  // namespace poprun
