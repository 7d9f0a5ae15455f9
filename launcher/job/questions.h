#pragma once

#include "launcher/job/inquiry.h"
#include "launcher/options/options.h"
#include "launcher/screen/console.h"
#include "proto/answers.pb.h"
#include "proto/inquiry.pb.h"
#include "replica/base/error.h"

/// Questions that several subcommands ask poprun-emu-replica.
namespace poprun::launcher {

/// Returns the description of a job's dataset. The description comes from the user's data server or from a server that
/// is started for this query. Blocks until the answer arrives. Errors: those of DataService.
Result<proto::Dataset> dataset_of(const Options& options, Console& console);

/// Returns a question that contains what a replica needs to compile the job: configuration, dataset, and the contents
/// of the model's files. The caller adds which outputs are wanted. Errors: those of dataset_of and read_inputs.
Result<proto::CompileQuestion> compile_question(const Options& options, Console& console);

/// Asks about a single product or all-reduce. `show` gets the MicroAnswer. Requires: the request is an EstimateRequest
/// with `micro`. Returns the exit code.
template <typename Show>
int ask_micro(const Options& options, Console& console, Show show) {
  proto::MicroQuestion question = *std::get<EstimateRequest>(options.request).micro;
  *question.mutable_config() = options.config;
  return ask_replica<proto::MicroAnswer>("--micro", question.SerializeAsString(), console, show);
}

/// The speed of a product in TFLOP/s, and of an all-reduce in GB/s.
double teraflops_per_second(const proto::MicroAnswer& answer);
double gigabytes_per_second(const proto::MicroAnswer& answer);

}  // namespace poprun::launcher
