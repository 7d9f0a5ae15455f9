#include "replica/loops/step_trace.h"

#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "replica/machine/machine.h"

namespace poprun {
namespace {

constexpr std::uint64_t kMessageSlicesMax = 20'000;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

/// Counts the steps that one call of a function executes, including those of the functions that it calls.
class ExecutedSteps {
 public:
  explicit ExecutedSteps(const Program& program) : program_(program) {}

  std::uint64_t of(const std::string& function) {
    const auto found = known_.find(function);
    if (found != known_.end()) {
      return found->second;
    }
    const proto::Function* callee = find_function(program_, function);
    const std::uint64_t steps = callee == nullptr ? 0 : of(callee->steps());
    known_[function] = steps;
    return steps;
  }

 private:
  std::uint64_t of(const google::protobuf::RepeatedPtrField<proto::Step>& steps) {
    std::uint64_t sum = 0;
    for (const proto::Step& step : steps) {
      if (step.has_repeat()) {
        sum += step.repeat().count() * of(step.repeat().steps());
      } else {
        sum += 1 + (step.has_call() ? of(step.call().function()) : 0);
      }
    }
    return sum;
  }

  const Program& program_;
  std::map<std::string, std::uint64_t> known_;
};

proto::TraceKind trace_kind_of(const proto::Step& step) {
  if (step.has_execute()) {
    return proto::TRACE_OPERATOR;
  }
  if (step.has_call()) {
    return proto::TRACE_CALL;
  }
  if (step.all_reduce().in_background()) {
    return proto::TRACE_BEGIN_COLLECTIVE;
  }
  if (step.has_all_reduce() || step.has_reduce_scatter() || step.has_all_gather() || step.has_gather_rows() ||
      step.has_scatter_rows()) {
    return proto::TRACE_COLLECTIVE;
  }
  if (step.has_await_all_reduces()) {
    return proto::TRACE_AWAIT_COLLECTIVES;
  }
  return step.has_stream_in() || step.has_stream_out() ? proto::TRACE_HOST : proto::TRACE_COPY;
}

std::uint32_t meeting_size(const proto::Step& step, std::uint32_t replicas) {
  const std::uint32_t group = step.all_reduce().group() + step.all_gather().group();
  const proto::TraceKind kind = trace_kind_of(step);
  const bool meets = kind == proto::TRACE_COLLECTIVE || kind == proto::TRACE_AWAIT_COLLECTIVES;
  return !meets ? 0 : group == 0 ? replicas : group;
}

}  // namespace

StepTrace::StepTrace(const Program& program, const Setup& setup, Send send)
    : setup_(setup),
      send_(std::move(send)),
      merges_(ExecutedSteps(program).of(name_of(JobFunction::kTrain)) > setup.slices_max) {
  for (const proto::Function& function : program.functions()) {
    find_traits(function.steps());
  }
}

void StepTrace::find_traits(const google::protobuf::RepeatedPtrField<proto::Step>& steps) {
  for (const proto::Step& step : steps) {
    if (step.number() >= traits_.size()) {
      traits_.resize(step.number() + 1);
    }
    traits_[step.number()] = {trace_kind_of(step), meeting_size(step, setup_.replicas),
                              !step.has_repeat() && !(merges_ && step.has_call())};
    find_traits(step.repeat().steps());
  }
}

proto::StepTrace StepTrace::empty(std::uint64_t step, std::uint64_t began_ns) const {
  proto::StepTrace trace;
  trace.set_replica(setup_.replica);
  trace.set_step(step);
  trace.set_began_ns(began_ns);
  return trace;
}

void StepTrace::begin(std::uint64_t step, Engine& engine) {
  if (step < setup_.first || step > setup_.last) {
    return;
  }
  step_ = step;
  trace_ = empty(step, now_ns());
  engine.add_observer(*this);
}

void StepTrace::end(const StepReport& report, Engine& engine) {
  if (report.step != step_) {
    return;
  }
  engine.remove_observer(*this);
  completed_ = step_;
  add(proto::TRACE_STEP, 0, 0, trace_.began_ns(), now_ns());
  finish_trace();
  if (step_ == setup_.last) {
    flush();
  }
}

/// Keeps the finished trace. Messages cost far more than tracing itself, so a message holds the traces of a second.
void StepTrace::finish_trace() {
  constexpr std::uint64_t kBetweenMessagesNs = 1'000'000'000;
  unsent_slices_ += static_cast<std::uint64_t>(trace_.kind_size());
  *unsent_.add_traces() = std::exchange(trace_, {});
  if (now_ns() - sent_ns_ >= kBetweenMessagesNs || unsent_slices_ >= kMessageSlicesMax) {
    flush();
  }
}

void StepTrace::flush() {
  if (unsent_.traces_size() > 0) {
    send_(std::exchange(unsent_, {}));
    unsent_slices_ = 0;
    sent_ns_ = now_ns();
  }
}

void StepTrace::paused(Pause pause, double began) {
  if (completed_ == 0 || completed_ >= setup_.last) {
    return;
  }
  const auto from = static_cast<std::uint64_t>(began * 1e9);
  trace_ = empty(completed_, from);
  add(pause == Pause::kEvaluation ? proto::TRACE_EVALUATION : proto::TRACE_CHECKPOINT, 0, 0, from, now_ns());
  finish_trace();
}

void StepTrace::before(const proto::Step& /*step*/) {
  began_.push_back(now_ns());
}

void StepTrace::after(const proto::Step& step) {
  const std::uint64_t end = now_ns();
  const std::uint64_t began = take_began();
  const Traits& traits = traits_[step.number()];
  if (!traits.is_traced) {
    return;
  }
  const bool merges = merges_ && (traits.kind == proto::TRACE_OPERATOR || traits.kind == proto::TRACE_COPY);
  if (merges && extends_last(end)) {
    return;
  }
  if (merges) {
    add_part(proto::TRACE_OPERATORS, 1, 0, began, end);
  } else {
    add_part(traits.kind, step.number(), traits.group, began, end);
  }
}

void StepTrace::before_exchange() {
  began_.push_back(now_ns());
}

void StepTrace::after_exchange(std::size_t replicas) {
  const std::uint64_t end = now_ns();
  const bool is_whole_job = replicas == setup_.replicas;  // Otherwise, the host's replicas may not be consecutive.
  add_part(proto::TRACE_SHARING, 0, is_whole_job ? setup_.replicas : 0, take_began(), end);
}

std::uint64_t StepTrace::take_began() {
  const std::uint64_t began = began_.back();
  began_.pop_back();
  return began;
}

/// Extends the last slice to `end`, by one more operator. Returns false if that slice holds something else.
bool StepTrace::extends_last(std::uint64_t end) {
  const int last = trace_.kind_size() - 1;
  if (last < 0 || trace_.kind(last) != proto::TRACE_OPERATORS || trace_.left_out() > 0) {
    return false;
  }
  trace_.set_number(last, trace_.number(last) + 1);
  trace_.set_length_ns(last, end - trace_.began_ns() - trace_.begin_ns(last));
  return true;
}

void StepTrace::add_part(proto::TraceKind kind, std::uint32_t number, std::uint32_t group, std::uint64_t began,
                         std::uint64_t end) {
  if (static_cast<std::uint64_t>(trace_.kind_size()) >= setup_.slices_max) {
    trace_.set_left_out(trace_.left_out() + 1);
  } else {
    add(kind, number, group, began, end);
  }
}

void StepTrace::add(proto::TraceKind kind, std::uint32_t number, std::uint32_t group, std::uint64_t began,
                    std::uint64_t end) {
  trace_.add_kind(kind);
  trace_.add_number(number);
  trace_.add_begin_ns(began - trace_.began_ns());
  trace_.add_length_ns(end - began);
  trace_.add_group(group);
}

}  // namespace poprun
