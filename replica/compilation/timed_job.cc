#include "replica/compilation/timed_job.h"

#include <utility>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/compilation/profile.h"

namespace poprun {

TimedJob::TimedJob(proto::RunConfig config, Program program)
    : config_(std::move(config)), program_(std::move(program)) {}

Result<std::unique_ptr<TimedJob>> TimedJob::compile(const JobInputs& inputs,
                                                    const std::set<std::string, std::less<>>& initialised_here) {
  if (inputs.config.topology().timed_replicas() == 0) {
    return nullptr;
  }
  proto::RunConfig config = inputs.config;
  config.mutable_topology()->set_num_replicas(config.topology().timed_replicas());
  config.mutable_topology()->clear_timed_replicas();
  const auto compiled = [&]() -> Result<Program> {
    POPRUN_ASSIGN(CompileOptions options, compile_options(config, inputs.dataset, inputs.onnx));
    options.initialised_here = initialised_here;
    return compile_job({config, inputs.dataset, inputs.onnx}, options);
  };
  Result<Program> program = compiled();
  if (!program) {
    Error error = std::move(program.error());
    error.message =
        fmt::format("the job of {} (--real): {}", counted(config.topology().num_replicas(), "replica"), error.message);
    return tl::unexpected<Error>{std::move(error)};
  }
  return std::make_unique<TimedJob>(std::move(config), std::move(*program));
}

Note TimedJob::note(std::uint64_t real) const {
  const std::uint64_t replicas = config_.topology().num_replicas();
  const proto::IpuMemory& most = fullest(program_);
  return {"device-clock.real",
          fmt::format(
              "{} of {} replicas compute (--real): losses, weights, memory and wall time are those of a job of {}, "
              "and only the device clock is that of all {}, whose fullest IPU needs {} of {}{}",
              grouped(real), grouped(replicas), counted(real, "replica"), grouped(replicas),
              mebibytes_text(most.peak()), mebibytes_text(most.capacity()), fits(most) ? "" : ", which does not fit"),
          {{"real", static_cast<std::int64_t>(real)}, {"replicas", static_cast<std::int64_t>(replicas)}}};
}

proto::DeviceTime TimedJob::device_time(const JobLength& length) const {
  proto::DeviceTime device = poprun::device_time(program_, config_, length);
  device.set_timed_replicas(config_.topology().num_replicas());
  return device;
}

}  // namespace poprun
