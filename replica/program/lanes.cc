#include "replica/program/lanes.h"

#include <algorithm>

#include "replica/base/error.h"

namespace poprun {
namespace {

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;
using Ids = google::protobuf::RepeatedField<std::uint32_t>;

Bytes bytes_of(const Program& program, const Ids& tensors) {
  Bytes bytes;
  for (const std::uint32_t id : tensors) {
    bytes += Bytes{static_cast<std::int64_t>(program.tensors(static_cast<int>(id)).bytes())};
  }
  return bytes;
}

void add(const Program& program, const Steps& steps, std::int64_t times, HostTraffic& total) {
  for (const proto::Step& step : steps) {
    if (step.has_repeat()) {
      add(program, step.repeat().steps(), times * step.repeat().count(), total);
    } else if (step.has_call()) {
      const proto::Function* callee = find_function(program, step.call().function());
      POPRUN_CHECK(callee != nullptr);
      add(program, callee->steps(), times, total);
    }
    total.to_device += bytes_of(program, step.stream_in().tensors()) * times;
    total.from_device += bytes_of(program, step.stream_out().tensors()) * times;
  }
}

}  // namespace

Cycles IoLane::begin_of_in(Cycles length, const Entries& loads) const {
  const bool depends = std::ranges::any_of(loads, [this](const auto& entry) { return stored_.contains(entry); });
  if (!first_out_ || (!depends && in_ready_ + length <= *first_out_)) {
    return in_ready_;
  }
  return std::max(in_ready_, out_end_);
}

void IoLane::take(Cycles now) {
  // The tiles delivered all outgoing data before now, so the next incoming transfer waits for these transfers.
  in_ready_ = std::max(now, out_end_);
  first_out_.reset();
  stored_.clear();
}

void IoLane::give(Cycles now, Cycles length, const Entries& stores) {
  POPRUN_CHECK(now >= out_end_);
  first_out_ = first_out_.value_or(now);
  out_end_ = now + length;
  stored_.insert(stores.begin(), stores.end());
}

bool IoLane::moved_by(const IoLane& before, Cycles advance) const {
  const auto moved = [&](const auto& now, const auto& then) {
    return now == then || (now && then && *now == *then + advance);
  };
  return moved(std::optional(in_ready_), std::optional(before.in_ready_)) &&
         moved(std::optional(out_end_), std::optional(before.out_end_)) && moved(first_out_, before.first_out_) &&
         stored_ == before.stored_;
}

void IoLane::move(const IoLane& before, Cycles by) {
  if (in_ready_ != before.in_ready_) {
    in_ready_ += by;
  }
  if (out_end_ != before.out_end_) {
    out_end_ += by;
  }
  if (first_out_ && first_out_ != before.first_out_) {
    *first_out_ += by;
  }
}

HostTraffic host_traffic(const Program& program, const proto::Function& function) {
  HostTraffic total;
  add(program, function.steps(), 1, total);
  return total;
}

}  // namespace poprun
