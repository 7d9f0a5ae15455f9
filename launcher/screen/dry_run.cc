#include "launcher/screen/dry_run.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/screen/job_answer.h"
#include "launcher/screen/job_rows.h"
#include "launcher/screen/schedule_picture.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

/// Adds the size and the length of the job, as far as they are known, and its notes.
void add_size(JobRows& rows, const proto::CompiledJob& job, const proto::RunConfig& config) {
  rows.emplace_back("parameters", grouped(job.parameter_count()));
  rows.emplace_back("operators", grouped(job.operator_count()));
  add_batch_sizes(rows, job.batch_sizes());
  if (job.has_total_steps()) {
    rows.emplace_back(
        config.inference() ? "batches" : "steps",
        fmt::format("{} of {}{}", grouped(job.total_steps()), counted(job.batch_sizes().global_batch_size(), "sample"),
                    config.inference() ? "" : fmt::format(" ({} per epoch)", grouped(job.steps_per_epoch()))));
  }
  for (const proto::Note& note : job.notes()) {
    rows.emplace_back("note", note.text());
  }
}

void add_planned_memory(JobRows& rows, const proto::CompiledJob& job, const ShownIpus& shown) {
  add_ipus(rows, job.memory(), &proto::IpuMemory::fullest_tile_peak, shown, [&](int ipu, bool fullest) {
    const proto::IpuMemory& memory = job.memory(ipu);
    rows.emplace_back(fmt::format("IPU {} memory", ipu), memory_text(memory, fullest, ", planned"));
    rows.emplace_back("  tiles", tiles_text(memory));
    if (memory.streaming_peak() > 0) {
      rows.emplace_back("  streaming",
                        fmt::format("{} of {} of Streaming Memory", mebibytes_text(memory.streaming_peak()),
                                    mebibytes_text(memory.streaming_capacity())));
    }
    if (memory.peak() > 0) {
      rows.emplace_back("  peak", "at " + job.peaks(ipu));
    }
  });
}

/// Returns whether several stages of the schedule are on one IPU.
bool share_an_ipu(const proto::StageSchedule& schedule) {
  std::map<std::uint32_t, std::uint32_t> stage_on;
  for (const proto::CycleSequence& sequence : schedule.sequences()) {
    for (const proto::Cycle& cycle : sequence.cycles()) {
      for (const proto::PartAtWork& work : cycle.parts()) {
        if (stage_on.emplace(work.part().ipu(), work.part().stage()).first->second != work.part().stage()) {
          return true;
        }
      }
    }
  }
  return false;
}

std::string schedule_text(const proto::StageSchedule& schedule, bool inference, const DryRunFrame& frame) {
  return fmt::format("# schedule by cycle: {}{}\n{}",
                     inference ? "A forward, by micro-batch" : "A forward, R recomputation, G backward, U update",
                     share_an_ipu(schedule) ? "; stages that share an IPU are listed in order" : "",
                     schedule_picture(schedule, {.width = frame.width, .all_ipus = frame.everything}));
}

std::string compiled_job_text(const proto::CompiledJob& job, const proto::RunConfig& config, const DryRunFrame& frame) {
  const ShownIpus shown{.all = frame.everything, .elsewhere = "listed with -vv"};
  JobRows rows;
  add_size(rows, job, config);
  add_planned_memory(rows, job, shown);
  std::string text = "# compiled\n" + to_text(rows);
  if (frame.everything && !job.locations().empty()) {
    text += fmt::format("# locations\n{}\n", fmt::join(job.locations(), "\n"));
  }
  if (job.has_device()) {
    JobRows times;
    add_device_time(times, job.device(), config, shown);
    text += to_text(times);
  }
  if (frame.schedule && job.has_schedule()) {
    text += schedule_text(job.schedule(), config.inference(), frame);
  }
  return text + (job.shortage().empty() ? "" : fmt::format("# {}\n", job.shortage()));
}

/// Returns "images u8[3,224,224], 1000 classes".
std::string sample_text(const proto::ListedModel& model) {
  std::vector<std::string> parts;
  for (const proto::SampleTensor& tensor : model.sample()) {
    parts.push_back(fmt::format("{} {}", tensor.name(), tensor.type()));
  }
  if (model.classes() > 0) {
    parts.push_back(fmt::format("{} classes", model.classes()));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string sizes_text(const proto::ListedModel& model) {
  std::vector<std::string> parts;
  for (const proto::ModelSize& size : model.sizes()) {
    parts.push_back(size.value() == 0 ? size.name() + "=from the data"
                                      : fmt::format("{}={}", size.name(), size.value()));
  }
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace

std::string dry_run_text(const proto::CompileAnswer& answer, const proto::RunConfig& config, const DryRunFrame& frame) {
  return answer.has_job() ? answer.passes() + compiled_job_text(answer.job(), config, frame) : answer.passes();
}

std::string verdict_text(const proto::CompiledJob& job, bool inference) {
  if (job.memory().empty()) {
    return "";
  }
  const proto::JobAnswer all = job_answer(job);
  const std::string memory =
      all.fits() ? fmt::format("fits: {} of {}", mebibytes_text(all.peak_bytes()), mebibytes_text(all.capacity_bytes()))
      : all.fullest_tile_bytes() > all.tile_bytes()
          ? fmt::format("does not fit: the fullest tile needs {} of {} B", grouped(all.fullest_tile_bytes()),
                        grouped(all.tile_bytes()))
          : std::string{"does not fit: an IPU needs more than its Streaming Memory"};
  const std::string time =
      all.has_device_step_seconds()
          ? fmt::format(", {} a {}", duration_text(all.device_step_seconds()), inference ? "batch" : "step")
          : "";
  return memory + time + "\n";
}

std::string model_table(const proto::ModelList& list) {
  constexpr const char* kRow = "{:<18} {:>13}  {:>14}  {:<72} {}\n";
  std::string text =
      fmt::format(kRow, "model", "parameters", "forward GMAC", "sizes, with their defaults", "one sample");
  for (const proto::ListedModel& model : list.models()) {
    text += fmt::format(kRow, model.name(), grouped(model.parameters()),
                        fmt::format("{:.9f}", static_cast<double>(model.forward_macs()) / 1e9), sizes_text(model),
                        sample_text(model));
  }
  return text;
}

}  // namespace poprun::launcher
