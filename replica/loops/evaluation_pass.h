#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/loops/batch_window.h"
#include "replica/ports/host_stream.h"
#include "replica/ports/reporter.h"
#include "replica/program/host_contract.h"

namespace poprun {

/// One pass over a test set: functions "evaluate_begin", "evaluate", which runs all of its batches,
/// and "evaluate_end". Its loop hands it the streams of these functions.
class EvaluationPass {
 public:
  /// The batches of `test`, from its first one. `program` must outlive this.
  EvaluationPass(const Program& program, std::unique_ptr<HostStream> test)
      : test_(std::move(test)), window_(program, JobStream::kTest, *test_) {}

  /// Errors: those of the engine. Collective.
  Status run(Engine& engine);

  /// Stream "test".
  Status write_batch(const StreamPart& part) { return window_.write(part); }

  /// Stream "evaluation".
  Status read_outcome(std::span<const HostTensor> tensors);

  /// Loss, accuracy and items over all replicas, once `run` is over; the rest is the loop's to say.
  [[nodiscard]] EvaluationReport report() const;

 private:
  std::unique_ptr<HostStream> test_;
  BatchWindow window_;
  EvaluationOutcome outcome_;
};

}  // namespace poprun
