#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/loops/host_streams.h"
#include "replica/loops/loop.h"
#include "replica/ports/host_stream.h"
#include "replica/ports/reporter.h"
#include "replica/program/host_contract.h"
#include "replica/program/program.h"

namespace poprun {

/// One pass over a test set: functions "evaluate_begin", "evaluate", which runs all batches, and "evaluate_end". The
/// loop forwards the streams of these functions to this class.
class EvaluationPass {
 public:
  /// Evaluates the batches of `test`, starting with the first. `program` must outlive this.
  EvaluationPass(const Program& program, std::unique_ptr<HostStream> test)
      : test_(std::move(test)), window_(program, JobStream::kTest, *test_) {}

  /// Runs the three functions. Errors: those of the engine. Collective.
  Status run(Engine& engine);

  /// Serves stream "test".
  Status write_batch(const StreamPart& part) { return window_.write(part); }

  /// Reads stream "evaluation".
  Status read_outcome(std::span<const HostTensor> tensors);

  /// Returns loss, accuracy and items over all replicas; the loop fills in the rest. Requires: `run` has returned.
  [[nodiscard]] EvaluationReport report() const;

 private:
  std::unique_ptr<HostStream> test_;
  BatchWindow window_;
  EvaluationOutcome outcome_;
};

/// One replica's inference job. It loads the model, runs it once over the replica's kTest batches, in lock-step with
/// the other replicas, and pushes the outputs.
class InferenceLoop final : private HostIo {
 public:
  /// All references must outlive the loop.
  InferenceLoop(const Program& program, const EngineOptions& options, const LoopPorts& ports, Outfeed& outfeed);

  /// Runs the job. Errors: those of engine, communicator, host streams, outfeed.
  Result<LoopResult> run();

 private:
  Status write(const std::string& stream, const StreamPart& part) override;
  Status read(const std::string& stream, const StreamPart& part) override;

  Status push_outputs(std::uint64_t batch, const HostTensor& tensor);

  const Program& program_;
  EngineOptions options_;
  LoopPorts ports_;
  Outfeed& outfeed_;
  EvaluationPass pass_;
};

}  // namespace poprun
