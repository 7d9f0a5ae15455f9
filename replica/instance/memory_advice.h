#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/models/onnx/job_model.h"
#include "replica/program/program.h"
#include "replica/report/out_of_memory.h"

namespace poprun {

/// What would make a job fit whose Program does not: the remedies of remedies.h, each found by
/// compiling the job with it, with the bytes of the fullest tile and the device time of a step that
/// such a job has. Those that fit come first, by the device time of a sample; then those that do
/// not, by what they lack. Where none fits alone, above them are a few that fit together, each as
/// mild as possible, with the least device time of what was tried; where nothing fits, what comes
/// closest is named.
///
///   it fits with model.precision half (-41 % device time a sample), or with 1 other below
///
///   remedies, each compiled:
///     fullest tile          over    device step  a sample
///        812,344 B     173,368 B      12.345 ms            as it is
///        593,104 B          fits       7.284 ms     -41 %  model.precision half
///        612,480 B          fits       8.012 ms     -35 %  --ipus-per-replica 8
///        781,200 B     142,224 B      12.345 ms      +0 %  pipeline.schedule interleaved
///
/// Deterministic, except where `until` ends the search. Where that or the limit on trials leaves
/// remedies out, it says which. Cost: 8 to 40 trials, fewer of a large Program; each compiles the
/// job as `plan_program` does, several times where balanced stages do not fit.
MemoryAdvice memory_advice(
    const Program& program, const proto::RunConfig& config, const proto::Dataset& dataset,
    const std::shared_ptr<onnx_import::JobModel>& onnx,
    std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());

/// When a search that begins now has to end: the other replicas wait for the Program meanwhile, so
/// it has a quarter of the time that they wait for each other.
std::chrono::steady_clock::time_point advice_deadline(std::uint32_t collective_timeout_seconds);

}  // namespace poprun
