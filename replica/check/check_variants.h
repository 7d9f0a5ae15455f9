#pragma once

#include <memory>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/check/check.h"
#include "replica/models/onnx/job_model.h"

namespace poprun {

/// The variants of a job that `poprun-emu check` compares, on the numbers of IPUs that its configuration asks for, or
/// else as far as the model has layers. The job's own stages count on the job's own number of IPUs, balanced ones
/// elsewhere; notes say so. Costs what
/// plan_program does for one IPU and for each number of them: up to 6 compilations where balanced stages do not fit in
/// memory.
///
/// Errors: kUsage, the model cannot be spread over IPUs; names its layers. Those of `compile_options` and
/// `plan_program`, except for bugs in passes after "stages", which the runs report.
Result<CheckedVariants> check_variants(const proto::RunConfig& config, const proto::Dataset& dataset,
                                       const std::shared_ptr<onnx_import::JobModel>& onnx);

}  // namespace poprun
