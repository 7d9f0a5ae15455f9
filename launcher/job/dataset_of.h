#pragma once

#include "launcher/options/options.h"
#include "launcher/screen/console.h"
#include "proto/host_streams.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Returns what the dataset of a job holds, according to the user's data server or one that is started for this query.
/// Blocks until the answer. Errors: those of DataService.
Result<proto::Dataset> dataset_of(const Options& options, Console& console);

}  // namespace poprun::launcher
