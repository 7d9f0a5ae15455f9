#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>

#include "replica/base/error.h"

namespace poprun::collectives {

/// An Error in a fixed number of bytes, as it travels between processes: in memory that they share
/// and in messages. The message is cut where it is longer; an address stays behind, for no exchange
/// names one.
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
  std::bitset<kReplicasMax> missing_{};  ///< By number.
  std::array<char, 1000> message_{};     ///< Ends with 0.
};

}  // namespace poprun::collectives
