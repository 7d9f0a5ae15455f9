#pragma once

#include "proto/coordinator.pb.h"
#include "proto/profile.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compilation/job_inputs.h"
#include "replica/loops/loop.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"
#include "replica/program/virtual_pod.h"

/// The profile of a run, for the launcher.
namespace poprun {

/// Returns the four batch sizes of Graphcore's glossary.
proto::BatchSizes batch_sizes(const proto::RunConfig& config);

/// Returns the Pod that --what-if describes. `program` must outlive it.
VirtualPod virtual_pod(const Program& program, const proto::RunConfig& config);

/// Returns the device time of a step. Leaves `total_seconds` unset: it needs a run.
proto::DeviceTime device_time(const Program& program, const proto::RunConfig& config, const JobLength& length);

/// Returns the figures of a job that are known before the first step.
proto::JobShape job_shape(const Program& program, const proto::RunConfig& config, const JobLength& length);

/// Returns the part of the profile that is known without a run. It has no report. `device` is the device time of a
/// step.
proto::Profile compiled_profile(const Program& program, const proto::RunConfig& config,
                                const proto::DeviceTime& device);

/// Returns the profile after the last step. Collective: wall times are means and spreads over all replicas, and memory
/// marks are maxima. `startup_seconds` is the time from the launcher's start to this replica's first step. Only
/// the profile of replica 0 needs `device`, the device time of a step.
Result<proto::Profile> make_profile(const Program& program, const proto::RunConfig& config, const JobLength& length,
                                    const LoopResult& result, double startup_seconds, Communicator& communicator,
                                    const proto::DeviceTime& device);

}  // namespace poprun
