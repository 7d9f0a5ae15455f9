#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/loops/evaluation_pass.h"
#include "replica/loops/loop.h"
#include "replica/ports/outfeed.h"
#include "replica/program/program.h"

namespace poprun {

/// One replica's run of an inference job: loads, runs the model once over its batches of stream
/// kTest, in lock-step with the others, and pushes what comes out.
class InferenceLoop final : private HostIo {
 public:
  /// All references must outlive the loop.
  InferenceLoop(const Program& program, const EngineOptions& options, const LoopPorts& ports,
                Outfeed& outfeed);

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
