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

struct InferenceOptions {
  std::uint64_t batches = 0;  ///< This replica's; the last ones may be padded.
  EngineOptions engine;
};

/// One replica's run of an inference job: loads, runs the model once over its batches of stream
/// kTest, in lock-step with the others, and pushes what comes out.
class InferenceLoop final : private HostIo {
 public:
  /// All references must outlive the loop.
  InferenceLoop(const Program& program, const InferenceOptions& options, const LoopPorts& ports,
                Outfeed& outfeed);

  /// Runs the job. Errors: those of engine, communicator, host streams, outfeed.
  Result<LoopResult> run();

 private:
  Status write(const std::string& stream, std::span<const HostTensor> tensors) override;
  Status read(const std::string& stream, std::span<const HostTensor> tensors) override;

  Status push_outputs(const HostTensor& tensor);

  const Program& program_;
  InferenceOptions options_;
  LoopPorts ports_;
  Outfeed& outfeed_;
  EvaluationPass pass_;
};

}  // namespace poprun
