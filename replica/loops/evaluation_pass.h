#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/ports/host_stream.h"
#include "replica/ports/reporter.h"
#include "replica/program/host_contract.h"

namespace poprun {

/// One pass over a test set: function "evaluate" once for each of its batches, between
/// "evaluate_begin" and "evaluate_end". Its loop hands it the streams of these functions.
class EvaluationPass {
 public:
  /// `batches` of `test`, from its first one.
  EvaluationPass(std::unique_ptr<HostStream> test, std::uint64_t batches)
      : test_(std::move(test)), batches_(batches) {}

  /// Errors: those of the engine. Collective.
  Status run(Engine& engine);

  /// Stream "test".
  Status write_batch(std::span<const HostTensor> tensors);

  /// Stream "evaluation".
  Status read_outcome(std::span<const HostTensor> tensors);

  /// Number of the batch under way, from 0.
  [[nodiscard]] std::uint64_t batch() const { return batch_; }

  /// Loss, accuracy and items over all replicas, once `run` is over; the rest is the loop's to say.
  [[nodiscard]] EvaluationReport report() const;

 private:
  std::unique_ptr<HostStream> test_;
  std::uint64_t batches_;
  std::uint64_t batch_ = 0;
  EvaluationOutcome outcome_;
};

}  // namespace poprun
