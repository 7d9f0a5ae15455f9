#pragma once

#include <memory>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/check/check.h"
#include "replica/models/onnx/job_model.h"

namespace poprun {

/// Returns the variants of a job that `poprun-emu check` compares, on the numbers of IPUs that its configuration asks
/// for, or else on default numbers for which the model has enough layers. On its own number of IPUs, the job keeps its
/// own stages; on other numbers of IPUs, stages are balanced. Notes report these choices. Cost: plan_program for one
/// IPU and for each number of IPUs, with up to 6 compilations each if balanced stages do not fit. Errors: kUsage, with
/// the layers, if the model cannot be spread over IPUs; those of `compile_options` and `plan_program`, except bugs in
/// passes after "stages", which the runs report.
Result<CheckedVariants> check_variants(const proto::RunConfig& config, const proto::Dataset& dataset,
                                       const std::shared_ptr<onnx_import::JobModel>& onnx);

}  // namespace poprun
