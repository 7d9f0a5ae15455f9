#pragma once

#include <optional>

#include "launcher/job/data_service.h"
#include "launcher/options/options.h"
#include "launcher/outputs/checkpoint_files.h"
#include "launcher/placement/placement.h"
#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// What every instance is told when it joins: the job as asked for, on the data there is. Without
/// test data nothing is evaluated. Training goes on from `resumed`, if there is one.
proto::JoinReply join_reply(const Options& options, const Placement& placement,
                            const ServedDataset& served, const std::optional<Checkpoint>& resumed);

}  // namespace poprun::launcher
