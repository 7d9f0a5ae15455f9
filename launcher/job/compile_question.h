#pragma once

#include "launcher/options/options.h"
#include "launcher/screen/console.h"
#include "proto/inquiry.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// What a replica needs to compile the job: configuration, dataset, and what its files are. Nothing
/// is asked to be shown. Errors: those of dataset_of and read_inputs.
Result<proto::CompileQuestion> compile_question(const Options& options, Console& console);

}  // namespace poprun::launcher
