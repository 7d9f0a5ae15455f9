#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/ports/reporter.h"
#include "replica/program/program.h"

/// Dumps tensors of a training step, for inspection and for recomputing them elsewhere.
namespace poprun {

/// Requests the tensors whose names contain a match of `pattern` (ECMAScript) in training step `step`, counted from 1.
struct DumpRequest {
  std::string pattern;
  std::uint64_t step = 0;
};

/// A tensor and the name under which it is dumped.
struct DumpEntry {
  std::uint32_t tensor;
  std::string name;
};

/// The times at which each value of a step can be read:
///
///   tensors that outlive the step        NAME before the step, NAME.updated after it, if changed
///   tensors that replicas exchange       NAME before the exchange, NAME.exchanged after it
///   all other tensors                    NAME after the last operation that writes it
///
/// Copies that the compiler adds (Tensor.copy_of) are not shown. With gradient accumulation, values of a micro-batch
/// are those of the last micro-batch. If a number that is not finite ends the step, the dump contains the values
/// computed so far, but only live tensors of the current micro-batch.
struct DumpPlan {
  std::vector<DumpEntry> at_begin;
  std::map<std::uint32_t, std::vector<DumpEntry>> before;  ///< Keyed by Step.number.
  std::map<std::uint32_t, std::vector<DumpEntry>> after;   ///< Keyed by Step.number.
  std::vector<DumpEntry> at_end;
};

/// Returns the plans for all requests together, keyed by step. Pure. Errors: kUsage if a pattern is invalid or matches
/// nothing in "train" (the message suggests the nearest names), or if the job does not reach a requested step.
Result<std::map<std::uint64_t, DumpPlan>> plan_dumps(const Program& program, const std::vector<DumpRequest>& requests,
                                                     std::uint64_t total_steps);

/// Reports the planned tensors while the engine runs "train".
class TensorDump final : private StepObserver {
 public:
  /// All references must outlive this.
  TensorDump(const Program& program, std::map<std::uint64_t, DumpPlan> plans, Reporter& reporter)
      : program_(program), plans_(std::move(plans)), reporter_(reporter) {}

  /// Call before and after the engine runs training step `step`. Cost: one look-up if the step has no plan.
  void begin(std::uint64_t step, Engine& engine);
  void end(Engine& engine);

 private:
  void before(const proto::Step& step) override;
  void after(const proto::Step& step) override;
  void broken_off(const proto::Step& step) override;
  void report(const std::vector<DumpEntry>& entries);

  const Program& program_;
  std::map<std::uint64_t, DumpPlan> plans_;
  Reporter& reporter_;
  // Set while a step is dumped; otherwise null.
  const Engine* engine_ = nullptr;
  const DumpPlan* plan_ = nullptr;
  std::uint64_t step_ = 0;
  std::set<std::string> reported_;
};

}  // namespace poprun
