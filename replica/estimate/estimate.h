#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/estimate/blocks.h"
#include "replica/estimate/needs.h"

/// `poprun-emu estimate`: the memory that a job needs, computed from its graph alone, without planning any memory.
namespace poprun {

struct KindSum {
  BlockKind kind = BlockKind::kOther;
  std::int64_t blocks = 0;
  std::int64_t weights = 0;
  std::int64_t biases = 0;
  std::int64_t moving = 0;
  std::int64_t frozen_weights = 0;
  std::int64_t frozen_biases = 0;
  std::int64_t activations = 0;  ///< Per sample.

  [[nodiscard]] std::int64_t parameters() const { return weights + biases; }
};

/// Sums over a layer of the model. The model can be split before each layer.
struct LayerSum {
  std::string name;
  std::int64_t parameters = 0;   ///< Parameters that no earlier layer uses.
  std::int64_t activations = 0;  ///< Per sample.
  Bytes held;                    ///< Bytes of its weights, with their gradients and optimiser state.
  Bytes kept;                    ///< Bytes of its forward pass that the backward pass reads.
};

struct Estimate {
  std::string model;
  std::string device;
  std::string optimizer;              ///< Empty in inference.
  std::int64_t states = 0;            ///< Numbers that the optimiser keeps per trained parameter, rounded.
  std::int64_t optimiser_states = 0;  ///< All numbers that the optimiser keeps.
  bool half = false;
  bool master_weights = false;
  std::int64_t gradient_accumulation = 1;

  std::vector<Block> blocks;
  std::vector<KindSum> kinds;    ///< Sorted by parameters, then activations, largest first.
  std::vector<LayerSum> layers;  ///< In the order of the forward pass.
  std::int64_t parameters = 0;   ///< Weights and biases.
  std::int64_t trained = 0;      ///< Parameters that training updates or, in inference, could update.

  guide::Counts guide_inference;
  std::optional<guide::Counts> guide_training;  ///< Unset in inference, as are `kept` and `training`.

  Needs inference;
  std::optional<Needs> kept;
  std::optional<Needs> training;

  Bytes capacity;  ///< In-Processor Memory of an IPU.

  /// Memory-saving settings of the job that are not counted, such as "memory.weights".
  std::vector<std::string> not_counted = {};

  [[nodiscard]] const Needs& needs() const { return training ? *training : inference; }
};

/// Percentage of an IPU's memory that tensors may use; the rest is for what the estimate leaves out.
inline constexpr std::int64_t kTensorsPercent = 75;

/// Returns the smallest number of IPUs whose memory holds tensors of this size if they are spread evenly.
std::int64_t ipus_for(Bytes tensors, Bytes capacity);

/// Estimates what the whole model needs on one IPU, regardless of stages and replicas. Settings of the job that
/// would save memory are listed, but their effect is not counted. `activations` are the outputs of operations that
/// compute, without the statistics of normalisations and without operations that only move elements. Deterministic.
/// Errors: those of the compiler's passes up to "precision".
Result<Estimate> estimate(CompileOptions options);

}  // namespace poprun
