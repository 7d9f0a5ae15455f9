#pragma once

#include <cstddef>
#include <string>

#include "proto/answers.pb.h"
#include "proto/run_config.pb.h"

/// Functions that format the replica program's answers to --dry-run and --list-models.
namespace poprun::launcher {

struct DryRunFrame {
  std::size_t width = 80;
  bool schedule = false;    ///< Show the schedule, if there are several stages.
  bool everything = false;  ///< Show the locations of tensors, and all IPUs, even if there are many.
};

/// Shows the graphs of the answer, and then the compiled job: its size, steps and notes, and the memory and device time
/// of its IPUs. Leaves out parts that the replica did not reach before an error.
std::string dry_run_text(const proto::CompileAnswer& answer, const proto::RunConfig& config, const DryRunFrame& frame);

/// Returns a line that says whether the job fits, and how long a step takes: "fits: 119.5 MiB of 897.0 MiB, 214.8 us a
/// step". Returns nothing if no Program was compiled.
std::string verdict_text(const proto::CompiledJob& job, bool inference);

/// Returns a table with one row per model: parameters, multiply-accumulates of a forward pass, sizes and sample.
std::string model_table(const proto::ModelList& list);

}  // namespace poprun::launcher
