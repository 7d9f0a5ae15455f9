#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/differentiation/differentiate.h"
#include "replica/compiler/optimizers/optimizers.h"
#include "replica/compiler/stages/balance.h"
#include "replica/graph/graph.h"
#include "replica/ops/builder/model_outputs.h"

namespace poprun {

/// Where and what a training step is, for the passes that add to it.
struct TrainingStep {
  Place begin;        ///< Once, first: what the host says, and what micro-batches add to.
  Place micro_batch;  ///< Forward and backward of each micro-batch; up to the pass "pipeline".
  Place update;       ///< Once, last.

  StepScalars scalars;  ///< `factor` from the pass "update" on.
  TensorId metrics;
  TensorId loss;
  std::vector<LossTerm> terms = {};  ///< Whose sum is the loss.

  /// In a phased job, from the pass "pipeline" on: the regions of `train` that are a phase each, in
  /// their order. The region before each one may load what it needs.
  std::vector<Place> phases = {};

  /// From the pass "differentiation" on. One for each use of a parameter, last use first, until the
  /// pass "exchange" adds those of one parameter.
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

/// What the names of evaluation's tensors begin with.
inline constexpr std::string_view kEvaluationPrefix = "evaluate/";

/// Tensors of these roles, sorted by name.
std::vector<TensorId> tensors_by_name(const Graph& graph, const std::set<Role>& roles);

}  // namespace poprun
