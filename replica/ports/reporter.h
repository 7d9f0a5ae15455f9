#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/ids.h"

namespace poprun {

/// Where a replica is, for life signs and post-mortems. Called often, must be cheap and must not
/// block. Implementations are thread-safe for different replicas.
class ProgressSink {
 public:
  ProgressSink() = default;
  ProgressSink(const ProgressSink&) = delete;
  ProgressSink& operator=(const ProgressSink&) = delete;
  virtual ~ProgressSink() = default;

  /// `activity` is what the replica starts doing now, `step` how many training steps it has done.
  virtual void progress(ReplicaId replica, std::uint64_t step, std::string_view activity) = 0;

  /// True once the launcher asked the job to finish its step, save and leave.
  [[nodiscard]] virtual bool drain_requested() const = 0;
};

}  // namespace poprun
