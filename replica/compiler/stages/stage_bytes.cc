#include "replica/compiler/stages/stage_bytes.h"

#include <algorithm>
#include <cmath>

namespace poprun {
namespace {

std::size_t begin_of(const MeasuredSplit& split, std::size_t stage) {
  return stage == 0 ? 0 : split.begins[stage - 1];
}

std::size_t end_of(const MeasuredSplit& split, std::size_t stage, std::size_t layers) {
  return stage == split.begins.size() ? layers : split.begins[stage];
}

}  // namespace

StageBytes::StageBytes(const Balancing& balancing, std::span<const MeasuredSplit> measured)
    : measured_(measured), corrections_(balancing.in_flight.size()) {
  for (const LayerWeight& layer : balancing.layers) {
    bytes_.push_back(bytes_.back() + layer.bytes.count());
    activations_.push_back(activations_.back() + layer.activations.count());
  }
  if (measured.empty()) {
    return;
  }
  const MeasuredSplit& latest = measured.back();
  for (std::size_t stage = 0; stage < corrections_.size(); ++stage) {
    const std::size_t begin = begin_of(latest, stage);
    const std::size_t end = end_of(latest, stage, balancing.layers.size());
    const std::int64_t missing = latest.peaks[stage].count() - estimate({}, begin, end);
    const std::int64_t activations = activations_[end] - activations_[begin];
    Correction& correction = corrections_[stage];
    if (activations > 0) {
      correction.rate = std::clamp(static_cast<double>(missing) / static_cast<double>(activations),
                                   0.0, static_cast<double>(balancing.in_flight[stage]));
    }
    correction.rest = latest.peaks[stage].count() - estimate(correction, begin, end);
  }
}

std::int64_t StageBytes::operator()(std::size_t stage, std::size_t begin, std::size_t end) const {
  const auto same = std::ranges::find_if(measured_, [&](const MeasuredSplit& split) {
    return begin_of(split, stage) == begin && end_of(split, stage, bytes_.size() - 1) == end;
  });
  return same == measured_.end() ? estimate(corrections_[stage], begin, end)
                                 : same->peaks[stage].count();
}

std::int64_t StageBytes::estimate(const Correction& correction, std::size_t begin,
                                  std::size_t end) const {
  const auto activations = static_cast<double>(activations_[end] - activations_[begin]);
  return bytes_[end] - bytes_[begin] + std::llround(correction.rate * activations) +
         correction.rest;
}

}  // namespace poprun
