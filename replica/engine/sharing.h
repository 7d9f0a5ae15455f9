#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "replica/base/error.h"
#include "replica/graph/types.h"
#include "replica/machine/machine.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"

namespace poprun {

/// Shares the images of common tensors among the replicas of a host while they run a Program. In divisible steps, each
/// replica writes the part of an image that it owns. Tensors with an owner (Tensor.owner) have one part: only this
/// replica runs the steps that compute them.
///
///   forward, backward      read all weights
///   all-reduce             the replicas meet: no replica reads the old weights any more
///   update                 each replica updates its part of weights and state
///   (meeting)              all parts are written: each replica may read the new weights
///
/// A meeting is inserted where a step would otherwise read elements that another replica may still be writing, or write
/// elements that another may still be reading. All replicas run the same steps, so they meet at the same places.
class Sharing {
 public:
  /// Shares nothing.
  Sharing() = default;

  /// Shares the common tensors of the Program, if there are any and the host has several replicas. Collective over all
  /// replicas of `communicator`, which must outlive this object. Errors: those of the communicator.
  static Result<Sharing> create(const Program& program, Communicator& communicator);

  [[nodiscard]] bool is_active() const { return host_ != nullptr; }

  /// The memories of common tensors, indexed by IPU; empty if nothing is shared.
  [[nodiscard]] const std::vector<CommonMemory>& memories() const { return memories_; }

  /// The communicator of this host's replicas; null if nothing is shared.
  [[nodiscard]] Communicator* host() const { return host_.get(); }

  /// Returns the part of a tensor of so many elements that this replica owns: all if nothing is shared.
  [[nodiscard]] OwnedPart owned(const proto::Tensor& tensor, std::size_t elements) const;

  /// Returns whether this replica computes the tensor.
  [[nodiscard]] bool computes(const proto::Tensor& tensor) const;

  /// How a step uses shared images.
  struct Use {
    bool reads = false;   ///< Elements that other replicas own.
    bool writes = false;  ///< Elements that this replica owns.
    bool meets = false;   ///< In the step itself, all replicas of the job meet.
  };
  [[nodiscard]] Use use_of(const Program& program, const proto::Step& step, bool is_view) const;

  /// Call before a function runs: the host may have read shared images since the last one.
  void begin_function() { is_read_ = true; }
  /// Returns whether the replicas of the host must meet before a step runs.
  [[nodiscard]] bool must_meet_before(const Use& use) const {
    return (use.reads && is_written_) || (use.writes && is_read_);
  }
  /// Waits for the other replicas of the host. Collective. Errors: those of Communicator::barrier.
  Status meet();
  /// Call when a step has run.
  void after(const Use& use);

 private:
  std::unique_ptr<Communicator> host_;
  std::vector<CommonMemory> memories_;
  bool is_read_ = false;     ///< Since the last meeting, a replica may have read elements of others.
  bool is_written_ = false;  ///< Since the last meeting, a replica may have written elements that it owns.
};

}  // namespace poprun
