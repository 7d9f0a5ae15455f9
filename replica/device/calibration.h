#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// Numbers of the device clock that are fitted to published results of real IPUs. All other numbers are those of
/// device.h, and have a source of their own.
namespace poprun {

struct FittedNumber {
  std::string_view name;
  double seconds = 0;
  std::int64_t cycles = 0;
  double seconds_per_parameter = 0;  ///< For each trained parameter of the model.
  double seconds_per_byte = 0;       ///< For each byte that the host sends to the device.
  std::string_view rows;             ///< The published results, named as in `validate`, that determine the number.
};

/// Host time of a training step for each framework: dispatch, attributes of the optimiser, and fetching of results. The
/// time does not depend on gradient accumulation. The default framework is "none", with time 0. With PyTorch, the time
/// grows with the model; nobody has published why.
std::span<const FittedNumber> host_calls();

/// Returns whether `text` is the name of one of host_calls().
bool is_framework(std::string_view text);

/// Returns the host time of a training step of a model with that many parameters: that of the framework called
/// `text`, or the number of seconds in `text`. "" and other text mean 0; the launcher has checked the value.
double host_call_seconds(std::string_view text, std::uint64_t parameters);

/// Returns every number of the device clock that is fitted, except those that are 0.
std::vector<FittedNumber> fitted_numbers();

/// Returns the largest error of the device clock on published results of this kind, as `validate` finds it, rounded up
/// to whole percents: 0.07. Returns 0 if nobody has published results of this kind. For training with half
/// precision, the kind is the model's name; for a float32 product, it is "matmul".
double compared_error(std::string_view kind);

/// Time to start one collective between replicas.
extern const FittedNumber kCollectiveStart;

/// Time of one operation of an optimiser's update (Work::update_operations). A compute set that starts an exchange
/// costs 574 cycles by Poplar's own numbers (device.h). The fitted number also absorbs what the operators do not count:
/// clearing accumulators, copies around the all-reduce and moving averages as variables of their own; and it assumes
/// that LARS updates every parameter, although TensorFlow's job exempts biases and norms.
extern const FittedNumber kUpdateOperation;

/// Host time of a call in inference through PyTorch, which copies the call's inputs before it streams them.
extern const FittedNumber kInferenceCall;

}  // namespace poprun
