#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/estimate/blocks.h"
#include "replica/estimate/guide.h"
#include "replica/estimate/needs.h"

/// `poprun-emu estimate`: what a job needs, from its graph alone, without planning any memory.
namespace poprun {

/// The blocks of one kind together.
struct KindSum {
  BlockKind kind = BlockKind::kOther;
  std::int64_t blocks = 0;
  std::int64_t weights = 0;
  std::int64_t biases = 0;
  std::int64_t moving = 0;
  std::int64_t frozen_weights = 0;
  std::int64_t frozen_biases = 0;
  std::int64_t activations = 0;  ///< One sample's.

  [[nodiscard]] std::int64_t parameters() const { return weights + biases; }
};

/// A layer of the model, a place where it can be cut.
struct LayerSum {
  std::string name;
  std::int64_t parameters = 0;   ///< Those that it is the first to use.
  std::int64_t activations = 0;  ///< One sample's.
  Bytes held;                    ///< Its weights with gradients and optimiser state.
  Bytes kept;                    ///< What the backward pass reads of its forward pass.
};

struct Estimate {
  std::string model;
  std::string device;
  std::string optimizer;    ///< Empty in inference.
  std::int64_t states = 0;  ///< Numbers that it keeps for each trained parameter.
  bool half = false;
  bool master_weights = false;
  std::int64_t gradient_accumulation = 1;

  std::vector<Block> blocks;
  std::vector<KindSum> kinds;    ///< Most parameters first, then most activations.
  std::vector<LayerSum> layers;  ///< In the order of the forward pass.
  std::int64_t parameters = 0;   ///< Weights and biases.
  std::int64_t trained = 0;      ///< Those that training updates; in inference, could update.

  guide::Counts guide_inference;
  std::optional<guide::Counts> guide_training;  ///< Nothing in inference, like the next two.

  Needs inference;
  std::optional<Needs> kept;
  std::optional<Needs> training;

  Bytes capacity;  ///< In-Processor Memory of an IPU.

  /// Settings of the job that save memory and are not counted, as in "memory.weights".
  std::vector<std::string> not_counted = {};

  /// The needs of the job in its configured mode.
  [[nodiscard]] const Needs& needs() const { return training ? *training : inference; }
};

/// The proportion of an IPU's memory, in percent, that tensors may take; the rest is for what the estimate leaves out.
inline constexpr std::int64_t kTensorsPercent = 75;

/// The fewest IPUs whose memory holds such tensors, spread evenly.
std::int64_t ipus_for(Bytes tensors, Bytes capacity);

/// Estimates the needs of the whole model on one IPU, whatever the job's stages and replicas are; what of the job's
/// settings would save some of that is listed, not counted. `activations` are the outputs of all operations that
/// compute; those that only move elements, and statistics of normalisations, are left out.
///
/// Deterministic. Errors: those of the compiler's passes up to "precision".
Result<Estimate> estimate(CompileOptions options);

}  // namespace poprun
