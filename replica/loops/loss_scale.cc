#include "replica/loops/loss_scale.h"

#include <algorithm>

namespace poprun {

void LossScale::after_step(bool finite) {
  if (!finite) {
    value_ = std::max(kLeast, value_ / 2);
    good_steps_ = 0;
    ++skipped_;
    return;
  }
  if (++good_steps_ == kGrowthInterval) {
    value_ = std::min(kMost, value_ * 2);
    good_steps_ = 0;
  }
}

}  // namespace poprun
