#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"

/// Settings whose values come from a list. Each has an enum, and kWords gives the spelling of its values in train.cfg,
/// RunConfig and messages; no other file repeats these words to compare or set values. The first value is the default,
/// unless a comment says otherwise.
namespace poprun {

/// The words of an enum, in the order of its values; options list them in this order.
template <typename Enum>
inline constexpr std::array<std::string_view, 0> kWords = {};

/// Floating-point type of weights, activations and gradients, of accumulators, or of partial sums.
enum class Precision : std::uint8_t { kFloat, kHalf };
template <>
inline constexpr std::array<std::string_view, 2> kWords<Precision> = {"float", "half"};

enum class Mode : std::uint8_t { kTraining, kInference };
template <>
inline constexpr std::array<std::string_view, 2> kWords<Mode> = {"training", "inference"};

/// Loss of an ONNX model.
enum class Loss : std::uint8_t {
  kCrossEntropy,
  kMeanSquaredError,
  kBinaryCrossEntropy,
  kContrastive,
  kGlobalContrastive,
  kCtc
};
template <>
inline constexpr std::array<std::string_view, 6> kWords<Loss> = {
    "cross-entropy", "mean-squared-error", "binary-cross-entropy", "contrastive", "global-contrastive", "ctc"};

/// Kind of normalisation in models that have batch normalisation.
enum class Normalisation : std::uint8_t {
  kBatch,
  kGroup,     ///< Per sample and group of channels, with 32 groups.
  kLayer,     ///< Per sample, over all channels.
  kInstance,  ///< Per sample and channel.
};
template <>
inline constexpr std::array<std::string_view, 4> kWords<Normalisation> = {"batch", "group", "layer", "instance"};

enum class ItemOrder : std::uint8_t { kShuffled, kSequential };
template <>
inline constexpr std::array<std::string_view, 2> kWords<ItemOrder> = {"shuffled", "sequential"};

/// Learning-rate schedule: see LearningRate in replica/loops/host_scalars.h.
enum class RateSchedule : std::uint8_t { kConstant, kLinear, kCosine, kStep };
template <>
inline constexpr std::array<std::string_view, 4> kWords<RateSchedule> = {"constant", "linear", "cosine", "step"};

/// Contents of a gradient accumulator at the end of a step.
enum class AccumulationKind : std::uint8_t {
  kSum,          ///< The sum over the micro-batches, which the optimiser uses.
  kMean,         ///< The sum; the update divides it by the number of micro-batches.
  kRunningMean,  ///< The mean of the micro-batches so far, which cannot overflow in half precision.
};
template <>
inline constexpr std::array<std::string_view, 3> kWords<AccumulationKind> = {"sum", "mean", "running-mean"};

constexpr AccumulationKind default_accumulation(Precision precision) {
  return precision == Precision::kHalf ? AccumulationKind::kRunningMean : AccumulationKind::kMean;
}

enum class GradientReduction : std::uint8_t {
  kMean,
  kSum,
  kEveryMicroBatch,  ///< Mean; gradients are reduced before they are accumulated.
};
template <>
inline constexpr std::array<std::string_view, 3> kWords<GradientReduction> = {"mean", "sum", "every-micro-batch"};

/// Units over which the loss is averaged.
enum class LossMean : std::uint8_t {
  kMicroBatches,  ///< The means of micro-batches.
  kTokens,        ///< All counted labels of a step.
};
template <>
inline constexpr std::array<std::string_view, 2> kWords<LossMean> = {"micro-batches", "tokens"};

/// Whether repeated sequences of operations share a function.
enum class Outlining : std::uint8_t {
  kAuto,  ///< If the function saves more code than copying its inputs and outputs adds.
  kOn,    ///< Wherever possible.
  kOff,
};
template <>
inline constexpr std::array<std::string_view, 3> kWords<Outlining> = {"auto", "on", "off"};

/// How tensors are stored while kernels run.
enum class TileStorage : std::uint8_t {
  kContiguous,  ///< Each in one piece.
  kExact,       ///< At their addresses on the tiles.
};
template <>
inline constexpr std::array<std::string_view, 2> kWords<TileStorage> = {"contiguous", "exact"};

enum class Storage : std::uint8_t {
  kOnChip,
  kOffChip,
  kAuto,  ///< Off-chip if the job does not fit otherwise.
};
template <>
inline constexpr std::array<std::string_view, 3> kWords<Storage> = {"on-chip", "off-chip", "auto"};

/// Kinds of tensor that replicas can share. The setting is a list of them, empty by default.
enum class ShardedKind : std::uint8_t { kWeights, kOptimizerState, kAccumulators };
template <>
inline constexpr std::array<std::string_view, 3> kWords<ShardedKind> = {"weights", "optimizer-state", "accumulators"};

/// Order in which the stages of a pipeline work on a step's micro-batches.
enum class Schedule : std::uint8_t {
  kGrouped,      ///< In each cycle, an IPU runs a forward and a backward pass.
  kInterleaved,  ///< Cycles of an IPU alternate between forward and backward passes.
  kSequential,   ///< One pass of one stage at a time: model parallelism without a pipeline.
  kPhased,       ///< One stage at a time, for all micro-batches. Jobs with phases use it; no word selects it.
};
template <>
inline constexpr std::array<std::string_view, 3> kWords<Schedule> = {"grouped", "interleaved", "sequential"};

/// Returns the schedule of a job that asks for `asked`: phases take precedence.
constexpr Schedule schedule_of(Schedule asked, std::uint32_t phases) {
  return phases > 1 ? Schedule::kPhased : asked;
}

/// The activations that a stage keeps for its backward pass. All others that this pass reads are recomputed from them.
enum class Recomputation : std::uint8_t {
  kNone,      ///< Everything.
  kStandard,  ///< The choice with the least work within a memory goal.
  kLayer,     ///< The inputs of each layer.
  kPipeline,  ///< The inputs of the stage; everything in the last stage.
  kAll,       ///< The inputs of every stage, including the last.
};
template <>
inline constexpr std::array<std::string_view, 5> kWords<Recomputation> = {"none", "standard", "layer", "pipeline",
                                                                          "all"};

/// Returns the default: kPipeline if several stages work at the same time, so that activations wait in stashes,
/// otherwise kNone. The launcher does not know the model's stages, so it shows a guess.
constexpr Recomputation default_recomputation(std::size_t stages, Schedule schedule) {
  return stages > 1 && schedule != Schedule::kSequential ? Recomputation::kPipeline : Recomputation::kNone;
}

template <typename Enum>
concept Chosen = !kWords<Enum>.empty();

template <Chosen Enum>
std::string word_of(Enum value) {
  return std::string{kWords<Enum>.at(static_cast<std::size_t>(value))};
}

/// Returns the name of a schedule for display: its word, or "phased".
inline std::string name_of(Schedule schedule) {
  return schedule == Schedule::kPhased ? "phased" : word_of(schedule);
}

template <Chosen Enum>
std::vector<std::string> all_words() {
  return {kWords<Enum>.begin(), kWords<Enum>.end()};
}

/// Returns the value of a word; nothing if the word is unknown or empty.
template <Chosen Enum>
std::optional<Enum> find_choice(std::string_view word) {
  const auto found = std::ranges::find(kWords<Enum>, word);
  return found == kWords<Enum>.end() ? std::nullopt : std::optional{static_cast<Enum>(found - kWords<Enum>.begin())};
}

/// Returns the value of a field of RunConfig; nothing if it is empty. Requires: the launcher has checked the field.
template <Chosen Enum>
std::optional<Enum> open_choice(std::string_view word) {
  const std::optional<Enum> found = find_choice<Enum>(word);
  POPRUN_CHECK(found || word.empty());
  return found;
}

/// Like open_choice, but returns the first value if the field is empty.
template <Chosen Enum>
Enum choice_of(std::string_view word) {
  return open_choice<Enum>(word).value_or(Enum{});
}

/// Returns whether a list of words contains the word of `value`.
template <Chosen Enum>
bool lists(const auto& words, Enum value) {
  return std::ranges::find(words, word_of(value)) != words.end();
}

}  // namespace poprun
