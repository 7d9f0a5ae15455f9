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
#include "replica/choices/choices.h"
#include "replica/compiler/planner/product_options.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/ops/builder/builder.h"

namespace poprun {

/// A tensor that the host streams in for every micro-batch.
struct StreamedTensor {
  std::string name;
  TensorType type;  ///< Includes the micro-batch dimension.
};

/// Options for spreading the model over the IPUs of a replica.
struct PipelineOptions {
  /// Number of counted layers in each stage. One entry may be -1, for all remaining layers. If empty, `split` decides.
  std::vector<std::int64_t> layers_per_ipu = {};
  /// Layers or tensors of the forward pass that each begin a new stage. If this list is empty too, the stages are
  /// balanced, with one stage per IPU.
  std::vector<std::string> split = {};
  std::vector<std::uint32_t> device_mapping = {};  ///< IPU of each stage; empty: stage s on IPU s.

  Schedule schedule = {};

  /// If greater than 1, the number of stages, all of which are phases: each phase works on all micro-batches of a step
  /// before the next one begins, whatever `schedule` is. The phases take turns on `phase_ipus` IPUs.
  std::uint32_t phases = 1;
  std::uint32_t phase_ipus = 1;

  std::optional<Recomputation> recomputation = {};  ///< If not set, see default_recomputation.
  std::string recomputation_checkpoints = {};       ///< Regex of names of tensors that every mode keeps; empty: none.
  std::string recompute = {};                       ///< Regex of names of tensors that every mode recomputes.
  double recomputation_memory = 0.5;                ///< Goal of kStandard: fraction of an IPU's memory.
};

/// Dense layers and embeddings that are computed in slices, one after the other.
struct SerialisationOptions {
  std::int64_t embedding = 1;  ///< Slices of the largest embedding table and of its projection.
  struct Layers {
    std::string text = {};       ///< Original text, for messages: "lm_head=4".
    std::string operators = {};  ///< Regex to search for in output names (ECMAScript).
    std::int64_t slices = 1;
  };
  std::vector<Layers> matmuls = {};   ///< Slices of output channels. If several match a layer, the last one applies.
  std::vector<Layers> sequence = {};  ///< Slices of the sequence, likewise.
};

/// Value of `no_decay` for parameters with at most one dimension: biases and the scales of normalisations.
inline constexpr std::string_view kVectors = "vectors";

struct OptimizerOptions {
  std::string name;
  std::map<std::string, double> hyper_parameters = {};  ///< Values for all of the optimiser's hyper-parameters.
  double weight_decay = 0;
  double gradient_scale = 1;  ///< Gradients are first multiplied by this.
  double clip_norm = 0;       ///< Maximum norm of all gradients together, after scaling; 0: no limit.
  /// Parameters without weight decay: a regex of names (ECMAScript), or kVectors.
  std::string no_decay = {};
  bool master_weights = false;  ///< The optimiser updates its own copy of each parameter and copies it back.
};

struct PrecisionOptions {
  bool half = false;                  ///< Must be true if another option is set.
  bool stochastic_rounding = false;   ///< Values stored in float16 are rounded stochastically.
  bool master_weights = false;        ///< The optimiser works on its own float32 weights.
  bool half_optimizer_state = false;  ///< Optimiser state with OptimizerState::may_be_half is float16.
};

/// The memory that holds each kind of tensor that outlives a micro-batch, as in PopART's TensorLocationSettings.
struct LocationOptions {
  Storage weights = Storage::kOnChip;
  Storage optimizer_state = Storage::kOnChip;
  Storage accumulators = Storage::kOnChip;
  Storage activations = Storage::kOnChip;  ///< Activations in stashes.

  std::int64_t off_chip_elements_min = 2;  ///< Smaller tensors stay on the chip.

  /// An override takes precedence for tensors whose names match it. If several match, the last one applies.
  struct Override {
    std::string tensors;  ///< Regex of tensor names (ECMAScript).
    Storage storage = Storage::kOnChip;
  };
  std::vector<Override> overrides = {};
};

/// Replicated tensor sharding: tensors that are identical on all replicas are divided among the replicas.
struct ShardingOptions {
  bool weights = false;
  bool optimizer_state = false;
  bool accumulators = false;

  std::int64_t elements_min = 8192;  ///< Smaller tensors are not sharded. 8192 is PopART's default.
  std::int64_t group = 0;            ///< Number of consecutive replicas that share a tensor; 0: all.

  [[nodiscard]] bool any() const { return weights || optimizer_state || accumulators; }
};

/// Everything that a Program depends on.
struct CompileOptions {
  std::string model;  ///< The model's name, for reports.
  std::vector<StreamedTensor> inputs;

  /// Appends the model's forward pass on the streamed tensors, which are in the order of `inputs`. `training` is false
  /// for evaluation, which uses the same variables.
  std::function<ModelOutputs(Builder&, const std::vector<TensorId>&, bool training)> forward;

  Device device;
  std::int64_t replicas = 1;
  std::int64_t ipus_per_replica = 1;
  PipelineOptions pipeline;
  std::uint32_t micro_batch_size = 1;      ///< Number of samples that are computed together.
  std::int64_t gradient_accumulation = 1;  ///< Micro-batches per step.
  std::uint32_t compute_batches = 1;       ///< Compute batches in each batch that the host sends.
  AccumulationKind accumulation_kind = AccumulationKind::kMean;
  bool float_accumulators = false;         ///< In half precision, accumulators are float32.
  bool gradients_summed = false;           ///< Gradients are summed over the replicas; otherwise averaged.
  bool weighted_by_labels = false;         ///< Each micro-batch's gradient is weighted by its number of labels,
                                           ///< relative to the mean per micro-batch (from the host).
  std::int64_t norm_span = 1;              ///< Consecutive replicas that share the statistics of batch norms.
  double label_smoothing = 0;              ///< Part of a label's probability that all classes share, in training.
  bool reduces_every_micro_batch = false;  ///< Gradients are reduced before they are accumulated.
  std::string frozen;                      ///< Parameters whose names match this (ECMAScript) are not trained.
  OptimizerOptions optimizer;              ///< The compiler sets `gradient_scale` and `master_weights`.
  PrecisionOptions precision;
  PlannerOptions planner;
  SerialisationOptions serialisation;
  LocationOptions locations;
  ShardingOptions sharding;
  Bytes gradient_bucket;    ///< If > 0, gradients are reduced in buckets during the backward pass.
  double loss_scaling = 1;  ///< Factor applied to the loss; 0: the host sends it.
  bool inference = false;   ///< No training, only evaluation that outputs predictions.
  bool evaluate = true;
  std::int64_t evaluation_batches = 1;  ///< Batches per run of function "evaluate"; > 0.
  bool initial_weights_from_host = false;
  bool tile_layout = false;          ///< The Program lists the address of every byte on every tile.
  bool layout_if_too_large = false;  ///< Like tile_layout, but only if the Program does not fit (for the report).
  bool in_place = false;             ///< Tensors alias each other if this preserves every value.
  Outlining outlining = Outlining::kOff;
  bool fold_batch_norm = false;  ///< In inference, batch norms are folded into the convolutions before them.

  /// Parameters and buffers that keep their initialisers; if the host writes weights, it writes all the others.
  std::set<std::string, std::less<>> initialised_here;

  /// Whether an optional pass is left out, with a note, if it cannot be proven to preserve every value. If false, such
  /// a pass is an error, as tests require.
  bool leaves_out_unproven = false;

  /// Names of tensors in the model file, which no other tensor may have.
  std::set<std::string> given_names = {};
};

}  // namespace poprun
