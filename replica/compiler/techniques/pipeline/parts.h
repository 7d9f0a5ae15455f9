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

/// The home IPU of each tensor of a job while a pipeline is being built, and copies of variables on other
/// IPUs that read them.
class Homes {
 public:
  /// Nothing has a home yet.
  explicit Homes(Graph& graph) : graph_(graph), homes_(graph.tensors().size()) {}

  [[nodiscard]] std::optional<std::uint32_t> of(TensorId tensor) const;

  /// Sets the home, unless it has one.
  void settle(TensorId tensor, std::uint32_t ipu);

  /// The tensor itself if it is at home there, or has no home and gets it there; else its replica.
  TensorId on(TensorId variable, std::uint32_t ipu);

  /// A new tensor like `like`, at home there; numbered if the model has one of that name.
  TensorId add(const std::string& name, TensorType type, TensorId like, std::uint32_t ipu);

  /// A replica, and what it is a copy of.
  struct Replica {
    TensorId variable;
    TensorId replica;
  };
  [[nodiscard]] const std::vector<Replica>& replicas() const { return replicas_; }

 private:
  Graph& graph_;
  std::vector<std::optional<std::uint32_t>> homes_;  ///< By tensor.
  std::map<std::pair<TensorId, std::uint32_t>, TensorId> replica_on_;
  std::vector<Replica> replicas_;
};

/// Operations of one micro-batch, cut into the parts of a pipeline.
///
/// Parts are numbered in the order in which values flow: the forward parts of stages 0 to n - 1, then the backward
/// parts of stages n - 1 to 0.
///
///   - A tensor that a later part on the same way reads is copied from part to part after each
///     cycle: `x@stage2`.
///   - A tensor of a forward part that the backward part of its stage reads is kept in a stash of
///     the stage's length: `x.stash`, and `x.restored` where it is read. With length 1, the
///     backward part reads the tensor itself.
///   - What the host streams in goes to each stage that reads it, in its own cycle.
///   - A variable of another IPU has a replica (Homes).
///
/// In phases, where each part works on all micro-batches before the next one begins, whatever a later part reads is
/// kept in a stash with an entry for each micro-batch, and restored where it is read: `x.stash`, and `x@stage2` on the
/// same way or `x.restored`. What a part reads of another IPU is brought to a stash of its own IPU, `x.stash@ipu1`,
/// entry by entry, before it begins. The last stage's backward part follows its forward part at once and reads the
/// tensors themselves.
class Parts {
 public:
  /// `stash_lengths` by stage; empty if there are no backward parts. `phased`: in phases, the number of micro-batches;
  /// otherwise 0.
  Parts(Graph& graph, Homes& homes, std::vector<std::uint32_t> ipu_of_stage, std::vector<std::int64_t> stash_lengths,
        std::int64_t phased = 0)
      : graph_(graph),
        homes_(homes),
        ipu_of_stage_(std::move(ipu_of_stage)),
        lengths_(std::move(stash_lengths)),
        phased_(phased),
        parts_(ipu_of_stage_.size() * (lengths_.empty() ? 1 : 2)),
        streams_(ipu_of_stage_.size()) {}

  /// Takes the operations in their order. Errors: kUsage, an operation updates a variable that lies on another IPU;
  /// kBug, an operation reads what a later part makes.
  Status take(const std::vector<Operation>& operations);

  /// The operations of a part.
  [[nodiscard]] std::vector<Operation> operations_of(std::size_t part) const;

  /// Tensors that move to the next part after a cycle in which this one ran.
  [[nodiscard]] const Copy& crossing(std::size_t part) const { return parts_[part].crossing; }

  /// In phases, what brings a part the tensors of one micro-batch that another IPU holds: for all of them, before its
  /// first one.
  [[nodiscard]] std::vector<Operation> bringing(std::size_t part) const;

 private:
  struct Part {
    std::vector<Operation> operations;
    /// Added after that many operations.
    std::map<std::size_t, std::vector<Operation>> stashes;
    Copy crossing;
    std::vector<Operation> before;  ///< In phases: restores what `brought` copies,
    Copy brought;
    std::vector<Operation> behind;  ///< and stashes it.
  };
  /// A tensor as a part sees it.
  struct Local {
    TensorId tensor;
    std::size_t behind = 0;  ///< There once that many operations of the part have run.
  };
  /// Tensors that the host streams to a stage, by their place in the batch.
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
  std::vector<Streams> streams_;                                     ///< By stage.
  std::map<TensorId, std::size_t> made_in_;                          ///< Parts, by tensor that one makes.
  std::map<TensorId, std::pair<std::string, std::int64_t>> fields_;  ///< Streams and places.
  std::map<std::pair<TensorId, std::size_t>, Local> locals_;         ///< By tensor and part.
  /// In phases, what holds a tensor on an IPU: its stash or, of one micro-batch, itself or a copy.
  std::map<std::pair<TensorId, std::uint32_t>, TensorId> held_;
};

}  // namespace poprun
