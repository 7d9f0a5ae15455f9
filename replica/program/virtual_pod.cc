#include "replica/program/virtual_pod.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <boost/math/distributions/normal.hpp>

#include "replica/base/random.h"
#include "replica/program/host_contract.h"

namespace poprun {
namespace {

/// Replicas whose own work is slowed down by the same factor.
struct PaceClass {
  double factor = 1;
  std::uint32_t replicas = 0;
};

/// Returns the classes of a step, in the order of their first replicas.
std::vector<PaceClass> classes_of(const proto::WhatIf& what_if, std::uint32_t replicas, std::uint64_t step) {
  std::vector<const proto::Slowdown*> active;
  std::vector<std::uint32_t> bounds{0, replicas};
  for (const proto::Slowdown& slowdown : what_if.slowdowns()) {
    if (slowdown.first_step() <= step && step <= slowdown.last_step() && slowdown.first_replica() < replicas) {
      active.push_back(&slowdown);
      bounds.push_back(slowdown.first_replica());
      bounds.push_back(std::min(slowdown.last_replica() + 1, replicas));
    }
  }
  std::ranges::sort(bounds);
  std::vector<PaceClass> classes;
  for (std::size_t k = 0; k + 1 < bounds.size(); ++k) {
    PaceClass one{1, bounds[k + 1] - bounds[k]};
    for (const proto::Slowdown* slowdown : active) {
      const bool is_slow = slowdown->first_replica() <= bounds[k] && bounds[k] <= slowdown->last_replica();
      one.factor *= is_slow ? slowdown->factor() : 1;
    }
    const auto same = std::ranges::find(classes, one.factor, &PaceClass::factor);
    if (same != classes.end()) {
      same->replicas += one.replicas;
    } else if (one.replicas > 0) {
      classes.push_back(one);
    }
  }
  return classes;
}

/// Draws the largest of `count` standard normal numbers. Counters (step, index) give independent draws.
double largest_normal(std::uint32_t count, std::uint64_t key, std::uint64_t step, std::uint64_t index) {
  const std::array<std::uint32_t, 4> words = philox(key, step, index);
  const double uniform =
      ((static_cast<double>(words[0]) * 0x1p-32 + static_cast<double>(words[1])) + 0x1p-33) * 0x1p-32;
  // The maximum is below x with probability F(x)^count, so F(x) = uniform^(1 / count). The complement keeps the digits
  // of numbers near 1.
  const double above = -std::expm1(std::log(uniform) / count);
  return boost::math::quantile(boost::math::complement(boost::math::normal{}, above));
}

}  // namespace

VirtualPod::VirtualPod(const Program& program, proto::WhatIf what_if, std::uint32_t replicas, std::uint64_t seed)
    : program_(program), what_if_(std::move(what_if)), replicas_(replicas), key_(random_key(seed, "what-if")) {}

Cycles VirtualPod::time_of(std::string_view function, std::uint64_t step) {
  return function == name_of(JobFunction::kTrain) ? step_alone(step) + lost_in(step).time
                                                  : walk_of(function, kUsualPace);
}

Pace VirtualPod::pace(std::uint64_t step) const {
  double slowest = 0;
  std::uint64_t index = 0;
  for (const PaceClass& one : classes_of(what_if_, replicas_, step)) {
    const double jitter =
        what_if_.jitter() > 0 ? std::exp(what_if_.jitter() * largest_normal(one.replicas, key_, step, index)) : 1;
    slowest = std::max(slowest, one.factor * jitter);
    ++index;
  }
  return static_cast<Pace>(std::clamp<double>(std::round(slowest * kUsualPace), 1, kSlowestPace));
}

Cycles VirtualPod::step_alone(std::uint64_t step) {
  return walk_of(name_of(JobFunction::kTrain), pace(step));
}

VirtualPod::Lost VirtualPod::lost_in(std::uint64_t step) {
  Lost lost;
  for (const proto::Loss& loss : what_if_.losses()) {
    if (loss.step() != step || loss.replica() >= replicas_) {
      continue;
    }
    const double seconds = what_if_.detection_seconds() + loss.restart_seconds();
    lost.time += Cycles{std::llround(seconds * program_.device().clock_hz())};
    lost.time += walk_of(name_of(JobFunction::kLoad), kUsualPace) + step_alone(step);
    const std::uint64_t every = what_if_.checkpoint_every_steps();
    for (std::uint64_t again = every > 0 ? (step - 1) / every * every + 1 : 1; again < step; ++again) {
      lost.time += step_alone(again);
      ++lost.repeated_steps;
    }
    ++lost.losses;
  }
  return lost;
}

Cycles VirtualPod::walk_of(std::string_view function, Pace pace) {
  const auto [found, is_new] = walks_.try_emplace({std::string(function), pace});
  if (is_new) {
    const proto::Function* walked = find_function(program_, found->first.first);
    found->second = walked == nullptr ? Cycles{} : walk(program_, *walked, nullptr, pace).length;
  }
  return found->second;
}

proto::DisturbedTime VirtualPod::job(std::uint64_t steps, std::uint64_t samples, double call_seconds) {
  proto::DisturbedTime job;
  std::map<Cycles, std::uint64_t> times;  // With the number of steps that take this time.
  double all = 0;
  double lost = 0;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const Cycles time = step_alone(step);
    const Lost here = lost_in(step);
    ++times[time];
    all += device_seconds(program_, time);
    lost += device_seconds(program_, here.time);
    job.set_repeated_steps(job.repeated_steps() + here.repeated_steps);
    job.set_losses(job.losses() + here.losses);
  }
  if (times.empty()) {
    return job;
  }
  // The smallest time that at least `percent` of the steps do not exceed.
  const auto quantile = [&](std::uint64_t percent) {
    std::uint64_t left = std::max((steps * percent + 99) / 100, std::uint64_t{1});
    auto at = times.begin();
    for (; left > at->second; ++at) {
      left -= at->second;
    }
    return device_seconds(program_, at->first) + call_seconds;
  };
  job.set_median_step_seconds(quantile(50));
  job.set_step_seconds_90(quantile(90));
  job.set_step_seconds_99(quantile(99));
  job.set_slowest_step_seconds(quantile(100));
  job.set_lost_seconds(lost + static_cast<double>(job.repeated_steps() + job.losses()) * call_seconds);
  job.set_total_seconds(all + static_cast<double>(steps) * call_seconds + job.lost_seconds());
  job.set_samples_per_second(static_cast<double>(steps * samples) / job.total_seconds());
  return job;
}

}  // namespace poprun
