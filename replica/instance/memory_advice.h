#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/models/onnx/job_model.h"
#include "replica/program/program.h"

namespace poprun {

/// What would make a job fit whose Program does not: options with the values that fit and the
/// memory they need, each found by compiling the job with them. In this order: smaller
/// micro-batches, half precision, shorter sequences, alone or together; where nothing fits, what
/// comes closest.
///
///   "it fits with data.micro-batch-size 4 and training.gradient-accumulation 4 (812.3 MiB), or
///   with model.precision half (640.1 MiB)"
///
/// Deterministic, except where `until` ends the search: it says what it has found by then, and
/// nothing of what it has not tried. Cost: some 20 compilations at most, fewer of a large Program.
std::string memory_advice(
    const Program& program, const proto::RunConfig& config, const proto::Dataset& dataset,
    const std::shared_ptr<onnx_import::JobModel>& onnx,
    std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());

}  // namespace poprun
