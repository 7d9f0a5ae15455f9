#include "replica/loops/wall_profile.h"

#include <algorithm>
#include <span>

namespace poprun {
namespace {

std::uint32_t steps_of(const google::protobuf::RepeatedPtrField<proto::Step>& steps) {
  std::uint32_t end = 0;
  for (const proto::Step& step : steps) {
    end = std::max({end, step.number() + 1, steps_of(step.repeat().steps())});
  }
  return end;
}

}  // namespace

WallProfile::WallProfile(const Program& program, std::uint64_t training_steps) : first_(training_steps > 1 ? 2 : 1) {
  std::uint32_t end = 0;
  for (const proto::Function& function : program.functions()) {
    end = std::max(end, steps_of(function.steps()));
  }
  totals_.resize(end + 1);
}

Result<std::vector<float>> WallProfile::seconds(Communicator& communicator) const {
  std::vector<float> means;
  for (const double total : totals_) {
    means.push_back(measured_ == 0 ? 0.0F : static_cast<float>(total / static_cast<double>(measured_)));
  }
  Buffer buffer = Buffer::of(means);
  buffer.name = "wall times of steps";
  POPRUN_TRY(communicator.all_reduce(Reduction::kMean, std::span(&buffer, 1)));
  return means;
}

void WallProfile::begin(std::uint64_t step, Engine& engine) {
  if (step == first_) {
    engine.add_observer(*this);
  }
}

void WallProfile::end(const StepReport& report, Engine& /*engine*/) {
  measured_ += report.step >= first_ ? 1U : 0U;
}

void WallProfile::before(const proto::Step& /*step*/) {
  began_ = now_seconds();
}

void WallProfile::after(const proto::Step& step) {
  if (!step.has_repeat() && !step.has_call()) {
    totals_[step.number()] += now_seconds() - began_;
  }
}

void WallProfile::before_exchange() {
  began_ = now_seconds();
}

void WallProfile::after_exchange(std::size_t /*replicas*/) {
  totals_.back() += now_seconds() - began_;
}

}  // namespace poprun
