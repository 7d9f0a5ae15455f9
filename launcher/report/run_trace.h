#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/coordinator.pb.h"

/// trace.pftrace of a run: what every replica did, on the wall clock, for Perfetto (ui.perfetto.dev).
///
///   process "replica 0, host a"
///     track "steps"           | step 3                                    | checkpoint |
///                             | call forward  | call backward |
///     track "operators"       | conv2d 'conv1' | relu ..
///     track "copies"                  between IPUs and Streaming Memory
///     track "collectives"                               | all_reduce of .. |  | sharing on the host |
///     track "host streams"    | stream_in |
///   process "replica 1, host b" ..
///   process "replica on the device clock"    one step: see device_trace.h
///
/// Slices of the same collective are joined by arrows, in the order in which the replicas entered it, so the last arrow
/// points to the replica for which the others waited. The first traced step begins at time 0 on both clocks.
namespace poprun::launcher {

/// How far the clock of a host lies behind that of the first host.
struct ClockOffset {
  std::int64_t ns = 0;
  std::optional<std::uint64_t> uncertainty_ns = 0;  ///< Nothing if no collective joins the hosts.
};

/// Finds the offsets of hosts' steady clocks. No replica leaves a collective before all have entered it, so each one
/// bounds, for every two hosts, how far their clocks can differ in each direction. An offset is the middle of all
/// bounds. `host_of[r]` is the host of replica r, below `hosts`. Assumes that all clocks run at the same rate. A host
/// that no collective joins to the first one is placed so that their first traced steps begin together. Deterministic.
std::vector<ClockOffset> clock_offsets(std::span<const proto::StepTrace> traces, std::span<const std::uint32_t> host_of,
                                       std::size_t hosts);

/// Collects the traces of a job's replicas. They are a few bytes for each slice, of which replicas limit the number.
class RunTrace {
 public:
  struct Setup {
    std::uint64_t last_step = 0;          ///< The last step to be traced.
    std::vector<std::string> hosts = {};  ///< Names.
    std::vector<std::uint32_t> host_of;   ///< By replica: index into `hosts`.
  };

  explicit RunTrace(Setup setup) : setup_(std::move(setup)) {}

  /// Takes traces, unless the limit is reached.
  void take(const proto::TracedSteps& traced);
  /// The job has only `steps` steps.
  void limit_to(std::uint64_t steps) { setup_.last_step = std::min(setup_.last_step, steps); }

  [[nodiscard]] bool empty() const { return traces_.empty(); }
  /// Returns whether every replica has traced its last step.
  [[nodiscard]] bool complete() const { return ended_ == setup_.host_of.size(); }

  /// Returns the file. Deterministic. Cost: linear in the slices.
  [[nodiscard]] std::string file() const;

  /// Describes the contents: "steps 1 to 20 of 16 replicas". Requires: !empty().
  [[nodiscard]] std::string text() const;
  /// Returns the number of slices left out because there were too many.
  [[nodiscard]] std::uint64_t left_out() const { return left_out_; }

 private:
  void take(const proto::StepTrace& trace);

  Setup setup_;
  std::vector<proto::StepTrace> traces_;
  proto::Report program_;
  std::size_t ended_ = 0;  ///< Replicas that traced their last step.
  std::uint64_t slices_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace poprun::launcher
