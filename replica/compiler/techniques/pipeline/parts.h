#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "replica/base/error.h"
#include "replica/graph/graph.h"
#include "replica/machine/operations.h"

namespace poprun {

/// Records, while a pipeline is being built, the home IPU of each of a job's tensors, and the copies ("replicas") of
/// variables on other IPUs that read them.
class Homes {
 public:
  explicit Homes(Graph& graph) : graph_(graph), homes_(graph.tensors().size()) {}

  [[nodiscard]] std::optional<std::uint32_t> of(TensorId tensor) const;

  /// Sets the tensor's home, unless the tensor already has one.
  void settle(TensorId tensor, std::uint32_t ipu);

  /// Returns the variable if its home is `ipu`, otherwise its replica there. A variable without a home settles there.
  TensorId on(TensorId variable, std::uint32_t ipu);

  /// Adds a tensor like `like` with home `ipu`. If the name is already taken, a number is appended.
  TensorId add(const std::string& name, TensorType type, TensorId like, std::uint32_t ipu);

  struct Replica {
    TensorId variable;
    TensorId replica;
  };
  [[nodiscard]] const std::vector<Replica>& replicas() const { return replicas_; }

 private:
  Graph& graph_;
  std::vector<std::optional<std::uint32_t>> homes_;  ///< Indexed by tensor.
  std::map<std::pair<TensorId, std::uint32_t>, TensorId> replica_on_;
  std::vector<Replica> replicas_;
};

/// Operations of one micro-batch, cut into the parts of a pipeline: the forward and backward passes of its stages.
///
/// Parts are numbered in the order in which values flow: forward parts of stages 0 to n - 1, then backward parts of
/// stages n - 1 to 0.
///
///   - A tensor that a later part in the same direction reads is copied from part to part after
///     each cycle, as `x@stage2`.
///   - A tensor of a forward part that the backward part of its stage reads is kept in `x.stash`,
///     which has the stage's stash length, and restored as `x.restored` where it is read. With
///     length 1, the backward part reads the tensor itself.
///   - A tensor that the host streams in goes to each stage that reads it, in that stage's cycle.
///   - A variable whose home is another IPU has a replica (Homes).
///
/// In phases, each part processes all micro-batches before the next part begins. A tensor that a later part reads is
/// kept in `x.stash`, with an entry per micro-batch, and restored where it is read: as `x@stage2` in the same
/// direction, and otherwise as `x.restored`. Before a part begins, tensors that it reads from another IPU are copied,
/// entry by entry, to a stash on its own IPU, `x.stash@ipu1`. The last stage's backward part follows its forward part
/// directly and reads the tensors themselves.
class Parts {
 public:
  /// `stash_lengths`: one per stage; empty if there are no backward parts. `phased`: the number of micro-batches if the
  /// schedule is phased, otherwise 0.
  Parts(Graph& graph, Homes& homes, std::vector<std::uint32_t> ipu_of_stage, std::vector<std::int64_t> stash_lengths,
        std::int64_t phased = 0)
      : graph_(graph),
        homes_(homes),
        ipu_of_stage_(std::move(ipu_of_stage)),
        lengths_(std::move(stash_lengths)),
        phased_(phased),
        parts_(ipu_of_stage_.size() * (lengths_.empty() ? 1 : 2)),
        streams_(ipu_of_stage_.size()) {}

  /// Distributes the operations, in order, over the parts. Errors: kUsage if an operation updates a variable on another
  /// IPU; kBug if an operation reads a tensor that a later part computes.
  Status take(const std::vector<Operation>& operations);

  /// Returns the operations of a part, including its streams and stashes.
  [[nodiscard]] std::vector<Operation> operations_of(std::size_t part) const;

  /// Returns the Copy that moves tensors to the next part after a cycle in which `part` ran.
  [[nodiscard]] const Copy& crossing(std::size_t part) const { return parts_[part].crossing; }

  /// In phases, returns the operations that copy one micro-batch's tensors from other IPUs for a part. They run for all
  /// micro-batches before the part does.
  [[nodiscard]] std::vector<Operation> bringing(std::size_t part) const;

 private:
  struct Part {
    std::vector<Operation> operations;
    /// Keyed by the number of the part's operations after which the list is inserted.
    std::map<std::size_t, std::vector<Operation>> stashes;
    Copy crossing;
    std::vector<Operation> before;  ///< In phases: operations that restore the tensors that `brought` copies.
    Copy brought;
    std::vector<Operation> behind;  ///< In phases: operations that stash the copies.
  };
  struct Local {
    TensorId tensor;
    std::size_t behind = 0;  ///< Number of the part's operations after which the tensor is available.
  };
  /// Tensors that the host streams to a stage, keyed by field of the batch.
  struct Streams {
    std::string name;
    std::map<std::int64_t, TensorId> tensors;
  };

  [[nodiscard]] std::size_t stages() const { return ipu_of_stage_.size(); }
  [[nodiscard]] std::size_t part_of(const Operation& operation) const;
  [[nodiscard]] std::size_t stage_of(std::size_t part) const {
    return part < stages() ? part : 2 * stages() - 1 - part;
  }
  [[nodiscard]] std::uint32_t ipu_of(std::size_t part) const { return ipu_of_stage_[stage_of(part)]; }
  [[nodiscard]] Origin origin_of(std::size_t part) const;

  void take_stream(const StreamIn& stream);
  Status take_operation(const Operation& operation);
  Result<TensorId> local(TensorId tensor, std::size_t part);
  Local streamed(TensorId tensor, std::size_t part);
  Local moved(TensorId tensor, std::size_t part);
  Local kept(TensorId tensor, std::size_t part);
  Local carried(TensorId tensor, std::size_t part);
  TensorId held(const Local& made, std::size_t maker, std::size_t reader);
  TensorId brought(TensorId tensor, TensorId held, std::size_t reader);
  void finish_streams();

  Graph& graph_;
  Homes& homes_;
  std::vector<std::uint32_t> ipu_of_stage_;
  std::vector<std::int64_t> lengths_;
  std::int64_t phased_;
  std::vector<Part> parts_;
  std::vector<Streams> streams_;                                     ///< Indexed by stage.
  std::map<TensorId, std::size_t> made_in_;                          ///< The part that computes each tensor.
  std::map<TensorId, std::pair<std::string, std::int64_t>> fields_;  ///< Stream and field of each tensor.
  std::map<std::pair<TensorId, std::size_t>, Local> locals_;         ///< Keyed by tensor and part.
  /// In phases, the holder of a tensor on an IPU: its stash or, with one micro-batch, the tensor itself or a copy.
  std::map<std::pair<TensorId, std::uint32_t>, TensorId> held_;
};

}  // namespace poprun
