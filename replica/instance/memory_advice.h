#pragma once

#include <chrono>
#include <memory>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/compiler/placement/out_of_memory.h"
#include "replica/models/onnx/job_model.h"
#include "replica/program/program.h"

namespace poprun {

/// What would make a job fit whose Program does not: the remedies of remedies.h, each found by
/// compiling the job with it. Where none fits alone, it is a small set of them that fits, each as mild
/// as possible; where nothing fits, what comes closest.
///
///   it fits with --ipus-per-replica 8 (895.4 MiB), or with model.precision half (726.7 MiB)
///
///   remedies, each compiled:         on the fullest IPU
///     pipeline.schedule interleaved     1,095.8 MiB, over by 198.8 MiB
///     --ipus-per-replica 8                895.4 MiB, fits
///     model.precision half                726.7 MiB, fits
///
/// Deterministic, except where `until` ends the search. Where that or the limit on trials leaves
/// remedies out, it says so. Cost: 40 trials at most, fewer of a large Program; each compiles the job
/// as `plan_program` does, several times where balanced stages do not fit.
MemoryAdvice memory_advice(
    const Program& program, const proto::RunConfig& config, const proto::Dataset& dataset,
    const std::shared_ptr<onnx_import::JobModel>& onnx,
    std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());

}  // namespace poprun
