#pragma once

#include "proto/coordinator.pb.h"
#include "proto/profile.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compilation/job_inputs.h"
#include "replica/loops/loop.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"

/// The profile of a run, for the launcher.
namespace poprun {

/// The four batch sizes of Graphcore's glossary.
proto::BatchSizes batch_sizes(const proto::RunConfig& config);

/// Device time of a step. `total_seconds` is left unset: it is for who ran the Program.
proto::DeviceTime device_time(const Program& program, const proto::RunConfig& config, const JobLength& length);

/// Before the first step.
proto::JobShape job_shape(const Program& program, const proto::RunConfig& config, const JobLength& length);

/// The part that is known without a run, without a report.
proto::Profile compiled_profile(const Program& program, const proto::RunConfig& config, const JobLength& length);

/// After the last step. Collective: wall times are means and spreads over all replicas, memory marks maxima.
/// `startup_seconds` is from the launcher's start to this replica's first step.
Result<proto::Profile> make_profile(const Program& program, const proto::RunConfig& config, const JobLength& length,
                                    const LoopResult& result, double startup_seconds, Communicator& communicator);

}  // namespace poprun
