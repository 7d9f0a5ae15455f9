#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/check/check.h"
#include "replica/compilation/host_weights.h"
#include "replica/compilation/timed_job.h"
#include "replica/compiler/compile.h"
#include "replica/link/launcher_link.h"
#include "replica/models/onnx/job_model.h"
#include "replica/program/program.h"

namespace poprun {

/// Compiles a job's Programs on replica 0, with the launcher's model and weights, each requested once.
class Compilation {
 public:
  /// Client and reply must outlive this. `before_compilation` runs before each compilation; `job` may compile many
  /// times.
  Compilation(CoordinatorClient& client, const proto::JoinReply& reply, std::function<void()> before_compilation)
      : client_(client), reply_(reply), before_compilation_(std::move(before_compilation)) {}

  /// Returns the job's Program, with its notes. Errors: kOutOfMemory, with advice, unless the job may run anyway.
  Result<Program> job();

  /// Returns the job that the device clock times, or null if it is the one above. Requires: `job` was called.
  Result<std::unique_ptr<TimedJob>> timed_job();

  /// Returns the variants that `poprun-emu check` compares, and each one's Program, whether or not it fits.
  Result<CheckedVariants> variants();
  Result<Program> variant(const Variant& variant);

  /// Returns all weights that the Programs read from the host. Requires: `job` or `variants` was called.
  [[nodiscard]] const HostWeights& initial_weights() const { return initial_weights_; }

 private:
  Status admit(Program& program);
  Status receive_model();
  Result<FileTensors> receive_weights();
  Result<WeightMatch> take_weights(const Program& program);

  CoordinatorClient& client_;
  const proto::JoinReply& reply_;
  std::function<void()> before_compilation_;
  std::shared_ptr<onnx_import::JobModel> onnx_;
  HostWeights initial_weights_;
  std::set<std::string, std::less<>> initialised_here_;  ///< As in CompileOptions.
};

}  // namespace poprun
