#pragma once

#include "launcher/options/options.h"
#include "launcher/screen/console.h"
#include "proto/host_streams.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// What the dataset of a job holds, from a data server that is started for this question or is the
/// user's own. Waits for the answer. Errors: those of DataService.
Result<proto::Dataset> dataset_of(const Options& options, Console& console);

}  // namespace poprun::launcher
