#include "replica/report/operator_rows.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "replica/program/stage_schedule.h"
#include "replica/program/timeline.h"
#include "replica/report/tile_contents.h"

namespace poprun {
namespace {

using ProgramSteps = google::protobuf::RepeatedPtrField<proto::Step>;

/// Counts how often each function runs in one call of the function `host`.
class Calls {
 public:
  Calls(const Program& program, const proto::Function& host) : program_(program) { add(host, 1); }

  /// Returns how often `function` runs; 0 if it is not reached.
  [[nodiscard]] std::uint64_t of(const std::string& function) const {
    const auto calls = calls_.find(function);
    return calls == calls_.end() ? 0 : calls->second;
  }

 private:
  void add(const proto::Function& function, std::uint64_t times) {
    calls_[function.name()] += times;
    add_callees(function.steps(), times);
  }

  void add_callees(const ProgramSteps& steps, std::uint64_t times) {
    for (const proto::Step& step : steps) {
      const proto::Function* callee = step.has_call() ? find_function(program_, step.call().function()) : nullptr;
      if (callee != nullptr) {
        add(*callee, times);
      }
      add_callees(step.repeat().steps(), times * step.repeat().count());
    }
  }

  const Program& program_;
  std::map<std::string, std::uint64_t> calls_;
};

class Operators {
 public:
  Operators(const Program& program, const Device& device, const std::string& step_function)
      : program_(program), device_(device) {
    add_host(step_function);
    std::set<std::string> called;
    for (const proto::Function& function : program.functions()) {
      add_called(function.steps(), called);
    }
    for (const proto::Function& function : program.functions()) {
      if (!called.contains(function.name())) {
        add_host(function.name());
      }
    }
  }

  /// Returns a row for each step other than calls and repeats.
  [[nodiscard]] std::vector<proto::OperatorRow> rows() const {
    std::vector<proto::OperatorRow> rows;
    for (const proto::Function& function : program_.functions()) {
      const auto host =
          std::ranges::find_if(hosts_, [&](const auto& entry) { return entry.second.of(function.name()) > 0; });
      add(function, function.steps(), host->first, host->second.of(function.name()), rows);
    }
    return rows;
  }

 private:
  static void add_called(const ProgramSteps& steps, std::set<std::string>& called) {
    for (const proto::Step& step : steps) {
      if (step.has_call()) {
        called.insert(step.call().function());
      }
      add_called(step.repeat().steps(), called);
    }
  }

  void add_host(const std::string& name) {
    const proto::Function* function = find_function(program_, name);
    if (function != nullptr) {
      hosts_.emplace_back(name, Calls(program_, *function));
    }
  }

  void add(const proto::Function& function, const ProgramSteps& steps, const std::string& host, std::uint64_t times,
           std::vector<proto::OperatorRow>& rows) const {
    for (const proto::Step& step : steps) {
      if (step.has_repeat()) {
        add(function, step.repeat().steps(), host, times * step.repeat().count(), rows);
      } else if (!step.has_call()) {
        proto::OperatorRow& row = rows.emplace_back(row_of(step));
        row.set_function(function.name());
        row.set_host_function(host);
        row.set_calls(times);
        add_cost(*row.mutable_cost(), step.cost(), times);
        row.set_share_of_peak(share_of_peak(step));
      }
    }
  }

  [[nodiscard]] proto::OperatorRow row_of(const proto::Step& step) const {
    proto::OperatorRow row;
    row.set_step(step.number());
    if (step.has_execute()) {
      row.set_operation(step.execute().operation());
      row.set_name(step.execute().name());
      row.set_attributes(step.execute().attributes());
      row.set_plan(step.execute().plan());
    } else {
      row.set_operation(operation_text(step));
    }
    for (const std::uint32_t ipu : ipus_of(program_, step)) {
      row.add_ipus(ipu);
    }
    return row;
  }

  [[nodiscard]] double share_of_peak(const proto::Step& step) const {
    const Cycles cycles = total_cycles(step.cost());
    if (!step.has_execute() || cycles == Cycles{}) {
      return 0;
    }
    const std::int64_t slots = 2 * cycles.count() * device_.tiles * macs_per_cycle(step.execute());
    return static_cast<double>(step.cost().flops()) / static_cast<double>(slots);
  }

  /// Returns the rate of a tile's matrix unit for the type of the operator's first input.
  [[nodiscard]] std::int64_t macs_per_cycle(const proto::Execute& execute) const {
    const bool half =
        execute.inputs_size() > 0 && program_.tensors(static_cast<int>(execute.inputs(0))).type().starts_with("f16");
    const bool half_partials = execute.attributes().find("partials=\"half\"") != std::string::npos;
    return !half           ? device_.macs_per_cycle_f32
           : half_partials ? device_.macs_per_cycle_f16_f16
                           : device_.macs_per_cycle_f16;
  }

  const Program& program_;
  const Device& device_;
  std::vector<std::pair<std::string, Calls>> hosts_;  ///< The step function comes first.
};

// The enums of timeline.h and report.proto have the same values.
static_assert(static_cast<int>(Lane::kIo) == proto::LANE_IO && proto::Lane_ARRAYSIZE == 3);
static_assert(static_cast<int>(Doing::kStreaming) == proto::DOING_STREAMING && proto::Doing_ARRAYSIZE == 6);

}  // namespace

std::vector<proto::OperatorRow> operator_rows(const Program& program, const Device& device,
                                              const std::string& step_function) {
  return Operators(program, device, step_function).rows();
}

void add_timeline(const Program& program, proto::Report& report, int bars_max) {
  const proto::Function* function = find_function(program, report.step_function());
  if (function == nullptr) {
    return;
  }
  if (std::ranges::any_of(program.functions(), [](const proto::Function& f) { return f.part().stage() > 0; })) {
    *report.mutable_schedule() = stage_schedule(program, *function);
  }
  proto::Timeline& timeline = *report.mutable_timeline();
  std::uint64_t left_out = 0;
  const CallTime time = walk(program, *function, [&](const Stretch& bar) {
    if (timeline.step_size() == bars_max) {
      left_out += bar.count;
      return;
    }
    timeline.add_step(bar.step.number());
    timeline.add_ipu(bar.ipu);
    timeline.add_lane(static_cast<proto::Lane>(bar.lane));
    timeline.add_doing(static_cast<proto::Doing>(bar.doing));
    timeline.add_begin(static_cast<std::uint64_t>(bar.begin.count()));
    timeline.add_length(static_cast<std::uint64_t>(bar.length.count()));
    timeline.add_micro_batch(static_cast<std::uint32_t>(bar.micro_batch));
    timeline.add_count(static_cast<std::uint32_t>(bar.count));
    timeline.add_distance(static_cast<std::uint64_t>(bar.distance.count()));
  });
  timeline.set_clock_hz(program.device().clock_hz());
  timeline.set_cycles(static_cast<std::uint64_t>(time.length.count()));
  timeline.set_left_out(left_out);
  for (std::size_t ipu = 0; ipu < time.busy.size(); ++ipu) {
    timeline.add_busy(static_cast<std::uint64_t>(time.busy_cycles(ipu).count()));
  }
}

}  // namespace poprun
