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

/// A job from its command line to its results, in this process: options, compiler and engine are those of `poprun-emu`,
/// replicas are threads.
namespace poprun::testing {

/// What can be executed.
struct CompiledJob {
  proto::RunConfig config;
  proto::Dataset dataset;
  Program program;
  std::string onnx;                ///< The model's file, or nothing.
  HostWeights weights;             ///< Its own.
  std::vector<std::string> notes;  ///< The launcher's, then the Program's.
};

/// `onnx`: the file that model.onnx names. Errors: those of options and compiler; a job that does not fit is none.
Result<CompiledJob> compile_job(std::span<const Setting> settings, const std::string& onnx = {});

/// Asks for all that can be known of the job without running it: the dry run with graphs, schedule and places, the
/// estimate with and without compiling, and the profile. Errors: those of the answers.
Status describe_job(const CompiledJob& job);

/// By name, row-major little-endian bytes: each trained tensor, or in inference each batch of outputs of each replica;
/// besides the losses of steps and evaluations.
using Results = std::map<std::string, std::string>;

/// Errors: those of the loops.
Result<Results> run_job(const CompiledJob& job);

}  // namespace poprun::testing
