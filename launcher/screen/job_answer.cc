#include "launcher/screen/job_answer.h"

#include <algorithm>

namespace poprun::launcher {
namespace {

using Memory = google::protobuf::RepeatedPtrField<proto::IpuMemory>;

void add_memory(const Memory& memory, proto::JobAnswer& answer) {
  answer.set_fits(true);
  for (const proto::IpuMemory& ipu : memory) {
    answer.set_fits(answer.fits() && ipu.fullest_tile_peak() <= ipu.bytes_per_tile() &&
                    ipu.streaming_peak() <= ipu.streaming_capacity());
    answer.set_peak_bytes(std::max(answer.peak_bytes(), ipu.peak()));
    answer.set_capacity_bytes(ipu.capacity());
    answer.set_fullest_tile_bytes(std::max(answer.fullest_tile_bytes(), ipu.fullest_tile_peak()));
    answer.set_tile_bytes(ipu.bytes_per_tile());
  }
}

void add_time(const proto::DeviceTime& device, proto::JobAnswer& answer) {
  answer.set_device_step_seconds(device.step_seconds());
  answer.set_samples_per_second(device.samples_per_second());
  answer.set_compared_error(device.compared_error());
  if (device.compared_error() == 0) {
    answer.add_caveats("the device time of such a job was never compared with a real IPU");
  }
  if (!device.host().calls_are_counted()) {
    answer.add_caveats("the device time leaves out the host's share of a step (device.host-call)");
  }
}

proto::JobAnswer answer_about(const Memory& memory, const proto::DeviceTime* device) {
  proto::JobAnswer answer;
  add_memory(memory, answer);
  if (device != nullptr) {
    add_time(*device, answer);
  }
  if (!answer.fits()) {
    answer.add_caveats("a real IPU cannot run this job, because it does not fit");
  }
  return answer;
}

}  // namespace

proto::JobAnswer job_answer(const proto::CompiledJob& job) {
  proto::JobAnswer answer = answer_about(job.memory(), job.has_device() ? &job.device() : nullptr);
  *answer.mutable_notes() = job.notes();
  *answer.mutable_remedies() = job.remedies();
  *answer.mutable_job() = job;
  answer.mutable_job()->clear_notes();
  answer.mutable_job()->clear_remedies();
  return answer;
}

proto::JobAnswer job_answer(const proto::Profile& profile) {
  proto::JobAnswer answer = answer_about(profile.planned_memory(), profile.has_device() ? &profile.device() : nullptr);
  *answer.mutable_notes() = profile.notes();
  *answer.mutable_remedies() = profile.report().remedies();
  *answer.mutable_profile() = profile;
  answer.mutable_profile()->clear_notes();
  answer.mutable_profile()->mutable_report()->clear_remedies();
  if (!profile.has_report()) {
    answer.mutable_profile()->clear_report();
  }
  return answer;
}

}  // namespace poprun::launcher
