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
#include "replica/base/units.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/graph/graph.h"
#include "replica/ops/builder/builder.h"
#include "replica/ops/builder/model_outputs.h"

/// Passes over a job's graph. One file of this folder is one pass with its verifier; passes.cc says in which order they
/// run.
namespace poprun {

/// A parameter and the tensor that holds the loss's gradient with respect to it, or the part of that gradient that one
/// use of the parameter contributes.
struct ParameterGradient {
  TensorId parameter;
  TensorId gradient;
};

/// Scalars f32[] that change from step to step.
struct StepScalars {
  TensorId rate;  ///< Learning rate, from the host.
  TensorId step;  ///< Number of this update from 1, from the host; skipped steps do not count.
  /// The factor of the loss, from the host. Gradients are divided by it; where one of them is not finite,
  /// nothing is updated.
  std::optional<TensorId> loss_scale = {};
  /// By the dataset's tensor of labels: how many of them a mean micro-batch has, from the host.
  std::map<std::string, TensorId> mean_labels = {};
  std::optional<TensorId> factor = {};  ///< Scales all gradients; made by add_gradient_factor.
};

/// The load of a layer on its IPU.
struct LayerWeight {
  Cycles cycles;           ///< One micro-batch: forward, and in training backward.
  Bytes bytes;             ///< Parameters with their gradients and optimiser state.
  Bytes activations = {};  ///< All that its forward pass writes in one micro-batch.
};

/// Layers to spread in order over stages that have an IPU each.
struct Balancing {
  std::vector<LayerWeight> layers;
  /// By stage: how many micro-batches' activations it keeps at once, at most its stash's
  /// length, and 1 where it recomputes them.
  std::vector<std::int64_t> in_flight;
  Bytes capacity;  ///< One IPU's.
  /// By stage, whether it runs its forward part again; empty: none does. That takes a third of
  /// its layers' cycles, since the backward pass takes twice as long as the forward pass.
  std::vector<bool> recomputes = {};
};

/// Where and what a training step is, for the passes that add to it.
struct TrainingStep {
  Place begin;        ///< Once, first: what the host says, and what micro-batches add to.
  Place micro_batch;  ///< Forward and backward of each micro-batch; up to the pass "pipeline".
  Place update;       ///< Once, last.

  StepScalars scalars;  ///< `factor` from the pass "update" on.
  TensorId metrics;
  TensorId loss;
  std::vector<LossTerm> terms = {};  ///< Whose sum is the loss.

  /// In a phased job, from the pass "pipeline" on: the regions of `train` that are a phase each, in their order. The
  /// region before each one may load what it needs.
  std::vector<Place> phases = {};

  /// From the pass "differentiation" on. One for each use of a parameter, last use first, until the pass "exchange"
  /// adds those of one parameter.
  std::vector<ParameterGradient> gradients = {};
};

/// One direction of a pipeline stage.
struct StagePart {
  std::uint32_t stage = 0;
  std::uint32_t ipu = 0;
  bool is_backward = false;
  bool recomputes = false;  ///< Forward operations run again in it.
};

/// The functions that are parts of stages, by name.
using StageParts = std::map<std::string, StagePart, std::less<>>;

/// A job's graph on its way through the passes.
struct Job {
  Graph graph;
  std::optional<TrainingStep> training;  ///< Nothing in inference.
  std::optional<Place> evaluation;       ///< Forward of each batch; up to the pass "pipeline".

  /// By stage, its IPU. More than one stage only from the pass "stages" on.
  std::vector<std::uint32_t> ipu_of_stage = {0};

  StageParts parts = {};  ///< From the pass "pipeline" on.

  /// Where nobody has said how to cut the model: what the pass "stages" balanced.
  std::optional<Balancing> balancing = {};

  std::vector<std::string> notes = {};  ///< What passes decided, for people. One line each.

  /// Where the job keeps which tensor, and why: "w: off-chip (memory.weights)".
  std::vector<std::string> locations = {};
};

/// Prefix of the names of evaluation's tensors.
inline constexpr std::string_view kEvaluationPrefix = "evaluate/";

/// Tensors of these roles, sorted by name.
std::vector<TensorId> tensors_by_name(const Graph& graph, const std::set<Role>& roles);

struct Pass {
  std::string_view name;

  /// Whether the options ask for it.
  bool (*applies)(const CompileOptions&) = nullptr;

  /// Errors: kUsage, model, data and options do not fit each other.
  Status (*run)(const CompileOptions&, Job&) = nullptr;

  /// Proves what the pass promises, from the job before and after it, sharing no code with `run`. Errors: kBug, what
  /// does not hold for which tensor.
  Status (*verify)(const CompileOptions&, const Job& before, const Job& after) = nullptr;

  /// Whether a job without it has the same results, in other time and memory.
  bool is_optional = false;
};

/// Watches compilations. Each function may be empty.
struct CompileObserver {
  /// Called with the job's graph as each pass leaves it, before the verifiers. An error refuses what the pass made, as
  /// its verifier would.
  std::function<Status(std::string_view pass, const Graph&)> after_pass = {};

  /// Called before each compilation, of which it may take several to settle what is left open.
  std::function<void()> before_compilation = {};
};

/// For passes that every job goes through, and those that every training job does.
inline bool always(const CompileOptions& /*options*/) {
  return true;
}
inline bool in_training(const CompileOptions& options) {
  return !options.inference;
}

/// Whether weights come from the host and go to it one by one, so that they need not meet on the chip: where the
/// options let them be elsewhere, or in parts.
bool streams_weights_one_by_one(const CompileOptions& options);

/// Finds the operations of a region that write a tensor. Valid as long as the region is unchanged.
class Writers {
 public:
  Writers(const Graph& graph, Place place);

  [[nodiscard]] const std::vector<const Operation*>& of(TensorId tensor) const { return writers_.at(index_of(tensor)); }

 private:
  std::vector<std::vector<const Operation*>> writers_;  ///< By tensor.
};

/// `pass {name}: '{tensor}' {what}` as a kBug error, for verifiers.
tl::unexpected<Error> pass_bug(std::string_view name, const Graph& graph, TensorId tensor, std::string_view what);

}  // namespace poprun
