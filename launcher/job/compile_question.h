#pragma once

#include "launcher/options/options.h"
#include "launcher/screen/console.h"
#include "proto/inquiry.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Returns what a replica needs to compile the job: configuration, dataset, and the contents of its files. The question
/// asks for no output. Errors: those of dataset_of and read_inputs.
Result<proto::CompileQuestion> compile_question(const Options& options, Console& console);

}  // namespace poprun::launcher
