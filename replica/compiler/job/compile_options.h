#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/planner/product_options.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/ops/builder/builder.h"
#include "replica/ops/builder/model_outputs.h"

namespace poprun {

/// A tensor that the host streams bring in every micro-batch.
struct StreamedTensor {
  std::string name;
  TensorType type;  ///< With the micro-batch dimension.
};

/// The content of a gradient accumulator at the end of a step.
enum class AccumulationKind : std::uint8_t {
  kSum,          ///< The sum over the micro-batches, with which the optimiser works.
  kMean,         ///< The sum; the update divides it by their number.
  kRunningMean,  ///< The mean, kept so after each micro-batch: it cannot overflow in half
                 ///< precision.
};

/// How the model is spread over the IPUs of a replica.
struct PipelineOptions {
  /// Counted layers of each stage; one may be -1 and takes the rest. Empty: see `split`.
  std::vector<std::int64_t> layers_per_ipu = {};
  /// Layers or tensors of the forward pass; each begins the next stage. If this is empty, too, the stages are balanced:
  /// one on each IPU.
  std::vector<std::string> split = {};
  std::vector<std::uint32_t> device_mapping = {};  ///< IPU of each stage; empty: stage s on IPU s.

  std::string schedule = "grouped";  ///< Or "interleaved" or "sequential".

  /// > 1: the stages, so many, are phases: each works on all micro-batches of a step before the next one begins,
  /// whatever `schedule` says. They take turns on `phase_ipus` IPUs.
  std::uint32_t phases = 1;
  std::uint32_t phase_ipus = 1;

  /// "none", "standard", "layer", "pipeline" or "all"; empty: "pipeline" if there are several stages and the schedule
  /// is not sequential, else "none".
  std::string recomputation = {};
  std::string recomputation_checkpoints = {};  ///< Regex of tensors kept in any mode; empty: none.
  std::string recompute = {};                  ///< Likewise, of tensors recomputed in any mode.
  double recomputation_memory = 0.5;           ///< Goal of "standard", as a proportion of an IPU's memory.
};

/// Whether equal runs of operations share a function.
enum class Outlining : std::uint8_t {
  kOff,
  kAuto,  ///< Where that saves more code than the copies in and out take.
  kOn,    ///< Wherever there are any.
};

/// Dense layers and embeddings that are computed in slices of their output channels or rows.
struct SerialisationOptions {
  std::int64_t embedding = 1;  ///< Slices of the largest embedding table and of its projection.
  struct Matmuls {
    std::string text = {};       ///< As written, for messages: "lm_head=4".
    std::string operators = {};  ///< Searched for in output names (ECMAScript).
    std::int64_t slices = 1;
  };
  std::vector<Matmuls> matmuls = {};  ///< For an operator that several match, the last counts.
};

/// Parameters of one dimension at most: biases, and the scales of normalisations.
inline constexpr std::string_view kVectors = "vectors";

struct OptimizerOptions {
  std::string name;
  std::map<std::string, double> hyper_parameters = {};  ///< All of the optimiser's.
  double weight_decay = 0;
  double gradient_scale = 1;  ///< Gradients are multiplied by it first.
  double clip_norm = 0;       ///< Largest norm of all gradients together, after scaling; 0: any.
  /// Parameters without weight decay: those whose names it matches (ECMAScript), or kVectors.
  std::string no_decay = {};
  bool master_weights = false;  ///< Works on a copy of each parameter of its own, and copies back.
};

struct PrecisionOptions {
  bool half = false;                 ///< The others need it.
  bool stochastic_rounding = false;  ///< What is stored in float16 is rounded at random.
  bool master_weights = false;       ///< The optimiser works on float32 weights of its own.
};

enum class Storage : std::uint8_t {
  kOnChip,
  kOffChip,
  kAuto,  ///< Off the chip where the job does not fit otherwise.
};

/// Where tensors that outlive a micro-batch are kept, by kind. PopART's TensorLocationSettings.
struct LocationOptions {
  Storage weights = Storage::kOnChip;
  Storage optimizer_state = Storage::kOnChip;
  Storage accumulators = Storage::kOnChip;
  Storage activations = Storage::kOnChip;  ///< Those that wait in stashes.

  std::int64_t off_chip_elements_min = 2;  ///< Smaller tensors stay on the chip.

  /// For the tensors whose names match, instead of what is above; the last one that matches counts.
  struct Override {
    std::string tensors;  ///< ECMAScript.
    Storage storage = Storage::kOnChip;
  };
  std::vector<Override> overrides = {};
};

/// Replicated tensor sharding: what is equal on all replicas is divided among them.
struct ShardingOptions {
  bool weights = false;
  bool optimizer_state = false;
  bool accumulators = false;

  std::int64_t elements_min = 8192;  ///< Smaller tensors stay whole: PopART's default.
  std::int64_t group = 0;            ///< Consecutive replicas that have a tensor together; 0: all.

  [[nodiscard]] bool any() const { return weights || optimizer_state || accumulators; }
};

/// Everything a Program depends on.
struct CompileOptions {
  std::string model;  ///< For reports.
  std::vector<StreamedTensor> inputs;

  /// Appends the model's forward pass on the streamed tensors, which come in the order of `inputs`. `training` is false
  /// where it is built for evaluation, on the same variables.
  std::function<ModelOutputs(Builder&, const std::vector<TensorId>&, bool training)> forward;

  Device device;
  std::int64_t replicas = 1;
  std::int64_t ipus_per_replica = 1;
  PipelineOptions pipeline;
  std::uint32_t micro_batch_size = 1;      ///< Samples that are computed at once.
  std::int64_t gradient_accumulation = 1;  ///< Such batches in a step.
  std::uint32_t compute_batches = 1;       ///< In each batch that the host sends.
  AccumulationKind accumulation_kind = AccumulationKind::kMean;
  bool float_accumulators = false;         ///< In half precision; otherwise they are half.
  bool gradients_summed = false;           ///< Over the replicas; otherwise their mean is taken.
  bool weighted_by_labels = false;         ///< Each micro-batch's gradient, by its labels' share in a mean
                                           ///< micro-batch, which the host says.
  bool reduces_every_micro_batch = false;  ///< Gradients, before they are accumulated.
  std::string frozen;                      ///< Parameters whose names it matches (ECMAScript) are not trained.
  OptimizerOptions optimizer;              ///< `gradient_scale` and `master_weights` are the compiler's to set.
  PrecisionOptions precision;
  PlannerOptions planner;
  SerialisationOptions serialisation;
  LocationOptions locations;
  ShardingOptions sharding;
  Bytes gradient_bucket;    ///< > 0: gradients travel in buckets during backward.
  double loss_scaling = 1;  ///< The loss is multiplied by it; 0: by what the host says.
  bool inference = false;   ///< No training: evaluation that puts out predictions.
  bool evaluate = true;
  std::int64_t evaluation_batches = 1;  ///< In one run of function "evaluate"; > 0.
  bool initial_weights_from_host = false;
  bool tile_layout = false;          ///< The Program says where every byte of every tile lies.
  bool layout_if_too_large = false;  ///< Also where the Program does not fit, for the report.
  bool in_place = false;             ///< Tensors lie in each other's bytes where that keeps every value.
  Outlining outlining = Outlining::kOff;
  bool fold_batch_norm = false;  ///< In inference: into the convolutions before them.

  /// Parameters and buffers that keep their initialisers, though the host writes the others.
  std::set<std::string, std::less<>> initialised_here;

  /// An optional pass that cannot be proven to keep every value is left out, with a note. Otherwise that is a bug, as
  /// tests want it.
  bool leaves_out_unproven = false;

  /// The model file's names of its tensors, to which all other names give way.
  std::set<std::string> given_names = {};
};

}  // namespace poprun
