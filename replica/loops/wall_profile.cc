#include "replica/loops/wall_profile.h"

#include <algorithm>
#include <span>

namespace poprun {

void WallProfile::add(const proto::TracedSteps& traced) {
  for (const proto::StepTrace& trace : traced.traces()) {
    for (int slice = 0; slice < trace.kind_size(); ++slice) {
      const auto length = static_cast<double>(trace.length_ns(slice));
      if (trace.kind(slice) == proto::TRACE_STEP) {
        ++training_steps_;
      } else if (trace.kind(slice) == proto::TRACE_SHARING) {
        sharing_ += length;
      } else if (trace.kind(slice) != proto::TRACE_CALL) {  // The called function's steps have slices of their own.
        nanoseconds_.resize(std::max<std::size_t>(nanoseconds_.size(), trace.number(slice) + std::size_t{1}));
        nanoseconds_[trace.number(slice)] += length;
      }
    }
  }
}

Result<std::vector<float>> WallProfile::seconds(Communicator& communicator) const {
  std::vector<float> means;
  const double all = 1e9 * static_cast<double>(std::max<std::uint64_t>(training_steps_, 1));
  for (const double nanoseconds : nanoseconds_) {
    means.push_back(static_cast<float>(nanoseconds / all));
  }
  means.push_back(static_cast<float>(sharing_ / all));
  const Buffer buffer{ElementType::kF32, std::as_writable_bytes(std::span(means)), "wall times of steps"};
  POPRUN_TRY(communicator.all_reduce(Reduction::kMean, std::span(&buffer, 1)));
  return means;
}

}  // namespace poprun
