#pragma once

#include <optional>

#include "launcher/job/data_service.h"
#include "launcher/options/options.h"
#include "launcher/outputs/checkpoint_files.h"
#include "launcher/placement/placement.h"
#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// Returns the answer that every instance gets when it joins: the job as requested, with the dataset as served. Without
/// test data nothing is evaluated. Training resumes from `resumed`, if it is set.
proto::JoinReply join_reply(const Options& options, const Placement& placement, const ServedDataset& served,
                            const std::optional<Checkpoint>& resumed);

}  // namespace poprun::launcher
