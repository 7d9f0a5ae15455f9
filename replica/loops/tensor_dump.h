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

/// Tensors of a training step for people to look at, and to compute again elsewhere.
namespace poprun {

/// Tensors whose name has a match of `pattern` (ECMAScript), in training step `step`, from 1.
struct DumpRequest {
  std::string pattern;
  std::uint64_t step = 0;
};

/// One tensor's value and what it is called.
struct DumpEntry {
  std::uint32_t tensor;
  std::string name;
};

/// When which value of a step is there to be read:
///
///   what lives on from step to step      NAME before the step, NAME.updated after it, if changed
///   what replicas exchange               NAME before the exchange, NAME.exchanged after it
///   all else                             NAME after the last operation that writes it
///
/// Copies that the compiler adds (Tensor.copy_of) are not shown.
///
/// With gradient accumulation, values of a micro-batch are those of the last one. Of a step that a number that is not
/// finite ends, what was there by then: of the micro-batch that it came up in, whatever was still live.
struct DumpPlan {
  std::vector<DumpEntry> at_begin;
  std::map<std::uint32_t, std::vector<DumpEntry>> before;  ///< By Step.number.
  std::map<std::uint32_t, std::vector<DumpEntry>> after;   ///< By Step.number.
  std::vector<DumpEntry> at_end;
};

/// Plans by step, for all requests together. A pure function.
///
/// Errors: kUsage, a pattern that is none or that nothing in "train" matches, with the nearest names; a step that the
/// job does not reach.
Result<std::map<std::uint64_t, DumpPlan>> plan_dumps(const Program& program, const std::vector<DumpRequest>& requests,
                                                     std::uint64_t total_steps);

/// Reports what the plans ask for while the engine runs "train".
class TensorDump final : private StepObserver {
 public:
  /// All references must outlive this.
  TensorDump(const Program& program, std::map<std::uint64_t, DumpPlan> plans, Reporter& reporter)
      : program_(program), plans_(std::move(plans)), reporter_(reporter) {}

  /// Around the engine's run of training step `step`. Cost: a look-up where nothing is asked for.
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
  // The step under way; null between steps that are dumped.
  const Engine* engine_ = nullptr;
  const DumpPlan* plan_ = nullptr;
  std::uint64_t step_ = 0;
  std::set<std::string> reported_;
};

}  // namespace poprun
