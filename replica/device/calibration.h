#pragma once

#include <span>
#include <string_view>

/// Numbers of the device clock that are fitted to published results of real IPUs. All other numbers are those of
/// device.h, and have a source of their own.
namespace poprun {

struct FittedSeconds {
  std::string_view name;
  double seconds;
  std::string_view rows;  ///< The results that determine the number.
};

/// Host time of a training step by framework: dispatch, attributes of the optimiser, and fetching of results. It does
/// not depend on the accumulation. "none", which is 0, is the default.
std::span<const FittedSeconds> host_calls();

/// Returns the host time of a training step: that of a framework, or the number of seconds that `text` contains. "" and
/// other text mean 0; the launcher has checked the value.
double host_call_seconds(std::string_view text);

/// Start of one collective between replicas.
extern const FittedSeconds kCollectiveStart;

/// Host time of a call in inference through PyTorch, one call per batch.
extern const FittedSeconds kInferenceCall;

}  // namespace poprun
