#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>

#include "replica/base/error.h"

namespace poprun::collectives {

/// An Error in a fixed number of bytes, so that it can travel between processes, in shared memory
/// and in messages. A longer message is cut. The address fact is dropped: no exchange sets it.
class FlatError {
 public:
  FlatError() = default;
  /// Requires: missing replicas have numbers below kReplicasMax.
  explicit FlatError(const Error& error);

  [[nodiscard]] Error error() const;

 private:
  static constexpr std::size_t kReplicasMax = 4096;

  ErrorCode code_{};
  bool is_short_ = false;
  Shortage shortage_{};
  std::bitset<kReplicasMax> missing_{};  ///< Indexed by replica number.
  std::array<char, 1000> message_{};     ///< 0-terminated.
};

}  // namespace poprun::collectives
