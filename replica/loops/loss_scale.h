#pragma once

#include <cstdint>

namespace poprun {

/// The factor by which a half precision loss is multiplied so that small gradients do not vanish,
/// found as training goes: halved after a step in which a gradient was not finite, doubled after
/// kGrowthInterval steps in a row without one. The rule and its numbers are those of PyTorch's
/// torch.cuda.amp.GradScaler, but for the first scale, which fits float16 gradients of a mean loss.
class LossScale {
 public:
  static constexpr double kFirst = 4096;
  static constexpr double kLeast = 1;
  static constexpr double kMost = 16'777'216;
  static constexpr std::uint64_t kGrowthInterval = 2000;

  LossScale() = default;
  /// As it was when another one told these figures.
  LossScale(double value, std::uint64_t good_steps, std::uint64_t skipped)
      : value_(value), good_steps_(good_steps), skipped_(skipped) {}

  [[nodiscard]] double value() const { return value_; }
  [[nodiscard]] std::uint64_t good_steps() const { return good_steps_; }
  [[nodiscard]] std::uint64_t skipped() const { return skipped_; }

  /// False where the scale cannot fall any further: then what is not finite is no matter of scale.
  [[nodiscard]] bool can_fall() const { return value_ > kLeast; }

  /// Tells of a step's end; `finite` is false where it was skipped.
  void after_step(bool finite);

 private:
  double value_ = kFirst;
  std::uint64_t good_steps_ = 0;  ///< In a row.
  std::uint64_t skipped_ = 0;
};

}  // namespace poprun
