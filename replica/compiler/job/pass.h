#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/base/units.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/graph/graph.h"
#include "replica/ops/builder/builder.h"

/// Passes over a job's graph. Each is in a file of arithmetic/ or techniques/ with its verifier; passes.cc lists them.
namespace poprun {

/// A parameter with its gradient, or with the part of that gradient that comes from one use of the parameter.
struct ParameterGradient {
  TensorId parameter;
  TensorId gradient;
};

/// Scalars f32[] that change from step to step.
struct StepScalars {
  TensorId rate;  ///< Learning rate, from the host.
  TensorId step;  ///< Number of this update, counted from 1, from the host; skipped steps do not count.
  /// Loss scale from the host. Gradients are divided by it. If any gradient is not finite, nothing is updated.
  std::optional<TensorId> loss_scale = {};
  /// Mean number of labels per micro-batch, from the host, keyed by the name of the dataset's tensor of labels.
  std::map<std::string, TensorId> mean_labels = {};
  std::optional<TensorId> factor = {};  ///< Scales all gradients; added by add_gradient_factor.
};

/// Cost of a layer on its IPU.
struct LayerWeight {
  Cycles cycles;           ///< Per micro-batch: forward and, in training, backward.
  Bytes bytes;             ///< Parameters with their gradients and optimiser state.
  Bytes activations = {};  ///< All outputs of its forward pass in one micro-batch.
};

/// Layers to distribute, in order, over stages with one IPU each.
struct Balancing {
  std::vector<LayerWeight> layers;
  /// For each stage, the number of micro-batches whose activations it holds: at most its stash length; 1 if it
  /// recomputes.
  std::vector<std::int64_t> in_flight;
  Bytes capacity;  ///< Memory of one IPU.
  /// For each stage, whether it runs its forward part again; empty if no stage does. Recomputation adds a third of the
  /// layers' cycles, because the backward pass takes twice as long as the forward pass.
  std::vector<bool> recomputes = {};
};

/// Regions and tensors of a training step, for the passes that add to it.
struct TrainingStep {
  Place begin;        ///< Runs once, first: receives the host's scalars, and zeroes tensors that micro-batches add to.
  Place micro_batch;  ///< Forward and backward pass of each micro-batch; used until the pass "pipeline".
  Place update;       ///< Runs once, last.

  StepScalars scalars;  ///< `factor` is set from the pass "update" on.
  TensorId metrics;
  TensorId loss;
  std::vector<LossTerm> terms = {};  ///< Their sum is the loss.

  /// In a phased job, from the pass "pipeline" on: the regions of `train` that are phases, in order. The region before
  /// a phase may load the phase's variables.
  std::vector<Place> phases = {};

  /// Set from the pass "differentiation" on: one gradient for each use of a parameter, last use first, until the pass
  /// "exchange" adds up the gradients of each parameter.
  std::vector<ParameterGradient> gradients = {};
};

/// One direction of a pipeline stage.
struct StagePart {
  std::uint32_t stage = 0;
  std::uint32_t ipu = 0;
  bool is_backward = false;
  bool recomputes = false;  ///< Whether forward operations run again in this part.
};

/// The functions that are parts of stages, keyed by name.
using StageParts = std::map<std::string, StagePart, std::less<>>;

/// A job's graph, and what the passes record about it.
struct Job {
  Graph graph;
  std::optional<TrainingStep> training;  ///< Empty in inference.
  std::optional<Place> evaluation;       ///< Forward pass of each batch; used until the pass "pipeline".

  /// The IPU of each stage. There is only one stage before the pass "stages".
  std::vector<std::uint32_t> ipu_of_stage = {0};

  StageParts parts = {};  ///< Filled by the pass "pipeline".

  /// Input of the balancing in the pass "stages", if the job does not specify where to cut the model.
  std::optional<Balancing> balancing = {};

  std::vector<Note> notes = {};  ///< Decisions of passes, for the user; one line each.

  /// The location of each tensor and the reason for it, such as "w: off-chip (memory.weights)".
  std::vector<std::string> locations = {};
};

/// Prefix of the names of evaluation's tensors.
inline constexpr std::string_view kEvaluationPrefix = "evaluate/";

/// Returns the tensors that have one of these roles, sorted by name.
std::vector<TensorId> tensors_by_name(const Graph& graph, const std::set<Role>& roles);

/// Returns the regions with forward passes: a micro-batch of training, and evaluation.
std::vector<Place> forward_places(const Job& job);

struct Pass {
  std::string_view name;

  bool (*applies)(const CompileOptions&) = nullptr;

  /// Runs the pass. Errors: kUsage if model, data and options do not fit together.
  Status (*run)(const CompileOptions&, Job&) = nullptr;

  /// Proves what the pass promises, by comparing the job before and after it, without sharing code with `run`. Errors:
  /// kBug, with the tensor and the broken promise.
  Status (*verify)(const CompileOptions&, const Job& before, const Job& after) = nullptr;

  /// Whether a job without the pass has the same results and differs only in time and memory.
  bool is_optional = false;
};

/// Callbacks that observe compilations. Each may be empty.
struct CompileObserver {
  /// Called with the job after each pass, before the verifiers. An error rejects the pass, like a verifier's error.
  std::function<Status(std::string_view pass, const Job&)> after_pass = {};

  /// Called before each compilation; settling open options may take several compilations.
  std::function<void()> before_compilation = {};

  /// Returns whether to settle open options by one more compilation, even though the job does not fit yet.
  std::function<bool()> may_compile_again = {};
};

/// Values of Pass::applies for passes that apply to every job, or to every training job.
inline bool always(const CompileOptions& /*options*/) {
  return true;
}
inline bool in_training(const CompileOptions& options) {
  return !options.inference;
}

/// Whether weights are streamed from and to the host one by one, so that they are never all on the chip at the same
/// time. This is the case if `options` may cause weights to be off-chip or sharded.
bool streams_weights_one_by_one(const CompileOptions& options);

/// Finds the operations of a region that write a tensor. The result is valid as long as the region is unchanged.
class Writers {
 public:
  Writers(const Graph& graph, Place place);

  [[nodiscard]] const std::vector<const Operation*>& of(TensorId tensor) const { return writers_.at(index_of(tensor)); }

 private:
  std::vector<std::vector<const Operation*>> writers_;  ///< Indexed by tensor.
};

/// Returns `pass {name}: '{tensor}' {what}` as a kBug error, for verifiers.
tl::unexpected<Error> pass_bug(std::string_view name, const Graph& graph, TensorId tensor, std::string_view what);

}  // namespace poprun
