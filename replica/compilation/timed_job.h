#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "proto/profile.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/compilation/job_inputs.h"
#include "replica/program/program.h"

namespace poprun {

/// The job of all replicas for which those of a run stand (--real). It is compiled, but not executed, and its Program
/// is the one that the device clock times.
class TimedJob {
 public:
  /// Returns null if the replicas of `inputs` stand for themselves. `initialised_here` is as in CompileOptions. Errors:
  /// those of compile_options and compile_job.
  static Result<std::unique_ptr<TimedJob>> compile(const JobInputs& inputs,
                                                   const std::set<std::string, std::less<>>& initialised_here);

  TimedJob(proto::RunConfig config, Program program);

  [[nodiscard]] const proto::RunConfig& config() const { return config_; }
  [[nodiscard]] const Program& program() const { return program_; }

  /// Returns the note that results are those of `real` replicas.
  [[nodiscard]] Note note(std::uint64_t real) const;

  /// Returns the device time of a step of this job, which has the length of the executed one.
  [[nodiscard]] proto::DeviceTime device_time(const JobLength& length) const;

 private:
  proto::RunConfig config_;
  Program program_;
};

}  // namespace poprun
