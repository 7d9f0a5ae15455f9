#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/models/onnx/job_model.h"
#include "replica/program/program.h"
#include "replica/report/out_of_memory.h"

namespace poprun {

struct AdviceOptions {
  /// The arguments of `poprun-emu`, quoted for a shell. If empty, no command is printed.
  std::vector<std::string> command = {};

  /// Called before each compilation, to notify replicas that wait for the Program; may be empty.
  std::function<void()> before_compilation = {};
};

/// Finds remedies for a job whose Program does not fit. Compiles the job with each remedy of remedies.h and lists the
/// bytes of the fullest tile and the device time of a step. Remedies that fit come first, sorted by device time per
/// sample, then the others, sorted by the missing memory. If none fits alone, the list begins with a few that fit
/// together: the combination with the least device time of those tried, with each remedy as mild as possible. If no
/// combination fits either, the advice names the closest attempt.
///
///   it fits with model.precision half (-41 % device time per sample), or with 1 other below
///
///   remedies, each compiled:
///     fullest tile          over    device step  per sample
///        812,344 B     173,368 B      12.345 ms              as it is
///        593,104 B          fits       7.284 ms       -41 %  model.precision half
///        612,480 B          fits       8.012 ms       -35 %  --ipus-per-replica 8
///        781,200 B     142,224 B      12.345 ms        +0 %  pipeline.schedule interleaved
///   the first as a command:
///     poprun-emu -n 2 --dry-run train.cfg --model.precision half
///
/// Remedies that reduce the largest occupants of the fullest tile are tried first. The budget counts compilations, so
/// that a slow machine gives the same advice; the advice says so if the budget did not suffice for all remedies.
/// Deterministic. Cost: up to 160 compilations. The larger the Program, the lower this limit, but not below 30, or
/// below 10 if the Program needs more than twice the available memory. A huge Program, of which each compilation takes
/// seconds, has a limit of 2 to 4, which is never exceeded. If the limit is 30 or lower, the search also ends once a
/// trial fits with at most 1 % more device time. A remedy needs several compilations if balanced stages do not fit.
MemoryAdvice memory_advice(const Program& program, const proto::RunConfig& config, const proto::Dataset& dataset,
                           const std::shared_ptr<onnx_import::JobModel>& onnx, const AdviceOptions& options = {});

}  // namespace poprun
