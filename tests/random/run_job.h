#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "random_job.h"
#include "replica/base/error.h"
#include "replica/loops/host_streams.h"
#include "replica/program/program.h"

/// Runs a job from its command line to its results in this process: options, compiler and engine are those of
/// `poprun-emu`, replicas are threads.
namespace poprun::testing {

/// A job that can be executed.
struct CompiledJob {
  proto::RunConfig config;
  proto::Dataset dataset;
  Program program;
  std::string onnx;                ///< The model's file; empty if there is none.
  HostWeights weights;             ///< The job's initial weights.
  std::vector<std::string> notes;  ///< Notes of the launcher, then those of the Program.
};

/// Compiles the job. `onnx` is the file that model.onnx names. Errors: those of options and compiler; it is no error if
/// the job does not fit.
Result<CompiledJob> compile_job(std::span<const Setting> settings, const std::string& onnx = {});

/// Produces every report that does not run the job: the dry run with graphs, schedule and addresses, the estimate with
/// and without compiling, and the profile. Errors: those of the reports.
Status describe_job(const CompiledJob& job);

/// Row-major little-endian bytes by name: each trained tensor, or in inference each batch of outputs of each replica;
/// and the losses of steps and evaluations.
using Results = std::map<std::string, std::string>;

/// Executes the job. Errors: those of the loops.
Result<Results> run_job(const CompiledJob& job);

}  // namespace poprun::testing
