#pragma once

#include "proto/answers.pb.h"
#include "proto/profile.pb.h"

/// The answer about a job for scripts: its verdict first.
namespace poprun::launcher {

/// Returns the answer about a job that was only compiled.
proto::JobAnswer job_answer(const proto::CompiledJob& job);

/// Returns the answer about a profile, with or without a report, or about a job that ran.
proto::JobAnswer job_answer(const proto::Profile& profile);

}  // namespace poprun::launcher
