#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "replica/memory/arena.h"
#include "replica/program/program.h"

namespace poprun {

/// The memories of one replica's IPUs: which bytes are in use when, according to the tensors'
/// placements. To read or write a tensor, ask HostImages for its bytes.
class DeviceMemory {
 public:
  /// `arenas[m]` is memory m (memory_of); the Program must outlive this.
  DeviceMemory(const Program& program, std::vector<Arena> arenas)
      : program_(program), arenas_(std::move(arenas)) {}

  /// By memory: the end of the highest of a set of tensors.
  using Reach = std::vector<Bytes>;
  [[nodiscard]] Reach reach_of(std::span<const std::uint32_t> tensors) const;

  /// Notes that memory is in use up to there.
  void use(const Reach& reach);

  /// Fills a tensor's bytes with NaN.
  void poison(std::uint32_t tensor) const;

  /// Fills all memory that the plan ever uses with NaN.
  void poison_planned() const;

  /// By memory: the end of the highest byte ever in use.
  [[nodiscard]] std::vector<Bytes> high_water() const;

  [[nodiscard]] const std::vector<Arena>& arenas() const { return arenas_; }

 private:
  const Program& program_;
  std::vector<Arena> arenas_;
};

}  // namespace poprun
