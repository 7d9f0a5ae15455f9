#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// Decides where a job that was asked to drain stops: before the first part (a micro-batch, or a batch of an
/// evaluation) that no replica has begun. Only keeps records of the instances' messages.
class DrainPoint {
 public:
  explicit DrainPoint(std::uint32_t instances) : instances_(instances) {}

  void beat(const proto::Beat& beat);
  /// Records that the instance has ended its heartbeats, so it is past every part.
  void left(std::uint32_t instance);

  /// Returns the last part that any replica begins; known once every instance holds or has left.
  [[nodiscard]] std::optional<std::uint64_t> last_part() const;

 private:
  struct Instance {
    bool settled = false;     ///< It holds, or has left.
    std::uint64_t parts = 0;  ///< Parts begun by the replica that is furthest ahead.
  };
  std::vector<Instance> instances_;
};

}  // namespace poprun::launcher
